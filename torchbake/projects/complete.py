"""Complete a project's lock that does not say which package requires which, by the package indexes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PYPI, PipConfig, local_folder
from torchbake.projects.export import exactly, requirers
from torchbake.projects.packages import Archive, ProjectLock, ProjectPackage, Sdist, WheelSource
from torchbake.projects.via import check_complete, via_of, with_via
from torchbake.projects.wheels_folder import find_own_wheel, is_wheel


def ask_indexes(config: PipConfig, indexes: Iterable[str], ask: Callable[[PipConfig], str]) -> str:
    """Ask this host's package indexes, and if these do not suffice also the ``indexes`` of a lock. Raises LockError."""
    more = [url for url in dict.fromkeys(indexes) if url and url.rstrip("/") != PYPI]
    try:
        return ask(config)
    except LockError:
        if not more or config.no_index:
            raise
    return ask(replace(config, extra_index_urls=(*config.extra_index_urls, *more)))


def complete_lock(root: Path, lock: ProjectLock, python: str, config: PipConfig, indexes: Iterable[str]) -> ProjectLock:
    """Return a lock with ``via``, by the package indexes. Raises LockError if a package is missing in it."""
    versions = {each.name: each.version for each in lock.packages if isinstance(each.source, WheelSource | Sdist)}
    sdists = {each.name: each.version for each in lock.packages if isinstance(each.source, Sdist)}
    files = [f"{each.name} @ {_address(root, lock.path, each, config)}" for each in lock.packages if is_wheel(each)]
    requirements = [*exactly(versions), *files]
    via = via_of(
        ask_indexes(config, indexes, lambda sources: requirers(requirements, sdists, lock.path, python, sources))
    )
    check_complete(lock.packages, via, lock.path)
    return replace(lock, packages=with_via(lock.packages, via))


def _address(root: Path, lock: str, package: ProjectPackage, config: PipConfig) -> str:
    """Return the address of a package's wheel: of a file on this host, if there is one. It may have a login."""
    assert isinstance(package.source, Archive)
    path = (root / lock).parent / (local_folder(package.source.url) or "")
    own = find_own_wheel(root, package, "")
    for file in (path, own):
        if file and file.is_file():
            return file.resolve().as_uri()
    return config.with_login(package.source.url)
