"""The image under test, and what its row in the matrix promises."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import docker
from docker.errors import ImageNotFound

from tests.images.dockerfile import Promise, promise_of
from torchbake.checks.gpu import family_of
from torchbake.engine.client import Engine
from torchbake.engine.runner import read_history
from torchbake.errors import TorchbakeError
from torchbake.lock.image_lock import find_lock
from torchbake.lock.lockfile import Lock
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import Spec, User
from torchbake.matrix.tags import engine_tags
from torchbake.oci.labels import LABEL
from torchbake.render.dockerfile import render

PROGRAM = "/volume-permissions"  # of an init image
NO_ROW = "no row of matrix.yaml describes this image"


class NoSubjectError(Exception):
    """There is no such image, or no such row; the message says the next step."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """An image's row: its spec, its lock, and the whole matrix."""

    spec: Spec
    project: Project

    @cached_property
    def lock(self) -> Lock | None:
        """None for an init image. Raises LockError when the lock is missing or out of date."""
        return find_lock(self.project.root, self.spec)

    @cached_property
    def promise(self) -> Promise:
        return promise_of(render(self.spec, self.lock, self.project.templates))

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags of the image in an engine."""
        return engine_tags(self.spec, self.project.tags[self.spec.id])


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An image in the engine. ``row`` is None if the matrix has no row for it.

    ``origin`` is the torchbake image that a derived image is FROM, else None. The derived image may add to it.
    """

    ref: str
    attributes: dict[str, Any]
    history: list[dict[str, Any]]
    row: Row | None
    origin: str = ""

    @property
    def digest(self) -> str:
        return str(self.attributes["Id"])

    @property
    def id(self) -> str:
        """Its row's id; empty without a row."""
        return self.row.spec.id if self.row else ""

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.attributes["Config"])

    @property
    def labels(self) -> dict[str, str]:
        return self.config.get("Labels") or {}

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.config.get("Env") or () if "=" in pair)

    @property
    def user(self) -> User:
        """Return the image's user by its row, or by its own settings if it has no row."""
        if self.row:
            return self.row.spec.own.user
        usual, uid = User(), self.config.get("User", "").partition(":")[0]
        name = self.environment.get("HOME", usual.home).rpartition("/")[2]
        return User(uid=int(uid) if uid.isdecimal() else usual.uid, name=name)

    @property
    def tags(self) -> list[str]:
        return list(self.attributes.get("RepoTags") or ())

    @property
    def diff_ids(self) -> list[str]:
        return list(self.attributes["RootFS"].get("Layers") or ())

    @property
    def uncompressed_bytes(self) -> int:
        """The bytes of all layers on disk."""
        return sum(int(step["Size"]) for step in self.history)

    @property
    def kind(self) -> str:
        """``pytorch`` or ``init``: the row's; without one, whether it runs like an init image."""
        if self.row:
            return self.row.spec.kind
        return "init" if self.config.get("Entrypoint") == [PROGRAM] else "pytorch"

    @property
    def family(self) -> str:
        """``cuda`` for one that can use a GPU, else ``cpu``."""
        return family_of(self.row.spec if self.row else None, self.config)


def find_subject(
    client: docker.DockerClient,
    ref: str,
    row: str | None,
    matrix: Path,
    *,
    origin: str | None = None,
    digest: str | None = None,
    no_row: bool = False,
) -> Subject:
    """Find the image, with the row of the id ``row``, or of the id in its label; with ``no_row`` without one.

    Raises NoSubjectError, also if the image does not have the digest ``digest``.
    """
    try:
        image = client.images.get(ref)
    except ImageNotFound:
        raise NoSubjectError(f"{ref}: no such image in the engine. Build it (nox -s build), or pull it.") from None
    if digest and image.id != digest:
        raise NoSubjectError(f"{ref} was {digest}, and is {image.id} by now. Test it again.")
    labels = image.attrs["Config"].get("Labels") or {}
    name = row or labels.get(f"{LABEL}.id", "")
    value = None if no_row else _find_row(name, matrix)
    if row and value is None:
        raise NoSubjectError(f"{matrix} has no image {row}. `nox -s list -- all` shows what it has.")
    return Subject(
        ref=ref, attributes=image.attrs, history=read_history(Engine(client), ref), row=value, origin=origin or ""
    )


def _find_row(name: str, matrix: Path) -> Row | None:
    try:
        project = load_project(matrix)
    except TorchbakeError as error:
        raise NoSubjectError(f"{matrix}: {error.message}") from None
    for spec in project.expansion.specs:
        if spec.id == name:
            return Row(spec=spec, project=project)
    return None


def cuda_major(spec: Spec) -> int | None:
    """The CUDA major that a row asks for."""
    cuda = spec.versions.get("cuda")
    return int(cuda.partition(".")[0]) if cuda else None
