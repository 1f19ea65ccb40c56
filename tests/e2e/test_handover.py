"""Layers put where the engine would have put them: nothing is copied, unpacked, kept for good, or left behind."""

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import ROOT, container_of
from tests.e2e.waiting import until
from tests.unit.layouts import Entry, archive, file, put
from torchbake.engine.client import connect
from torchbake.engine.containerd import STORE, SWITCH, find_containerd
from torchbake.engine.content_store import has_blob
from torchbake.engine.handover import Handover
from torchbake.engine.runner import read_history
from torchbake.oci.layer_archive import write_layer
from torchbake.oci.layer_order import Layer, image_of
from torchbake.oci.layer_tree import Member, tree_of
from torchbake.oci.layout import Layout
from torchbake.oci.manifest import Blob

pytestmark = pytest.mark.engine

PLATFORM = {"architecture": "amd64", "os": "linux"}
_MUCH = 3_000_000  # bytes of a file that nobody can compress
KILLED = """\
import sys, time
from pathlib import Path
from tests.e2e.test_handover import image
from torchbake.engine.client import connect
from torchbake.engine.handover import Handover

handover = Handover(connect())
made = image(Path(sys.argv[1]), handover, sys.argv[2])
with handover.put(made.layout, made.digest):
    print(handover.trees(), made.digest, flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An image of two layers in a layout; the inode is of the upper one's file as it was written."""

    layout: Layout
    digest: str
    layers: tuple[Layer, ...]
    inode: int

    @property
    def blob(self) -> Blob:
        """The upper layer, packed."""
        return self.layers[1].blob


def image(folder: Path, handover: Handover, name: str) -> Made:
    """Pack an image whose layers have a folder of this name each; their files go where the engine would unpack them."""
    layout, trees = Layout(folder=folder), handover.trees()
    assert trees
    layout.blobs.mkdir(parents=True)
    layers = []
    for number in (1, 2):
        layer = write_layer(folder / "layer", members(f"{name}-{number}"), threads=1, trees=trees)
        (folder / "layer").rename(layout.path(layer.blob.digest))
        layers.append(layer)
    inode = (tree_of(trees, layers[1].diff_id) / f"{name}-2/file").stat().st_ino
    return Made(layout=layout, digest=put_together(layout, layers), layers=tuple(layers), inode=inode)


def put_together(layout: Layout, layers: Sequence[Layer]) -> str:
    """The digest of an image of layers that a layout has, from the lowest up."""
    manifest, config = image_of([(f"layer {number}", layer) for number, layer in enumerate(layers)])
    layout.path(manifest.config.digest).write_bytes(config)
    layout.path(manifest.digest).write_bytes(manifest.data)
    return manifest.digest


def members(name: str) -> Iterator[Member]:
    for path, kind, data in ((name, tarfile.DIRTYPE, None), (f"{name}/file", tarfile.REGTYPE, content(name))):
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size = kind, 0o755, len(data or b"")
        yield info, None if data is None else lambda data=data: io.BytesIO(data)  # type: ignore[misc]


def content(name: str) -> bytes:
    """Of a layer's file."""
    return name.encode() + random.Random(name).randbytes(_MUCH)


@pytest.fixture
def name() -> str:
    """A name that no other layer has."""
    return f"probe-{uuid.uuid4().hex}"


@pytest.fixture
def handover(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handover]:
    monkeypatch.setenv(SWITCH, "1")
    if find_containerd(connect()) is None:
        pytest.skip("only root can write an engine's layers, beside a containerd of this machine")
    found = Handover(connect())
    yield found
    found.close()


def test_by_default_ctr_is_not_started_and_the_engine_unpacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: docker.DockerClient, name: str
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    started, ctr = tmp_path / "started", tmp_path / "bin/ctr"
    ctr.parent.mkdir()
    ctr.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    ctr.chmod(0o755)
    monkeypatch.setenv("PATH", str(ctr.parent), prepend=os.pathsep)
    layout, handover = Layout(folder=tmp_path / "layout"), Handover(connect())
    digest = put(layout, archive(file(f"{name}-2/file", content(f"{name}-2"))), config=PLATFORM)
    assert handover.trees() is None
    with handover.put(layout, digest):
        connect().load(layout.archive(digest, has_blob(connect())))
    handover.close()
    assert upper_file(engine, digest, name)[1] == content(f"{name}-2")
    connect().remove([digest])
    assert not started.exists()


