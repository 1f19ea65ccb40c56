"""Layers whose files are put where the engine would unpack them: nothing is unpacked, kept for good, or left behind."""

import io
import signal
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.waiting import until
from torchbake.engine.client import connect
from torchbake.engine.containerd import find_containerd
from torchbake.engine.snapshots import Snapshots
from torchbake.oci.layer_archive import write_layer
from torchbake.oci.layer_order import image_of
from torchbake.oci.layer_tree import Member, tree_of
from torchbake.oci.layout import Layout

pytestmark = pytest.mark.engine

KILLED = """\
import sys, time
from pathlib import Path
from tests.e2e.test_snapshots import image
from torchbake.engine.client import connect
from torchbake.engine.snapshots import Snapshots

snapshots = Snapshots(connect())
made = image(Path(sys.argv[1]), snapshots, sys.argv[2])
with snapshots.put(made.config, made.diff_ids):
    print(snapshots.folder(), flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An image of two layers in a layout, with the inode of a file that was written for the upper one."""

    layout: Layout
    digest: str
    config: str
    diff_ids: tuple[str, ...]
    inode: int


def image(folder: Path, snapshots: Snapshots, name: str) -> Made:
    """Pack an image whose layers have a folder of this name each; their files go where the engine would unpack them."""
    layout, trees = Layout(folder=folder), snapshots.folder()
    assert trees
    layout.blobs.mkdir(parents=True)
    layers = []
    for number in (1, 2):
        layer = write_layer(folder / "layer", members(f"{name}-{number}"), threads=1, trees=trees)
        (folder / "layer").rename(layout.path(layer.blob.digest))
        layers.append((f"layer {number}", layer))
    manifest, config = image_of(layers)
    layout.path(manifest.config.digest).write_bytes(config)
    layout.path(manifest.digest).write_bytes(manifest.data)
    diff_ids = tuple(layer.diff_id for _, layer in layers)
    inode = (tree_of(trees, diff_ids[1]) / f"{name}-2/file").stat().st_ino
    return Made(
        layout=layout, digest=manifest.digest, config=manifest.config.digest, diff_ids=diff_ids, inode=inode
    )  # fmt: skip


def members(name: str) -> Iterator[Member]:
    for path, kind, data in ((name, tarfile.DIRTYPE, None), (f"{name}/file", tarfile.REGTYPE, name.encode())):
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size = kind, 0o755, len(data or b"")
        yield info, None if data is None else lambda data=data: io.BytesIO(data)  # type: ignore[misc]


@pytest.fixture
def name() -> str:
    """A name that no other layer has."""
    return f"probe-{uuid.uuid4().hex}"


@pytest.fixture
def snapshots() -> Iterator[Snapshots]:
    if find_containerd(connect()) is None:
        pytest.skip("only root can write an engine's layers, beside a containerd of this machine")
    found = Snapshots(connect())
    yield found
    found.close()


def unpacked(folder: Path, name: str) -> list[int]:
    """The inodes of an upper layer's file wherever the engine has it; ``folder`` is any snapshot's."""
    return [path.stat().st_ino for path in folder.parent.parent.glob(f"*/fs/{name}-2/file")]


def test_the_engine_has_the_files_that_were_written_and_keeps_them_for_its_image_alone(
    tmp_path: Path, snapshots: Snapshots, engine: docker.DockerClient, name: str
) -> None:
    made, ours = image(tmp_path, snapshots, name), snapshots.folder()
    assert ours
    with snapshots.put(made.config, made.diff_ids):
        connect().load(made.layout.archive(made.digest))
    snapshots.close()
    until(lambda: not ours.exists(), 30)
    # Whatever is collected when a layer goes, these are not: another image comes and goes meanwhile.
    other = Snapshots(connect())
    gone = image(tmp_path / "other", other, f"{name}-other")
    with other.put(gone.config, gone.diff_ids):
        pass  # nobody takes it
    other.close()
    until(lambda: not unpacked(ours, f"{name}-other"), 30)
    assert unpacked(ours, name) == [made.inode]
    container = engine.api.create_container(made.digest, ["true"])["Id"]
    try:
        pieces, _ = engine.api.get_archive(container, f"/{name}-2/file")
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            (member,) = archive
            content = archive.extractfile(member)
            assert (member.mode, member.uid, member.gid, member.mtime) == (0o755, 0, 0, 0)
            assert content is not None
            assert content.read() == f"{name}-2".encode()
    finally:
        engine.api.remove_container(container, force=True)
        engine.api.remove_image(made.digest, force=True)
    until(lambda: not unpacked(ours, name), 30)


def test_what_a_killed_run_leaves_the_next_one_removes(tmp_path: Path, snapshots: Snapshots, name: str) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), name], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert killed.stdout
        left = Path(killed.stdout.readline().strip())
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
    assert left.is_dir()
    assert len(unpacked(left, name)) == 1
    assert snapshots.folder()
    until(lambda: not left.exists() and not unpacked(left, name), 30)


def test_a_layer_whose_files_are_not_there_is_left_to_the_engine_with_those_above(
    tmp_path: Path, snapshots: Snapshots, name: str
) -> None:
    made, ours = image(tmp_path, snapshots, name), snapshots.folder()
    assert ours
    tree_of(ours, made.diff_ids[0]).rename(ours / "elsewhere")
    with snapshots.put(made.config, made.diff_ids):
        connect().load(made.layout.archive(made.digest))
    assert [inode for inode in unpacked(ours, name) if inode != made.inode] != []
    connect().remove([made.digest])
