"""Images that the engine pulls from this process: what it asks for, which names stay, and what happens if it cannot."""

import contextlib
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, container_of
from tests.e2e.test_image_check import UNREADABLE
from tests.e2e.waiting import until
from tests.unit.layouts import archive, blobs_of, damage, file, put, sha256
from torchbake.build.image_store import Store
from torchbake.engine import loopback
from torchbake.engine.client import Engine, connect
from torchbake.engine.image_check import check_image
from torchbake.engine.leftovers import loopback_path, remove_leftovers
from torchbake.engine.loopback import Loopback
from torchbake.errors import EngineError
from torchbake.store.layout import Layout
from torchbake.store.layout_server import LayoutServer

pytestmark = pytest.mark.engine

REPOSITORY = "torchbake-test/loopback"
PLATFORM = {"architecture": "amd64", "os": "linux"}
KILLED = """\
import sys, time
from pathlib import Path
from torchbake.engine.client import connect
from torchbake.engine.loopback import Loopback
from torchbake.store.layout import Layout

assert Loopback(connect(), print).pull(Layout(folder=Path(sys.argv[1])), sys.argv[2])
print("pulled", flush=True)
time.sleep(600)
"""


@pytest.fixture
def engine() -> Engine:
    return connect()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path / "layout")


@pytest.fixture
def pulling(engine: Engine, layout: Layout) -> Iterator[Loopback]:
    """An engine that reaches this process."""
    lines: list[str] = []
    with contextlib.closing(Loopback(engine, lines.append)) as pulling:
        if not pulling.pull(layout, put(layout, archive(file("any")), config=PLATFORM)):
            elsewhere = "name=rootless" in f"{engine.info.get('SecurityOptions')}"
            assert elsewhere or not engine.address.local, lines
            pytest.skip(f"{lines}")
        yield pulling


def names(engine: Engine, part: str = "") -> set[str]:
    """The names with this part of images that processes of this machine served; by default those of this process."""
    entries = engine.client.api.images(filters={"reference": "127.0.0.1:*/torchbake/*/*"})
    part = part or f"/{loopback_path('')}"
    return {name for entry in entries for name in entry.get("RepoDigests") or () if part in name}


def id_of(engine: Engine, layout: Layout, digest: str) -> str:
    """The ID of an image in the engine."""
    manifest = layout.find(digest)
    assert manifest
    return engine.id_of(manifest)


def test_a_pulled_image_keeps_its_tag_and_no_other_name(engine: Engine, layout: Layout, pulling: Loopback) -> None:
    before, tag = names(engine), uuid.uuid4().hex
    layer = archive(file(uuid.uuid4().hex, b"x" * 9999))
    digest = put(layout, layer, config={**PLATFORM, "config": {"Labels": {"a": "b"}}})
    assert pulling.pull(layout, digest)
    image, name = id_of(engine, layout, digest), f"{REPOSITORY}:{tag}"
    try:
        engine.tag(image, REPOSITORY, [tag])
        pulling.release(digest)
        assert names(engine) == before
        assert engine.find([name]) == image
        assert engine.config(name)["Labels"] == {"a": "b"}
        check_image(engine, image, layers=[sha256(layer)])
    finally:
        engine.remove([name])


def test_a_layer_that_the_engine_has_is_not_asked_for_again(engine: Engine, layout: Layout, pulling: Loopback) -> None:
    lower, upper = (archive(file(uuid.uuid4().hex, uuid.uuid4().bytes * 999)) for _ in range(2))
    part, whole = put(layout, lower, config=PLATFORM), put(layout, lower, upper, config=PLATFORM)
    assert pulling.pull(layout, part)
    path, _ = blobs_of(layout, part)
    damage(path, is_seen=False)  # the engine would not take it
    assert pulling.pull(layout, whole)
    check_image(engine, id_of(engine, layout, whole))


def test_the_next_run_removes_the_names_of_a_killed_one(engine: Engine, layout: Layout, pulling: Loopback) -> None:
    digest = put(layout, archive(file(uuid.uuid4().hex)), config=PLATFORM)
    words = [sys.executable, "-c", KILLED, str(layout.folder), digest]
    killed = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert killed.stdout
        assert killed.stdout.readline() == "pulled\n"
        assert names(engine, digest)
        remove_leftovers(engine)
        assert names(engine, digest)
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
    assert engine.find([id_of(engine, layout, digest)])
    remove_leftovers(engine)
    assert not names(engine, digest)
    until(lambda: engine.find([id_of(engine, layout, digest)]) is None, 30)


@pytest.fixture
def store(engine: Engine, tmp_path: Path) -> Store:
    if not engine.containerd_store and not engine.podman:
        pytest.skip("this engine gets no images from a layout")
    return Store(engine=engine, sizes=tmp_path / "sizes.json", layout=Layout(folder=tmp_path / "kept"))


@contextlib.contextmanager
def deaf(path: str) -> Iterator[LayoutServer]:
    """A port where nobody answers, as behind a firewall that drops packets."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield LayoutServer(repository=f"127.0.0.1:{listening.getsockname()[1]}/{path}", blobs={})


@contextlib.contextmanager
def closed(path: str) -> Iterator[LayoutServer]:
    """A port that is closed, as for an engine of another machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield LayoutServer(repository=f"127.0.0.1:{port}/{path}", blobs={})


@pytest.mark.parametrize("serving", [deaf, closed], ids=["deaf", "closed"])
def test_an_engine_that_cannot_reach_us_is_sent_its_images(
    serving: object, store: Store, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    store = replace(store, say=lines.append)
    monkeypatch.setattr(loopback, "serving", serving)
    monkeypatch.setattr(loopback, "_PATIENCE", 2)
    before, name = names(store.engine), uuid.uuid4().hex
    digest = put(layout, archive(file(name, b"x")), config=PLATFORM)
    try:
        store.take_in(digest, layout.folder)
        store.loopback.close()
        assert len(lines) == 1
        assert "docker load" in lines[0]
        assert names(store.engine) == before
        with container_of(store.engine.client, store.id_of(digest)) as container:
            store.engine.client.api.get_archive(container, f"/{name}")
    finally:
        store.engine.remove([store.id_of(digest)])


def test_an_image_that_cannot_be_unpacked_leaves_no_name(store: Store, layout: Layout) -> None:
    before = names(store.engine)
    good = archive(file(uuid.uuid4().hex))
    digest = put(layout, good, config=PLATFORM, pack=lambda layer: uuid.uuid4().bytes * len(layer))
    with pytest.raises(EngineError, match=UNREADABLE):
        store.take_in(digest, layout.folder)
    store.loopback.close()
    assert names(store.engine) == before
    assert store.engine.find([store.id_of(digest)]) is None
