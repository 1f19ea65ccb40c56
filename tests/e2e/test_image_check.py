"""Images that an engine takes in and cannot use: the command fails, they get no tag, and none of them stays."""

import contextlib
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.layouts import archive, file, put
from torchbake.build.image_store import Store
from torchbake.engine.client import connect
from torchbake.engine.image_check import check_image
from torchbake.errors import EngineError
from torchbake.oci.layout import Layout

pytestmark = pytest.mark.engine

PLATFORM = {"architecture": "amd64", "os": "linux"}


def no_archive(layer: bytes) -> bytes:
    """Bytes for a layer that has the right digest and size, and that no engine can unpack."""
    return uuid.uuid4().bytes * len(layer)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    engine = connect()
    if not engine.containerd_store:
        pytest.skip("this engine gets no images from a layout")
    return Store(engine=engine, sizes=tmp_path / "sizes.json", layout=Layout(folder=tmp_path / "layout"))


def test_an_image_that_cannot_be_unpacked_is_an_error_and_goes(store: Store, tmp_path: Path) -> None:
    export = Layout(folder=tmp_path / "export")
    digest = put(export, archive(file(uuid.uuid4().hex)), config=PLATFORM, pack=no_archive)
    with pytest.raises(EngineError, match="unpack"):
        store.take_in(digest, export.folder)
    assert store.engine.find([digest]) is None


def test_a_broken_image_that_the_engine_has_is_no_success(store: Store, tmp_path: Path) -> None:
    """It is there, with its digest, its labels and its layers' names; only a container shows that it is broken."""
    export = Layout(folder=tmp_path / "export")
    digest = put(export, archive(file(uuid.uuid4().hex)), config=PLATFORM, pack=no_archive)
    with contextlib.suppress(EngineError):
        store.engine.load(export.archive(digest))
    assert store.engine.find([digest]) == digest
    try:
        with pytest.raises(EngineError, match="no container can be created"):
            check_image(store.engine, digest)
        with pytest.raises(EngineError, match="unpack"):
            store.take_in(digest, export.folder)
    finally:
        store.engine.remove([digest])


def test_an_image_is_usable_whatever_its_command_and_leaves_no_container(store: Store, tmp_path: Path) -> None:
    export = Layout(folder=tmp_path / "export")
    layer = archive(file(uuid.uuid4().hex))
    digest = put(export, layer, config={**PLATFORM, "config": {"Volumes": {"/data": {}}}})
    before = {box.id for box in store.engine.client.containers.list(all=True, ignore_removed=True)}
    try:
        store.take_in(digest, export.folder)
        replace(store).take_in(
            put(export, layer, config={**PLATFORM, "config": {"Volumes": {"/data": {}}}}), export.folder
        )
        found = store.engine.client.containers.list(all=True, filters={"ancestor": digest}, ignore_removed=True)
        assert {box.id for box in found} <= before
        assert len(store.engine.layers(digest)) == 1
    finally:
        store.engine.remove([digest])
