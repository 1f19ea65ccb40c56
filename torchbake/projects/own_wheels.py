"""Wheels for packages of a project's lock that no index has as wheels: sdists, git, archives."""

from collections.abc import Sequence
from pathlib import Path

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.projects.packages import ProjectLock, ProjectPackage


def pins_of_own_wheels(
    packages: Sequence[ProjectPackage], lock: ProjectLock, root: Path, python: str, config: PipConfig
) -> tuple[Pin, ...]:
    """Return a pin with the hash of the own wheel of each package; ``root`` is the matrix's folder.

    ``packages`` are those of ``lock`` whose source is an Sdist, Git or Archive. Raises LockError if a wheel cannot be
    made.
    """
    if not packages:
        return ()
    names = [f"{lock.place(each.name)}: {each.name} {each.version}".rstrip() for each in packages]
    raise LockError(
        f"{', '.join(names)}: no index has this as a wheel.", hint="Lock versions that an index has as wheels."
    )
