"""The place that an image is read from, by its name on the command line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import SMALL, edited
from tests.unit.contents.test_read import FULL, LAYERS, pushed, write_index
from tests.unit.engines import Daemon
from tests.unit.layouts import put, saved, sha256
from torchbake import REGISTRY_VARIABLE
from torchbake.commands import _image_contents, _image_location, _registries
from torchbake.commands._image_contents import inventory_of
from torchbake.commands._image_location import WithImageContents, find_image
from torchbake.contents.model import Inventory
from torchbake.contents.read import ImageReader
from torchbake.errors import EngineError, RegistryError, TorchbakeError, UsageError
from torchbake.matrix.project import load_project
from torchbake.oci.labels import ID
from torchbake.oci.manifest import MANIFEST, Manifest
from torchbake.oci.variants import joined_index
from torchbake.store.layout import Layout

CPU = "2.13.0-cpu-runtime-debian12"
Read = Callable[..., Inventory]


def arguments(folder: Path, **options: Any) -> WithImageContents:
    values = {"place": None, "platform": "", "plain_http": False, "quiet": False, "verbose": False, "progress": "auto"}
    return WithImageContents(matrix=folder / "matrix.yaml", **{**values, **options})


def _read(args: WithImageContents, text: str) -> Inventory:
    return inventory_of(args, find_image(args, text))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    daemon = Daemon(containerd=False)
    monkeypatch.setattr(_image_location, "connect", lambda: daemon.engine)
    return daemon


@pytest.fixture
def read(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Read:
    """Read an image with an empty cache; ``message`` must be in the messages."""
    (tmp_path / "matrix.yaml").write_text(SMALL)
    monkeypatch.setattr(_image_contents, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)

    def read_one(text: str, message: str = "", **options: Any) -> Inventory:
        inventory = _read(arguments(tmp_path, **options), text)
        assert message in capsys.readouterr().err
        return inventory

    return read_one


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path / ".torchbake/layout")


def hold(daemon: Daemon, *references: str) -> str:
    image = daemon.hold(sha256(FULL), *references)
    daemon.archives[image] = saved(FULL, *LAYERS)
    return image


def test_an_image_of_the_matrix_is_read_from_the_store(read: Read, daemon: Daemon, layout: Layout) -> None:
    digest = put(layout, *LAYERS, config={"config": {"Labels": {ID: CPU}}})
    write_index(layout, digest)
    tags = load_project(Path("matrix.yaml")).tags[CPU]
    for text in (CPU, "cpu-runtime" if "cpu-runtime" in tags else tags[0], *tags):
        inventory = read(text, f"from the store, {CPU}")
        assert (inventory.name, inventory.digest) == (text, digest)


def test_the_engine_is_read_if_the_store_lacks_the_image(read: Read, daemon: Daemon, layout: Layout) -> None:
    tags = load_project(Path("matrix.yaml")).tags[CPU]
    image = hold(daemon, *(f"acme/pytorch:{tag}" for tag in tags))
    assert read(CPU, "from the engine").digest == image
    older = put(layout, LAYERS[0], config={"config": {"Labels": {ID: CPU}}})
    write_index(layout, older)
    assert read(CPU, "from the engine").digest == image
    daemon.pictures.clear()
    assert read(CPU, "from the store").digest == older
    with pytest.raises(EngineError, match=f"cannot be read as acme/pytorch:{tags[0]}: the engine at"):
        read(CPU, place="engine")


def test_a_word_for_several_images_names_them(read: Read) -> None:
    with pytest.raises(UsageError, match="cuda12 means 6 images: 2"):
        read("cuda12")


def test_a_reference_is_read_from_the_engine_first(read: Read, daemon: Daemon) -> None:
    image = hold(daemon, "other/image:1", "debian:latest")
    for text in ("other/image:1", image, "debian:latest"):
        assert read(text, "from the engine").name == text


def test_without_the_engine_the_registry_is_read(
    read: Read, daemon: Daemon, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(layout, *LAYERS)
    requests = list[tuple[str, bool]]()

    def registry_of(repository: object, *, plain_http: bool) -> object:
        requests.append((str(repository), plain_http))
        return pushed(layout, digest)

    monkeypatch.setattr(_registries, "registry_of", registry_of)
    assert read("example.com/team/x:cpu", "from the registry example.com").digest == digest
    assert read(f"x@{digest}", "from the registry docker.io (Docker Hub)", plain_http=True).digest == digest
    hold(daemon, "team/x:cpu")
    assert read("team/x:cpu", place="registry").digest == digest
    assert requests == [("example.com/team/x", False), ("docker.io/library/x", True), ("docker.io/team/x", False)]
    with pytest.raises(RegistryError, match=r"does not have gpu; and the engine at .* does not have it"):
        read("example.com/team/x:gpu")
    with pytest.raises(RegistryError, match=r"does not have gpu\.$"):
        read("example.com/team/x:gpu", place="registry")


def test_an_image_of_the_matrix_is_read_from_its_own_registry(
    read: Read, daemon: Daemon, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = list[str]()

    def registry_of(repository: object, **_: object) -> object:
        requests.append(str(repository))
        registry = pushed(layout, digest)
        registry.store.tags[tag] = digest
        return registry

    digest, tag = put(layout, *LAYERS), load_project(Path("matrix.yaml")).tags[CPU][0]
    monkeypatch.setattr(_registries, "registry_of", registry_of)
    monkeypatch.delenv(REGISTRY_VARIABLE, raising=False)
    with pytest.raises(EngineError, match=f"{CPU} is not built: the store does not have it, and the engine") as error:
        read(CPU)
    assert error.value.hint is not None
    assert error.value.hint.endswith(f"build -- {CPU}")
    with pytest.raises(EngineError, match=r"neither matrix\.yaml nor"):
        read(CPU, place="registry")
    assert requests == []
    monkeypatch.setenv(REGISTRY_VARIABLE, "ghcr.io/team")
    for place in (None, "registry"):
        inventory = read(CPU, "from the registry ghcr.io", place=place)
        assert (inventory.name, inventory.digest) == (CPU, digest)
    assert requests == ["ghcr.io/team/pytorch"] * 2


def test_an_id_for_arm64_is_the_image_for_it_in_the_index(
    read: Read, daemon: Daemon, layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = edited("  - torch: 2.13.0\n", "  - torch: 2.13.0\n    platforms: [linux/amd64, linux/arm64]\n")
    (tmp_path / "matrix.yaml").write_text(rows)
    registry, entries = pushed(layout, put(layout, *LAYERS)), []
    for architecture in ("amd64", "arm64"):
        platform = {"os": "linux", "architecture": architecture}
        data = layout.path(put(layout, *LAYERS, config=platform)).read_bytes()
        image = Manifest(data=data, media_type=MANIFEST)
        registry.store.manifests[image.digest] = image
        entries.append({**image.own.descriptor, "platform": platform})
    index = joined_index([entries])
    registry.store.manifests[index.digest] = index
    registry.store.tags[CPU] = index.digest
    registry.store.blobs |= {sha256(path.read_bytes()): path.read_bytes() for path in layout.files()}
    monkeypatch.setattr(_registries, "registry_of", lambda *_, **__: registry)
    monkeypatch.setenv(REGISTRY_VARIABLE, "ghcr.io/team")
    inventory = read(f"{CPU}-arm64", place="registry")
    assert (inventory.platform, inventory.digest) == ("linux/arm64", entries[1]["digest"])
    assert read(CPU, place="registry", platform="linux/amd64").digest == entries[0]["digest"]
    # The digest of the index would say that both are one image.
    assert find_image(arguments(tmp_path, place="registry"), f"{CPU}-arm64").digest() == ""


def test_a_name_that_the_matrix_lacks_is_in_the_error(
    read: Read, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_registries, "registry_of", lambda *_, **__: pushed(layout, put(layout, *LAYERS)))
    with pytest.raises(RegistryError, match=r"matrix.yaml has no image cpuu; nearest: cpu"):
        read("cpuu")
    with pytest.raises(EngineError, match=r"matrix.yaml has no image cpuu; nearest: cpu"):
        read("cpuu", place="engine")


def test_a_missing_file_is_an_error_and_no_reference(read: Read) -> None:
    for text in ("./nosuch.tar", "nosuch.tar", "some/nosuch.tar.gz", "../nosuch", "/nosuch"):
        with pytest.raises(UsageError, match=f"There is no file {re.escape(text)}"):
            read(text)


def test_a_failure_is_one_line_of_the_progress(read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.tar").write_bytes(b"no archive")
    with pytest.raises(EngineError) as error:
        read("x.tar")
    text = capsys.readouterr().err
    assert "x.tar: failed" in text
    assert error.value.message not in text


def test_another_platform_is_refused_before_layers_are_read(
    read: Read, daemon: Daemon, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(layout, *LAYERS, config={"os": "linux", "architecture": "amd64"})
    write_index(layout, digest)
    monkeypatch.setattr(_registries, "registry_of", lambda *_, **__: pushed(layout, digest))
    monkeypatch.setattr(ImageReader, "_scan_all", None)
    for text in ("example.com/x:cpu", str(layout.folder)):
        with pytest.raises(UsageError, match="is for linux/amd64 alone, not for linux/arm64") as error:
            read(text, platform="linux/arm64")
        assert error.value.sentence.endswith("--platform linux/amd64")


def test_no_engine_is_a_reason_and_no_end(read: Read, monkeypatch: pytest.MonkeyPatch, layout: Layout) -> None:
    def connect() -> object:
        raise EngineError("No container engine answers at x.")

    monkeypatch.setattr(_image_location, "connect", connect)
    monkeypatch.setattr(_registries, "registry_of", lambda *_, **__: pushed(layout, put(layout, *LAYERS)))
    with pytest.raises(RegistryError, match="does not have 1; and No container engine answers at x"):
        read("example.com/x:1")
    with pytest.raises(EngineError, match="cannot be read: No container engine answers at x"):
        read("example.com/x:1", place="engine")


def test_folders_and_archives_are_read_by_their_paths(read: Read, tmp_path: Path) -> None:
    layout = Layout(folder=tmp_path / "folder")
    first, second = put(layout, *LAYERS), put(layout, LAYERS[0])
    write_index(layout, first, second)
    assert read(f"folder@{second}", "from the folder folder").digest == second
    with pytest.raises(UsageError, match="holds 2 images"):
        read(f"{tmp_path}/folder")
    (tmp_path / "image.tar").write_bytes(saved(FULL, *LAYERS))
    assert read("image.tar", "from the archive image.tar").digest == sha256(FULL)
    (tmp_path / CPU).write_bytes(b"not meant")
    with pytest.raises(TorchbakeError, match="acme/pytorch"):
        read(CPU, place="engine")
    stored = Layout(folder=tmp_path / ".torchbake/layout")
    write_index(stored, put(stored, *LAYERS, config={"config": {"Labels": {ID: CPU}}}))
    read(CPU, "from the store")
    with pytest.raises(UsageError, match="neither an archive nor a folder"):
        read(str(tmp_path))


def test_another_platform_than_the_image_has_is_refused(read: Read, daemon: Daemon) -> None:
    hold(daemon, "other/image:1")
    assert read("other/image:1", platform="linux/amd64").platform == "linux/amd64"
    with pytest.raises(UsageError, match="is for linux/amd64 alone, not for linux/arm64"):
        read("other/image:1", platform="linux/arm64")


def test_a_second_read_is_from_the_cache(read: Read, daemon: Daemon, tmp_path: Path) -> None:
    hold(daemon, "other/image:1")
    first = read("other/image:1")
    daemon.archives.clear()
    assert read("other/image:1") == first
    assert json.loads(json.dumps(dict(first.config))) == dict(first.config)
    assert [path.suffix for path in (tmp_path / "cache/contents").iterdir()] == [".zst"] * 4


def test_the_digest_of_an_image_is_found_without_its_layers(
    read: Read, daemon: Daemon, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(layout, *LAYERS, config={"config": {"Labels": {ID: CPU}}})
    write_index(layout, digest)
    image = hold(daemon, "other/image:1")
    daemon.archives.clear()
    monkeypatch.setattr(_registries, "registry_of", lambda *_, **__: pushed(layout, digest))
    (tmp_path / "image.tar").write_bytes(saved(FULL, *LAYERS))
    monkeypatch.setattr(ImageReader, "_scan_all", None)
    args = arguments(tmp_path)
    for text, expected in (
        (CPU, digest),
        ("other/image:1", image),
        ("example.com/x:cpu", digest),
        ("example.com/x:gpu", ""),
        (str(layout.folder), digest),
        (f"{layout.folder}@{digest}", digest),
        ("image.tar", ""),
    ):
        assert find_image(args, text).digest() == expected, text
    write_index(layout, digest, put(layout, LAYERS[0]))
    assert find_image(args, str(layout.folder)).digest() == ""
