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
_SOURCES = re.compile(r"^ +- (?:entrypoints|layers|templates|tests/images|torchbake)/\*\*\n", flags=re.MULTILINE)


def pipeline(text: str) -> str:
    """A CI file of the toolkit as a repository has it that installs torchbake instead of holding its source."""
    text = _SOURCES.sub("", text).replace("pip install nox", 'pip install "torchbake[nox]"')
    return re.sub(r"\bdocs/(?=[a-z-]+\.md)", _PAGES, text)
