"""The sources of packages for the images of one matrix: this host's, its own wheels, and the projects' indexes."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from torchbake.core.files import read_text
from torchbake.core.paths import wheels_of
from torchbake.errors import LockError
from torchbake.hostconfig.index_logins import with_found_login
from torchbake.hostconfig.pip_config import PYPI, PipConfig, read_pip_config, without_login
from torchbake.hostconfig.project_index import ProjectIndex
from torchbake.lock.project_inputs import PYPROJECT, uv_indexes, uv_settings
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ProjectSpec, pytorch_of
from torchbake.projects.requirements_file import expand_variables

# In a uv.lock, a pylock.toml and a requirements file.
_IN_LOCKS = re.compile(
    r"""registry = "(https?://[^"]+)"|^index = "(https?://[^"]+)"|^\s*(?:-i|--(?:extra-)?index-url)[ =](\S+)""",
    flags=re.MULTILINE,
)


def read_package_sources(project: Project, environ: Mapping[str, str] = os.environ) -> PipConfig:
    """Return this host's pip settings with the matrix's folder of wheels and the indexes of its projects.

    The indexes have the logins that this host has. Raises HostConfigError if pip's settings cannot be read.
    """
    projects = {spec.project for spec in pytorch_of(project.expansion.specs) if spec.project}
    return sources_of_projects(project.root, projects, environ)


def sources_of_projects(
    root: Path, projects: Iterable[ProjectSpec], environ: Mapping[str, str] = os.environ
) -> PipConfig:
    """Return the same for projects of a matrix's folder, also before there is a matrix. Raises HostConfigError."""
    pip = replace(read_pip_config(environ), wheels=wheels_of(root).absolute())
    indexes = dict[str, tuple[ProjectIndex, ...]]()
    for each in sorted(projects, key=lambda each: each.lock_path):
        logins = (with_found_login(index, pip, environ) for index in indexes_of(root, each, environ))
        indexes[each.folder] = tuple(dict.fromkeys((*indexes.get(each.folder, ()), *logins)))
    return replace(pip, by_project=indexes)


def indexes_of(root: Path, project: ProjectSpec, environ: Mapping[str, str] = os.environ) -> tuple[ProjectIndex, ...]:
    """Return the indexes that a project's lock takes packages from, except PyPI.

    Their names are those of its pyproject.toml. PyTorch's indexes, which the matrix has by accelerator, are left out.
    A file that cannot be read has no indexes, nor has an address with a variable that is not set: `lock` reports the
    error.
    """
    by_url = {
        without_login(url).rstrip("/"): ProjectIndex(name=name, url=url) for name, url in _uv_indexes(root, project)
    }
    text = _text(root / project.lock_path)
    addresses = [next(filter(None, match)).rstrip("/") for match in _IN_LOCKS.findall(text)]
    with_variables = {_expanded(url, environ): url for url in addresses if "${" in url}
    urls = [url for url in (_expanded(each, environ) for each in addresses) if url]
    if Path(project.lock).name == PYPROJECT:  # nothing is locked, so each of its indexes may be used
        urls = list(by_url)
    others = {without_login(url): url for url in urls if without_login(url) != PYPI and not _of_pytorch(url)}
    return tuple(
        by_url.get(bare) or ProjectIndex(name="", url=url, template=with_variables.get(url, ""))
        for bare, url in others.items()
    )


def _expanded(url: str, environ: Mapping[str, str]) -> str:
    """Return an address with the values of variables; empty if one of these is not set."""
    try:
        return expand_variables(url, environ, "")
    except LockError:
        return ""


def _uv_indexes(root: Path, project: ProjectSpec) -> Iterator[tuple[str, str]]:
    """Yield names and addresses of ``[[tool.uv.index]]``."""
    try:
        document = tomllib.loads(_text(root / project.folder / PYPROJECT))
    except tomllib.TOMLDecodeError:
        return
    for index in uv_indexes(uv_settings(document)):
        yield str(index.get("name", "")), index["url"]


def _of_pytorch(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith(".pytorch.org")


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError):
        return ""
