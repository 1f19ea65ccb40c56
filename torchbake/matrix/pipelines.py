"""The CI files of a new repository: copies of this toolkit's, adapted to it. Pure."""

import re

_WORKFLOWS = ".github/workflows"
_CALLERS = ("images.yml", "validate.yml")
_CALLED = ("check-images.yml", "release-images.yml", "validate-images.yml")
# The files of each choice: the path in the toolkit's folder by the path in the new repository.
PIPELINES = {
    "github": {f"{_WORKFLOWS}/{name}": f"{_WORKFLOWS}/{name}" for name in _CALLERS},
    "github-full": {f"{_WORKFLOWS}/{name}": f"{_WORKFLOWS}/{name}" for name in (*_CALLERS, *_CALLED)},
    "gitlab": {".gitlab-ci.yml": "ci/gitlab-ci.yml", "ci/gitlab-images.yml": "ci/gitlab-images.yml"},
}
_REPOSITORY = "torchbake/torchbake"
_PAGES = "https://github.com/torchbake/torchbake/blob/main/docs/"
_NOX = r"(?P<word>pip install|install:) nox==\S+"  # pinned, since it runs with tokens and logins
_COPY = "# GitLab: copy this file to .gitlab-ci.yml, or include it there (`include: {local: ci/gitlab-ci.yml}`)."


def pipeline(text: str, requirement: str, tag: str = "") -> str:
    """Adapt a CI file of the toolkit to a repository that installs torchbake by ``requirement``, as pip takes it.

    With a ``tag``, the file calls the workflows of the toolkit's repository at this tag, else its repository's copies.
    """
    text = re.sub(_NOX, lambda match: f'{match["word"]} "{requirement}"', text)
    text = text.replace(_COPY, "# Starts the pipelines of the images.")
    if tag:
        text = re.sub(rf"uses: \./({_WORKFLOWS}/[\w-]+\.yml)", rf"uses: {_REPOSITORY}/\1@{tag}", text)
    return re.sub(r"\bdocs/(?=[a-z/-]+\.md)", _PAGES, text)


def choice(ci: str, tag: str) -> str:
    """Return the choice of PIPELINES: without a tag of the toolkit, GitHub's called workflows are copied too."""
    return "github-full" if ci == "github" and not tag else ci