def test_history_is_read_after_another_image_with_the_same_layers_went(tmp_path: Path, name: str) -> None:
    layout, engine = Layout(folder=tmp_path), connect()
    layers = [archive(file(f"{name}-{number}", content(f"{name}-{number}"))) for number in (1, 2)]
    one, same = (put(layout, *layers, config={**PLATFORM, "author": author}) for author in ("one", "other"))
    for digest in (one, same):
        engine.load(layout.archive(digest))
    engine.remove([one])
    try:
        assert len(read_history(engine, same)) == 2
        assert engine.size_on_disk(same) > 2 * _MUCH
        assert not engine.client.containers.list(all=True, filters={"ancestor": same}, ignore_removed=True)
    finally:
        engine.remove([same])


def unpacked(folder: Path, name: str) -> list[int]:
    """The inodes of an upper layer's file wherever the engine has it; ``folder`` is any snapshot's."""
    return [path.stat().st_ino for path in folder.parent.parent.glob(f"*/fs/{name}-2/file")]


def is_one_file(path: Path, blob: Blob) -> bool:
    """Whether a packed layer is the engine's own file too, where a file can have names in both places."""
    found = find_containerd(connect())
    assert found
    theirs = found.root / STORE / "blobs" / blob.digest.replace(":", "/")
    return path.samefile(theirs) or path.stat().st_dev != theirs.stat().st_dev


def test_the_engine_has_the_files_that_were_written_and_keeps_them_for_its_image_alone(
    tmp_path: Path, handover: Handover, engine: docker.DockerClient, name: str
) -> None:
    made, ours = image(tmp_path, handover, name), handover.trees()
    assert ours
    with handover.put(made.layout, made.digest):
        sent = b"".join(made.layout.archive(made.digest, has_blob(connect())))
        assert len(sent) < _MUCH
        assert is_one_file(made.layout.path(made.blob.digest), made.blob)
        connect().load(iter([sent]))
    handover.close()
    until(lambda: not ours.exists(), 30)
    # Whatever is collected when a layer goes, these are not: another image comes and goes meanwhile.
    other = Handover(connect())
    gone = image(tmp_path / "other", other, f"{name}-other")
    with other.put(gone.layout, gone.digest):
        pass  # nobody takes it
    other.close()
    until(lambda: not unpacked(ours, f"{name}-other") and not has_blob(connect())(gone.blob), 30)
    assert has_blob(connect())(made.blob)
    assert unpacked(ours, name) == [made.inode]
    member, held = upper_file(engine, made.digest, name)
    assert (member.mode, member.uid, member.gid, member.mtime) == (0o755, 0, 0, 0)
    assert held == content(f"{name}-2")
    engine.api.remove_image(made.digest, force=True)
    until(lambda: not unpacked(ours, name) and not has_blob(connect())(made.blob), 30)


def upper_file(engine: docker.DockerClient, digest: str, name: str) -> tuple[tarfile.TarInfo, bytes]:
    """The file of an upper layer as a container of the image has it."""
    with container_of(engine, digest) as container:
        pieces, _ = engine.api.get_archive(container, f"/{name}-2/file")
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as copied:
            (member,) = copied
            opened = copied.extractfile(member)
            assert opened is not None
            return member, opened.read()


def folder_of(name: str, *, uid: int = 0) -> Entry:
    return file(name, type=tarfile.DIRTYPE, mode=0o750, uid=uid, gid=uid)


def test_a_layer_on_other_lower_ones_has_the_same_files_there_too(
    tmp_path: Path, handover: Handover, engine: docker.DockerClient, name: str
) -> None:
    made, ours = image(tmp_path / "one", handover, name), handover.trees()
    other = image(tmp_path / "other", handover, f"{name}-other")
    layout = Layout(folder=tmp_path / "both")
    shutil.copytree(made.layout.folder, layout.folder)
    shutil.copytree(other.layout.folder, layout.folder, dirs_exist_ok=True)
    mixed = put_together(layout, (other.layers[0], made.layers[1]))
    assert ours
    for digest in (made.digest, other.digest, mixed):
        with handover.put(layout, digest):
            connect().load(layout.archive(digest, has_blob(connect())))
    assert unpacked(ours, name) == [made.inode] * 2
    for digest in (made.digest, other.digest):
        engine.api.remove_image(digest, force=True)
    until(lambda: unpacked(ours, name) == [made.inode], 30)
    assert upper_file(engine, mixed, name)[1] == content(f"{name}-2")
    engine.api.remove_image(mixed, force=True)
    until(lambda: not unpacked(ours, name), 30)


