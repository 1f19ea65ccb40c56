"""The contents of real images: alike from every place, and the same as a container sees."""

import contextlib
import hashlib
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, container_of, ref_of
from tests.e2e.registries import registry
from torchbake.commands import _image_contents
from torchbake.commands._image_contents import inventory_of
from torchbake.commands._image_location import WithImageContents, find_image
from torchbake.contents.model import Inventory, LayerFile
from torchbake.engine.client import Engine
from torchbake.engine.export import ChunkReader

pytestmark = [pytest.mark.contents, pytest.mark.long]  # test_diff.py reads from an engine, a registry and an archive

TAG = "torchbake-test/contents:derived"
# Each way in which a layer changes the files below it, as builders of images write them.
DERIVED = """\
FROM {ref}
USER 0
RUN rm -rf /usr/share/perl /usr/bin/git && rm -r /opt/torchbake/throughput && mkdir /opt/torchbake/throughput \\
    && echo new > /opt/torchbake/throughput/new
RUN mkdir -p /made/here && head -c 3000000 /dev/urandom > /made/a && ln /made/a /made/b && ln -s ../made/a /made/c \\
    && truncate -s 5000000 /made/sparse && chown -R 1001:0 /made && chmod 4711 /made/here && mkfifo /made/pipe
RUN rm -r /made/here && echo file > /made/here && mv /made/b /made/d && chmod 600 /made/c && rm /made/sparse
COPY --chown=1:2 Dockerfile /lib/x86_64-linux-gnu/copied
"""
# An engine makes these for each container.
ITS_OWN = ("dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", ".dockerenv")
Entry = tuple[str, int, int, int, str]  # kind, mode, owner, group, content
MOST_SECONDS = 90  # for the gigabyte of the CPU image, on two busy cores; alone it takes 5


@pytest.fixture(scope="module")
def derived(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image on the CPU image, which the run's end removes; a containerd store keeps its attestation too."""
    folder = tmp_path_factory.mktemp("derived")
    (folder / "Dockerfile").write_text(DERIVED.format(ref=ref_of(CPU)))
    attested = ["--provenance=true"] if Engine(engine).containerd_store else []
    subprocess.run(["docker", "buildx", "build", "-q", *attested, "-t", TAG, folder], check=True, capture_output=True)
    return TAG


@contextlib.contextmanager
def pushed(engine: docker.DockerClient, ref: str, folder: Path) -> Iterator[str]:
    """Push an image to a separate registry, and stop the registry at the end of the block."""
    with registry(ROOT / ".torchbake/tools", folder) as running:
        name = f"{running.host}/team/image:1"
        engine.api.tag(ref, name)
        try:
            subprocess.run(["docker", "push", "-q", name], check=True, capture_output=True)
        finally:
            engine.api.remove_image(name)
        yield name


@pytest.fixture
def places(
    engine: docker.DockerClient, derived: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, str]]:
    """One image at every place, as people name it there."""
    ref = {"cpu": ref_of(CPU), "derived": derived}[request.param]
    folder = tmp_path / "layout"
    folder.mkdir()
    subprocess.run(["docker", "save", "-o", tmp_path / "saved.tar", ref], check=True)
    subprocess.run(["tar", "-xf", tmp_path / "saved.tar", "-C", folder], check=True)
    names = {"engine": ref, "archive": f"{tmp_path}/saved.tar", "layout": str(folder)}
    with pushed(engine, ref, tmp_path / "registry") as name:
        yield names | ({"store": CPU} if request.param == "cpu" else {}) | {"registry": name}


def read(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Inventory, float]:
    """Read an image with a separate cache, and return the duration in seconds, too."""
    monkeypatch.setattr(_image_contents, "cache_folder", lambda: cache)
    start = time.monotonic()
    args = WithImageContents(
        matrix=ROOT / "matrix.yaml",
        place=None,
        platform="",
        plain_http=False,
        quiet=True,
        verbose=False,
        progress="auto",
    )
    inventory = inventory_of(args, find_image(args, name))
    return inventory, time.monotonic() - start


