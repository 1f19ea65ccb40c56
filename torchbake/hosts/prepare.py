"""What goes along to hosts: each image's lock, looked at first; the locked wheels of this machine's folders; uv."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from torchbake.build.wheelhouse import stage_wheels
from torchbake.errors import HostError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hosts.chosen import Chosen
from torchbake.hosts.variables import Carried, Wheels, variables
from torchbake.lock.image_lock import read_lock
from torchbake.lock.lockfile import Lock
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.labels import versions_in
from torchbake.render.dockerfile import promised_labels


def prepare(
    project: Project, chosen: Chosen, named: ImageSpec | None, pip: PipConfig, folders: Sequence[Path]
) -> dict[str, Any]:
    """The variables of `apply`. ``folders`` hold wheels, beside those of pip's settings.

    Raises LockError for a lock that is missing or out of date, and HostError where pip may ask no index and a wheel is
    in none of the folders: before any host is touched.
    """
    import uv  # noqa: PLC0415 - only who installs needs it

    wheels = {spec.id: _wheels(project, spec, (*folders, *pip.local_folders)) for spec in chosen.images}
    if pip.no_index:
        _complete(wheels)
    carried = Carried(locks=project.root / "images", uv=Path(uv.find_uv_bin()), wheels=wheels)
    return variables(chosen, named, carried, pip)


def expected_of(project: Project, spec: ImageSpec) -> dict[str, str | None]:
    """The versions that an image's labels promise, and so a host's. Raises LockError."""
    return versions_in(promised_labels(spec, read_lock(project.root, spec)))


def _wheels(project: Project, spec: ImageSpec, folders: Sequence[Path]) -> Wheels:
    lock = read_lock(project.root, spec)
    staged = stage_wheels({spec.id: lock.pins.values()}, folders, spec.base.python, project.state)
    folder = staged / spec.id if staged else None
    return Wheels(folder=folder, missing=missing_of(lock, folder))


def missing_of(lock: Lock, folder: Path | None) -> tuple[str, ...]:
    """The packages of a lock that have no wheel in a folder."""
    there = {canonicalize_name(path.name.split("-")[0]) for path in folder.glob("*.whl")} if folder else set()
    return tuple(name for name in sorted(lock.pins) if name not in there)


def _complete(wheels: dict[str, Wheels]) -> None:
    for image, found in wheels.items():
        if found.missing:
            some = ", ".join(found.missing[:5]) + (", …" if len(found.missing) > 5 else "")
            raise HostError(
                f"{image}: no folder has {len(found.missing)} wheels of its lock, and pip's no-index is set: {some}.",
                hint="Add the folder that has them: --wheelhouse FOLDER",
            )
