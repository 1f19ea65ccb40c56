"""Prepare the files for hosts before any host is reached: the lock of each image, wheels, uv."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.errors import HostError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hosts.host_images import HostImages
from torchbake.hosts.variables import HostFiles, variables
from torchbake.hosts.wheels import Wheels, download, find_wheels
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.labels import versions_in
from torchbake.render.dockerfile import promised_labels
from torchbake.ui import console
from torchbake.ui.steps import step


@dataclass(frozen=True, kw_only=True)
class HostPreparation:
    """The sources of wheels. The ``folders`` win over those of pip's settings.

    If ``offline``, the hosts reach no index, so all wheels are copied to them. If ``dry``, no wheel is downloaded.
    """

    project: Project
    pip: PipConfig
    folders: Sequence[Path] = ()
    offline: bool = False
    dry: bool = False

    def variables(self, images: HostImages) -> dict[str, Any]:
        """Return the variables of `apply`.

        Raises LockError if a lock is missing or out of date, and HostError if the hosts need a wheel that is missing.
        """
        import uv  # noqa: PLC0415 - only installations need it

        wheels = {spec.id: self._wheels(spec) for spec in images.images}
        if (self.offline and not self.dry) or self.pip.no_index:
            check_complete(wheels)
        files = HostFiles(locks=self.project.root / "images", uv=Path(uv.find_uv_bin()), wheels=wheels)
        return variables(images, files, self.pip)

    def _wheels(self, spec: ImageSpec) -> Wheels:
        lock, downloads = read_lock(self.project.root, spec), self.project.state / "wheels/downloaded"
        if lock.packages:
            raise HostError(
                f"matrix.yaml:{spec.line}: {spec.id} has packages that are built of a project's files "
                f"({', '.join(lock.packages)}), and hosts get locked wheels alone.",
                hint="Name an image without a project, and install the project on the hosts by its own lock.",
            )
        folders = (*self.folders, *self.pip.local_folders, *([downloads] if downloads.is_dir() else []))
        wheels = find_wheels(spec, lock, folders, self.project.state)
        if not (self.offline and wheels.missing) or self.pip.no_index or self.dry:
            return wheels
        console.say(f"{spec.id}: {len(wheels.missing)} wheels for the hosts are downloaded first", style="dim")
        with step(f"{spec.id}: downloading {len(wheels.missing)} wheels"):
            download(spec, [lock.pins[name] for name in wheels.missing], self.pip, downloads)
        return find_wheels(spec, lock, (*folders, downloads), self.project.state)


def expected_of(project: Project, spec: ImageSpec) -> dict[str, str | None]:
    """Return the versions in an image's labels, which a host must have too. Raises LockError.

    A host of another platform has the same versions, but its torch may have no local version (``+cpu``).
    """
    versions = versions_in(promised_labels(spec, read_lock(project.root, spec)))
    if len(project.expansion.groups.of(spec)) > 1:
        versions["torch"] = spec.torch
    return versions


def check_complete(wheels: Mapping[str, Wheels]) -> None:
    """Check that all wheels are in folders. Raises HostError with the names of missing wheels."""
    for image, image_wheels in wheels.items():
        if image_wheels.missing:
            some = ", ".join(image_wheels.missing[:5]) + (", …" if len(image_wheels.missing) > 5 else "")
            raise HostError(
                f"{image}: {len(image_wheels.missing)} wheels of its lock are in no folder of this machine: {some}.",
                hint="Name the folder that has them: --wheelhouse FOLDER",
            )