@pytest.mark.parametrize("places", ["cpu", "derived"], indirect=True)
def test_an_image_is_alike_from_every_place(
    places: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inventories, seconds = {}, {}
    for place, name in places.items():
        inventories[place], seconds[place] = read(name, tmp_path / place, monkeypatch)
        again, cached = read(name, tmp_path / place, monkeypatch)
        assert again == inventories[place]
        assert cached < seconds[place]
    with capsys.disabled():
        print({place: f"{took:.1f} s" for place, took in seconds.items()}, end=" ")
    assert [place for place, took in seconds.items() if took > MOST_SECONDS] == []
    first = inventories["engine"]
    for inventory in inventories.values():
        assert inventory.files == first.files
        assert inventory.packages == first.packages
        assert inventory.platform == first.platform
        assert inventory.config == first.config
        assert [(layer.size, layer.step) for layer in inventory.layers] == [
            (one.size, one.step) for one in first.layers
        ]
    torch = next(package for package in first.packages if package.name == "torch")
    assert sum(first.visible[path].size for path in torch.files) > 100_000_000


@pytest.mark.parametrize("name", ["cpu", "derived"])
def test_the_visible_files_are_those_of_a_container(
    name: str, engine: docker.DockerClient, derived: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = {"cpu": ref_of(CPU), "derived": derived}[name]
    inventory, _ = read(ref, tmp_path, monkeypatch)
    expected = seen_by_a_container(engine, ref)
    visible = inventory.visible
    actual = {path: entry_of(file, visible) for path, file in visible.items() if is_comparable(path)}
    assert {path: actual.get(path) for path in expected} == expected
    assert actual.keys() == expected.keys()
    if name == "derived":
        below = len(engine.images.get(ref_of(CPU)).attrs["RootFS"]["Layers"])
        hidden = {file.path for file in inventory.files if file.hidden_by is not None and file.layer < below}
        assert {"usr/bin/git", "opt/torchbake/throughput"} <= hidden
        assert visible["usr/lib/x86_64-linux-gnu/copied"].uid == 1
        links = {file.path: (file.kind, file.size) for file in inventory.files if file.path in ("made/a", "made/b")}
        assert links["made/b"] in (("hardlink", 0), ("file", 3_000_000))
        assert [visible[path].size for path in ("made/a", "made/d")] == [3_000_000] * 2  # chmod has copied both


def entry_of(file: LayerFile, visible: Mapping[str, LayerFile]) -> Entry:
    content = visible[file.content].content if file.kind == "hardlink" else file.content
    kind = "file" if file.kind == "hardlink" else file.kind
    return kind, file.mode, file.uid, file.gid, "" if file.kind == "device" else content


def is_comparable(path: str) -> bool:
    return not any(path == own or path.startswith(f"{own}/") for own in ITS_OWN)


def seen_by_a_container(engine: docker.DockerClient, ref: str) -> dict[str, Entry]:
    """Return the files of a new container, as the engine exports them."""
    entries = dict[str, Entry]()
    with container_of(engine, ref) as container:
        chunks = ChunkReader(engine.api.export(container, chunk_size=2**20))
        with tarfile.open(fileobj=chunks, mode="r|") as archive:  # type: ignore[call-overload]
            for info in archive:
                path = info.name.removeprefix("./").rstrip("/")
                if info.islnk():
                    entries[path] = entries[info.linkname.removeprefix("./")]
                    continue
                kind = "folder" if info.isdir() else "symlink" if info.issym() else "file" if info.isreg() else "device"
                content = info.linkname if info.issym() else ""
                if info.isreg():
                    content = hashlib.file_digest(archive.extractfile(info), "sha256").hexdigest()
                mode = 0o777 if info.issym() else info.mode & 0o7777
                entries[path] = (kind, mode, info.uid, info.gid, content)
    return {path: entry for path, entry in entries.items() if path and is_comparable(path)}
