"""The CI files of a new repository: this toolkit's own, without what only the toolkit has. Pure."""

import re

_WORKFLOWS = ".github/workflows"
_CALLERS = ("images.yml", "validate.yml")
_CALLED = ("check-images.yml", "release-images.yml", "validate-images.yml")
# Where each comes from, below the toolkit's folder, by where it goes.
PIPELINES = {
    "github": {f"{_WORKFLOWS}/{name}": f"{_WORKFLOWS}/{name}" for name in _CALLERS},
    "github-full": {f"{_WORKFLOWS}/{name}": f"{_WORKFLOWS}/{name}" for name in (*_CALLERS, *_CALLED)},
    "gitlab": {".gitlab-ci.yml": "ci/gitlab-ci.yml", "ci/gitlab-images.yml": "ci/gitlab-images.yml"},
}
_REPOSITORY = "torchbake/torchbake"
_PAGES = "https://github.com/torchbake/torchbake/blob/main/docs/"
_NOX = r"(?P<word>pip install|install:) nox==\S+"  # what runs beside tokens and logins is pinned
_COPY = "# GitLab: copy this file to .gitlab-ci.yml, or include it there (`include: {local: ci/gitlab-ci.yml}`)."


def pipeline(text: str, requirement: str, tag: str = "") -> str:
    """A CI file of the toolkit as a repository has it that installs torchbake, by ``requirement``, as pip takes it.

    With a ``tag`` of the toolkit's repository the workflows that do the work are called there, else beside this one.
    """
    text = re.sub(_NOX, lambda found: f'{found["word"]} "{requirement}"', text)
    text = text.replace(_COPY, "# Starts the pipelines of the images.")
    if tag:
        text = re.sub(rf"uses: \./({_WORKFLOWS}/[\w-]+\.yml)", rf"uses: {_REPOSITORY}/\1@{tag}", text)
    return re.sub(r"\bdocs/(?=[a-z-]+\.md)", _PAGES, text)


def choice(ci: str, tag: str) -> str:
    """Which of the PIPELINES is written: what no tag names can be called nowhere, and is written in full."""
    return "github-full" if ci == "github" and not tag else ci
