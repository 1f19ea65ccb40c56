"""The choice of a row for a project."""

from collections.abc import Sequence
from pathlib import Path

from torchbake.hostconfig.pip_config import without_login
from torchbake.matrix.spec import ProjectSpec
from torchbake.projects.choose import ProjectChoice, choose
from torchbake.projects.find_lock import find_lock
from torchbake.projects.folder import read_folder
from torchbake.projects.package_sources import sources_of_projects
from torchbake.projects.packages import ProjectLock
from torchbake.projects.read import read_project


def choice_of_project(
    root: Path, project: Path, *, extras: Sequence[str] = (), groups: Sequence[str] = (), base: str = ""
) -> ProjectChoice:
    """Choose the row of a project in or below the matrix's folder ``root``. Raises UsageError and LockError."""
    place = find_lock(root, project)
    config = sources_of_projects(root, [place.spec])
    with_indexes = config.for_project(place.folder)

    def read(spec: ProjectSpec, python: str) -> ProjectLock:
        return read_project(root, spec, python, with_indexes)

    folder = read_folder(root, place)
    sources = [without_login(each) for each in (config.index_url, *config.extra_index_urls, *config.find_links)]
    # An address with a variable outside of its login is for this machine alone: its value may be secret.
    own = (index for index in config.by_project[place.folder] if "${" in index.public_url)
    sources += [without_login(index.url) for index in own]
    return choose(folder, read, extras=extras, groups=groups, base=base, own_sources=sources)
