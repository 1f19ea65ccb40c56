"""Images that an engine takes in and cannot use: the command fails, they get no tag, and none of them stays."""

import contextlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.layouts import archive, file, put
from torchbake.build.image_store import Store
from torchbake.engine.client import connect
from torchbake.engine.image_check import check_image
from torchbake.engine.runner import read_history
from torchbake.errors import EngineError
from torchbake.store.layout import Layout

pytestmark = pytest.mark.engine

UNREADABLE = "unpack|invalid tar header|does not match config's DiffID"  # the words of Docker and of podman
_MUCH = 3_000_000  # bytes of a file that nobody can compress
PLATFORM = {"architecture": "amd64", "os": "linux"}


def no_archive(layer: bytes) -> bytes:
    """Bytes for a layer that has the right digest and size, and that no engine can unpack."""
    return uuid.uuid4().bytes * len(layer)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    engine = connect()
    if not engine.containerd_store and not engine.podman:
        pytest.skip("this engine gets no images from a layout")
    store = Store(engine=engine, sizes=tmp_path / "sizes.json", layout=Layout(folder=tmp_path / "layout"))
    yield store
    store.loopback.close()


def test_an_image_that_cannot_be_unpacked_is_an_error_and_goes(store: Store, tmp_path: Path) -> None:
    export = Layout(folder=tmp_path / "export")
    digest = put(export, archive(file(uuid.uuid4().hex)), config=PLATFORM, pack=no_archive)
    with pytest.raises(EngineError, match=UNREADABLE):
        store.take_in(digest, export.folder)
    assert store.engine.find([store.id_of(digest)]) is None


def test_a_broken_image_that_the_engine_has_is_no_success(store: Store, tmp_path: Path) -> None:
    """It is there, with its digest, its labels and its layers' names; only a container shows that it is broken."""
    if store.engine.podman:
        pytest.skip("podman keeps no image that it cannot unpack")
    export = Layout(folder=tmp_path / "export")
    digest = put(export, archive(file(uuid.uuid4().hex)), config=PLATFORM, pack=no_archive)
    with contextlib.suppress(EngineError):
        store.engine.load(export.archive(digest))
    assert store.engine.find([digest]) == digest
    try:
        with pytest.raises(EngineError, match="no container can be created"):
            check_image(store.engine, digest)
        with pytest.raises(EngineError, match=UNREADABLE):
            store.take_in(digest, export.folder)
    finally:
        store.engine.remove([digest])


def test_an_image_with_any_command_is_usable_without_leftovers(store: Store, tmp_path: Path) -> None:
    export = Layout(folder=tmp_path / "export")
    layer = archive(file(uuid.uuid4().hex))
    digest = put(export, layer, config={**PLATFORM, "config": {"Volumes": {"/data": {}}}})
    try:
        store.take_in(digest, export.folder)
        replace(store).take_in(
            put(export, layer, config={**PLATFORM, "config": {"Volumes": {"/data": {}}}}), export.folder
        )
        image = store.id_of(digest)
        matches = store.engine.client.containers.list(all=True, filters={"ancestor": image}, ignore_removed=True)
        assert matches == []
        assert len(store.engine.layers(image)) == 1
    finally:
        store.engine.remove([store.id_of(digest)])


def test_history_survives_removal_of_an_image_with_equal_layers(tmp_path: Path) -> None:
    layout, engine, name = Layout(folder=tmp_path), connect(), uuid.uuid4().hex
    layers = [archive(file(f"{name}-{number}", random.Random(name).randbytes(_MUCH))) for number in (1, 2)]
    if engine.podman:
        pytest.skip("podman reads no history whose steps have no time; it has no snapshots to lose")
    digests = [put(layout, *layers, config={**PLATFORM, "author": author}) for author in ("one", "other")]
    for digest in digests:
        engine.load(layout.archive(digest))
    one, same = (engine.id_of(manifest) for digest in digests if (manifest := layout.find(digest)))
    engine.remove([one])
    try:
        assert len(read_history(engine, same)) == 2
        assert engine.size_on_disk(same) > 2 * _MUCH
        assert not engine.client.containers.list(all=True, filters={"ancestor": same}, ignore_removed=True)
    finally:
        engine.remove([same])
