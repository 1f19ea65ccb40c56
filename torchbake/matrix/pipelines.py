"""The CI files of a new repository: this toolkit's own, without what only the toolkit has. Pure."""

import re

# Where each comes from, below the toolkit's folder, by where it goes.
PIPELINES = {
    "github": {
        ".github/workflows/images.yml": ".github/workflows/images.yml",
        ".github/workflows/validate.yml": ".github/workflows/validate.yml",
    },
    "gitlab": {".gitlab-ci.yml": "ci/gitlab-ci.yml", "ci/gitlab-images.yml": "ci/gitlab-images.yml"},
}
_PAGES = "https://github.com/torchbake/torchbake/blob/main/docs/"
_COPY = "# GitLab: copy this file to .gitlab-ci.yml, or include it there (`include: {local: ci/gitlab-ci.yml}`)."
_SOURCES = re.compile(r"^ +- (?:entrypoints|layers|templates|tests/images|torchbake)/\*\*\n", flags=re.MULTILINE)


def pipeline(text: str, requirement: str) -> str:
    """A CI file of the toolkit as a repository has it that installs torchbake, by ``requirement``, as pip takes it."""
    text = _SOURCES.sub("", text).replace("pip install nox", f'pip install "{requirement}"')
    text = text.replace(_COPY, "# Starts the pipelines of the images.")
    return re.sub(r"\bdocs/(?=[a-z-]+\.md)", _PAGES, text)