def test_a_layer_that_the_engine_unpacked_is_linked_above_other_layers_as_it_is(
    tmp_path: Path, handover: Handover, engine: docker.DockerClient, name: str
) -> None:
    """With the owners of its folders, its links, and what it hides of the layers below."""
    layout, ours = Layout(folder=tmp_path), handover.trees()
    assert ours
    lower = [archive(folder_of("d"), file(f"d/{each}", b"below"), file("gone")) for each in ("one", "other")]
    upper = archive(
        folder_of("d", uid=1001), file("d/.wh..wh..opq"), file(".wh.gone"),
        folder_of(f"{name}-2", uid=1001), file(f"{name}-2/file", content(name)),
        file(f"{name}-2/link", type=tarfile.SYMTYPE, linkname="file"),
    )  # fmt: skip
    images = [put(layout, each, upper, config=PLATFORM) for each in lower]
    alone = [put(layout, each, config=PLATFORM) for each in lower]
    for digest in (*alone, *images):
        with handover.put(layout, digest):
            connect().load(layout.archive(digest, has_blob(connect())))
    inodes = unpacked(ours, name)
    assert (len(inodes), len({*inodes})) == (2, 1)
    for digest in images:
        with container_of(engine, digest) as container:
            exported = b"".join(engine.api.export(container))
        with tarfile.open(fileobj=io.BytesIO(exported)) as whole:
            found = {info.name: info for info in whole}
        assert "gone" not in found
        assert [path for path in found if path.startswith("d/")] == []
        assert {path: (found[path].uid, found[path].mode) for path in ("d", f"{name}-2")} == dict.fromkeys(
            ("d", f"{name}-2"), (1001, 0o750)
        )
        assert found[f"{name}-2/link"].linkname == "file"
    connect().remove([*alone, *images])
    until(lambda: not unpacked(ours, name), 30)


def test_an_image_keeps_the_layers_that_another_had_before_when_that_one_goes(
    tmp_path: Path, handover: Handover, engine: docker.DockerClient, name: str
) -> None:
    layout, ours = Layout(folder=tmp_path), handover.trees()
    assert ours
    layers = [archive(folder_of(f"{name}-{number}"), file(f"{name}-{number}/file")) for number in (1, 2)]
    one, same = (put(layout, *layers, config={**PLATFORM, "author": author}) for author in ("one", "other"))
    collected = put(layout, layers[0], archive(folder_of(f"{name}-other")), config=PLATFORM)
    for digest in (one, same, collected):
        with handover.put(layout, digest):
            connect().load(layout.archive(digest, has_blob(connect())))
    connect().remove([one, collected])
    until(lambda: not [*ours.parent.parent.glob(f"*/fs/{name}-other")], 30)
    # A container would have them unpacked again.
    assert len(engine.images.get(same).history()) == 2
    connect().remove([same])


def test_what_a_killed_run_leaves_the_next_one_removes(tmp_path: Path, handover: Handover, name: str) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), name], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert killed.stdout
        trees, digest = killed.stdout.readline().split()
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
    left, manifest = Path(trees), Layout(folder=tmp_path / "killed").find(digest)
    assert manifest
    (_, blob), has = manifest.layers, has_blob(connect())
    assert left.is_dir()
    assert len(unpacked(left, name)) == 1
    assert has(blob)
    assert handover.trees()
    until(lambda: not left.exists() and not unpacked(left, name) and not has(blob), 30)


def test_a_layer_whose_files_are_not_there_is_left_to_the_engine_with_those_above(
    tmp_path: Path, handover: Handover, name: str
) -> None:
    made, ours = image(tmp_path, handover, name), handover.trees()
    assert ours
    tree_of(ours, made.layers[0].diff_id).rename(ours / "elsewhere")
    with handover.put(made.layout, made.digest):
        connect().load(made.layout.archive(made.digest))
    assert [inode for inode in unpacked(ours, name) if inode != made.inode] != []
    connect().remove([made.digest])


def test_a_blob_that_is_not_what_its_digest_says_is_not_taken(tmp_path: Path, handover: Handover, name: str) -> None:
    made, has = image(tmp_path, handover, name), has_blob(connect())
    found, path = find_containerd(connect()), made.layout.path(made.blob.digest)
    assert found
    before = {*(found.root / STORE / "ingest").iterdir()}
    damaged = path.read_bytes()[:-4] + bytes(4)
    path.write_bytes(damaged)
    with handover.put(made.layout, made.digest):
        assert not has(made.blob)
    assert path.read_bytes() == damaged
    begun = {*(found.root / STORE / "ingest").iterdir()} - before
    assert sum((folder / "data").stat().st_size for folder in begun) == 0
