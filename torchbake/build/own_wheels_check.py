"""Check that the wheels of a lock that torchbake made for a project are in ``wheels/`` beside the matrix."""

from pathlib import Path

from torchbake.build.wheel_fetch import find_archive
from torchbake.core.digest import file_digest
from torchbake.core.paths import wheels_of
from torchbake.errors import LockError
from torchbake.lock.lockfile import Lock, wheel_package
from torchbake.matrix.spec import ImageSpec
from torchbake.projects.package_sources import sources_of_projects
from torchbake.ui.command import Command


def check_own_wheels(root: Path, spec: ImageSpec, lock: Lock) -> None:
    """Raise LockError if a wheel that a lock needs is missing in the folder, or has another hash.

    ``root`` is the matrix's folder. A missing wheel may be in another folder or an index of this host, and only then
    these are asked.
    """
    for name in lock.wheels:
        path, pin = wheels_of(root) / name, lock.pins[wheel_package(name)]
        place = path.relative_to(root)
        try:
            digest = file_digest(path)
        except FileNotFoundError:
            sources = sources_of_projects(root, [spec.project] if spec.project else [])
            if find_archive(pin, sources.for_image(spec), spec.base.python, spec.indexes, spec.platform):
                continue
            raise LockError(
                f"{place}: {spec.id} needs this wheel, but there is no such file, and no index of this host has it.",
                hint=f"Restore it from git, or make it again: {Command('lock', spec.id)}",
            ) from None
        except OSError as error:
            raise LockError(f"{place}: {error.strerror}.", hint="Make it readable, or restore it from git.") from None
        if digest not in pin.hashes:
            raise LockError(
                f"{place}: is damaged or replaced: it has the hash {digest}, and the lock of {spec.id} has another.",
                hint=f"Restore it from git, or remove it and make it again: {Command('lock', spec.id)}",
            )
