"""Volumes to try an init image on: filled and read through the engine's archives, because the image has no shell.

Podman shows no volumes of a container that has ended, so containers for archives are never started.
"""

import contextlib
import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from docker.errors import NotFound
from docker.models.containers import Container
from docker.models.volumes import Volume

from tests.images.containers import Containers
from tests.images.subject import PROGRAM
from torchbake.engine import podman
from torchbake.engine.runner import ContainerEnd

_SUMMARY = re.compile(r"(\d+) entries, (\d+) changed, (\d+) failed, (\d+) skipped")


@dataclass(frozen=True, kw_only=True)
class Put:
    """A file, folder (no text) or symlink (a target) to put into a volume; root's unless it says otherwise."""

    name: str
    text: str | None = None
    target: str | None = None
    owner: int = 0
    mode: int = 0o755


@dataclass(frozen=True, kw_only=True)
class Look:
    """A file of a volume after the run."""

    uid: int
    gid: int
    mode: int
    target: str

    @property
    def shown(self) -> str:
        return f"{self.uid}:{self.gid} {self.mode:04o}"


class Volumes:
    """Makes volumes, and runs the image under test on them; thread-safe as Containers is."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers

    @contextlib.contextmanager
    def make(self, contents: Iterable[Put]) -> Iterator[Volume]:
        volume = self._containers.volume()
        try:
            self.fill(volume, contents)
            yield volume
        finally:
            with contextlib.suppress(NotFound):
                volume.remove(force=True)

    def fill(self, volume: Volume, contents: Iterable[Put]) -> None:
        with self._containers.created("--version", volumes=mounts({"/data": volume})) as container:
            container.put_archive("/data", _archive(contents))

    def look(self, volume: Volume) -> dict[str, Look]:
        """Everything in a volume by its name, with uids as the container sees them; "" is the volume itself.

        An engine with user namespaces (`userns-remap`) archives files with the host's uids. The image's program belongs
        to the container's root, so its owner is where the container's uids begin on the host.
        """
        if self._containers.podman:
            return _look(_exported(volume), 0, 0)
        with self._containers.created("--version", volumes=mounts({"/data": volume})) as container:
            root = _members(container, PROGRAM)[0]
            matches = {member.name.partition("/")[2]: member for member in _members(container, "/data")}
            return _look(matches, root.uid, root.gid)

    def run(self, *arguments: str, at: Mapping[str, Volume], **options: Any) -> ContainerEnd:
        """Run the init image with volumes mounted, to its end."""
        return self._containers.run(*arguments, volumes=mounts(at), **options)


def mounts(at: Mapping[str, Volume]) -> dict[str, dict[str, str]]:
    return {str(volume.name): {"bind": path, "mode": "rw"} for path, volume in at.items()}


def counts(end: ContainerEnd) -> dict[str, int]:
    """Parse the counts in the last line of a run; empty if it has none."""
    match, names = _SUMMARY.search(end.stderr), ("entries", "changed", "failed", "skipped")
    return dict(zip(names, map(int, match.groups()), strict=True)) if match else {}


def _look(members: Mapping[str, tarfile.TarInfo], first_uid: int, first_gid: int) -> dict[str, Look]:
    return {
        name: Look(uid=one.uid - first_uid, gid=one.gid - first_gid, mode=one.mode & 0o7777, target=one.linkname)
        for name, one in members.items()
    }


def _exported(volume: Volume) -> dict[str, tarfile.TarInfo]:
    """A volume of podman, whose archives of containers have no owners. Skips the check if it exports none."""
    data = podman.exported_volume(str(volume.name))
    if data is None:
        pytest.skip("this podman hides who owns the files of a volume; 5.6 and later show it")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive.getmembers()}


def _members(container: Container, path: str) -> list[tarfile.TarInfo]:
    chunks, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        return archive.getmembers()


def _archive(contents: Iterable[Put]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for put in contents:
            member = tarfile.TarInfo(put.name)
            member.uid = member.gid = put.owner
            member.mode = put.mode
            body = (put.text or "").encode()
            if put.target is not None:
                member.type, member.linkname = tarfile.SYMTYPE, put.target
            elif put.text is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return data.getvalue()
