"""What goes along to hosts: each image's lock, looked at before any host is; wheels; uv."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.errors import HostError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hosts.chosen import Chosen
from torchbake.hosts.variables import Carried, variables
from torchbake.hosts.wheels import Wheels, download, find_wheels
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.labels import versions_in
from torchbake.render.dockerfile import promised_labels
from torchbake.ui import console


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Where wheels are from. ``folders`` come before those of pip's settings.

    ``offline``: the hosts reach no index, so every wheel goes along; ``dry``: nothing is downloaded for that.
    """

    project: Project
    pip: PipConfig
    folders: Sequence[Path] = ()
    offline: bool = False
    dry: bool = False

    def variables(self, chosen: Chosen) -> dict[str, Any]:
        """The variables of `apply`.

        Raises LockError for a lock that is missing or out of date, and HostError where a wheel is nowhere that hosts
        cannot do without.
        """
        import uv  # noqa: PLC0415 - only who installs needs it

        wheels = {spec.id: self._wheels(spec) for spec in chosen.images}
        if (self.offline and not self.dry) or self.pip.no_index:
            check_complete(wheels)
        carried = Carried(locks=self.project.root / "images", uv=Path(uv.find_uv_bin()), wheels=wheels)
        return variables(chosen, carried, self.pip)

    def _wheels(self, spec: ImageSpec) -> Wheels:
        lock, downloads = read_lock(self.project.root, spec), self.project.state / "wheels/downloaded"
        folders = (*self.folders, *self.pip.local_folders, *([downloads] if downloads.is_dir() else []))
        found = find_wheels(spec, lock, folders, self.project.state)
        if not (self.offline and found.missing) or self.pip.no_index or self.dry:
            return found
        console.say(f"{spec.id}: {len(found.missing)} wheels that go along are downloaded first", style="dim")
        download(spec, [lock.pins[name] for name in found.missing], self.pip, downloads)
        return find_wheels(spec, lock, (*folders, downloads), self.project.state)


def expected_of(project: Project, spec: ImageSpec) -> dict[str, str | None]:
    """The versions that an image's labels promise, and so a host's. Raises LockError."""
    return versions_in(promised_labels(spec, read_lock(project.root, spec)))


def check_complete(wheels: Mapping[str, Wheels]) -> None:
    """Raises HostError for an image with wheels that are in no folder, with their names."""
    for image, found in wheels.items():
        if found.missing:
            some = ", ".join(found.missing[:5]) + (", …" if len(found.missing) > 5 else "")
            raise HostError(
                f"{image}: {len(found.missing)} wheels of its lock are in no folder of this machine: {some}.",
                hint="Name the folder that has them: --wheelhouse FOLDER",
            )
