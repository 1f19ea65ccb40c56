"""Packed layers that go with a release to a registry in memory, and come from there to another machine."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.small import Small
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from torchbake.errors import RegistryError
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob, Manifest, sha256
from torchbake.registry.artifact import put_artifact
from torchbake.registry.cosign import NoCosign, Signer
from torchbake.registry.transport import StatusError
from torchbake.release.candidate import Candidate, Publication, Supply
from torchbake.release.fetched_layers import FetchedLayers, ReleaseLocation
from torchbake.release.publisher import Publisher
from torchbake.release.shared_layers import LAYERS_TYPE, list_of
from torchbake.store.layers import LayerStore, PackedLayer

TORCH, CUDNN, HEADERS, MODULES = (b"torch, packed", b"cudnn, packed", b"headers of torch", b"modules of torch")
KEYS = {name: f"sha256:{letter * 64}" for name, letter in (("torch", "a"), ("torch again", "b"), ("cudnn", "c"))}
UNKNOWN = f"sha256:{'d' * 64}"
TAG = "2.7.1-cuda"


def blob(data: bytes) -> Blob:
    return Blob(digest=sha256(data), size=len(data), media_type="application/vnd.oci.image.layer.v1.tar+zstd")


def packed(layer: bytes, headers: bytes = b"", modules: bytes = b"") -> PackedLayer:
    return PackedLayer(
        layer=Layer(blob=blob(layer), diff_id=sha256(b"unpacked " + layer)), names=("a/b.py",),
        headers=blob(headers) if headers else None, modules=blob(modules) if modules else None,
    )  # fmt: skip


@dataclass
class Fleet:
    """A machine that has packed layers and releases an image of them, and others that build."""

    folder: Path
    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> MemorySigner:
        return MemorySigner(store=self.store)

    @property
    def layers(self) -> LayerStore:
        return LayerStore(folder=self.folder / "layers")

    @property
    def image(self) -> Manifest:
        return self.small.make({"org.torchbake.inputs": "a"}, [b"a base", TORCH, CUDNN])

    def pack(self) -> None:
        for name, one in (("torch", packed(TORCH, HEADERS, MODULES)), ("cudnn", packed(CUDNN))):
            files = {}
            for data in (TORCH, HEADERS, MODULES, CUDNN):
                if blob(data) in one.blobs:
                    file = self.folder / sha256(data)[7:]
                    file.write_bytes(data)
                    files[sha256(data)] = file
            self.layers.add(KEYS[name], one, files)
        self.layers.add(KEYS["torch again"], packed(TORCH, HEADERS, MODULES), {})
        self.layers.add(UNKNOWN, packed(b"of another image"), {})

    def publish(self, signer: Signer) -> Publication:
        candidate = Candidate(
            id=TAG, digest=self.image.digest, labels=self.small.images[self.image.digest][2], tags=(TAG,), verdict=None
        )
        supply = Supply(source=self.small, describe=self.small.describe, layers=self.layers)
        publisher = Publisher(MemoryRegistry(self.store), signer=signer)
        return publisher.publish(candidate, supply, lambda _: None, lambda *_: None)

    def lists(self) -> list[str]:
        return [
            one.digest for one in self.store.manifests.values() if one.content.get("artifactType") == LAYERS_TYPE
        ]  # fmt: skip

    def fetched(self, signer: Signer | None = None, registry: MemoryRegistry | None = None) -> FetchedLayers:
        there = registry or MemoryRegistry(self.store)
        places = [ReleaseLocation(registry=there, tag=tag) for tag in ("not-there", TAG)]
        return FetchedLayers(places=places, verifier=signer or self.key, warn=self.warnings.append)

    def fetch(self, layers: FetchedLayers, name: str, go_on: Callable[[], object] = lambda: None) -> dict[str, bytes]:
        """The files that came, by name; none if the layer did not come."""
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            layer = layers.fetch(KEYS.get(name, UNKNOWN), Path(work), go_on)
            files = {path.name: path.read_bytes() for path in Path(work).iterdir()}
        assert bool(layer) == bool(files)
        assert layer is None or {name: blob(data) for name, data in files.items()} == layer.files
        return files


class Confusing(MemoryRegistry):
    """A registry that lists all artifacts for each image."""

    def referrers(self, digest: str) -> tuple[Blob, ...] | None:
        return tuple(Blob(digest=one.digest, size=len(one.data)) for one in self.store.manifests.values())


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    fleet = Fleet(tmp_path)
    fleet.pack()
    return fleet


def test_layers_of_a_signed_release_arrive_under_all_their_keys(fleet: Fleet) -> None:
    fleet.publish(fleet.key)
    layers = fleet.fetched()
    whole = {"layer.tar.zst": TORCH, "headers.tar.zst": HEADERS, "modules.tar.zst": MODULES}
    assert fleet.fetch(layers, "torch") == fleet.fetch(layers, "torch again") == whole
    assert fleet.fetch(layers, "cudnn") == {"layer.tar.zst": CUDNN}
    assert layers.sizes == [sum(map(len, whole.values()))] * 2 + [len(CUDNN)]
    assert fleet.fetch(layers, "unknown") == {}  # the machine packed it, and the image does not have it
    assert fleet.warnings == []
    assert layers.fetch(KEYS["torch"], fleet.folder, lambda: None) == fleet.layers.find(KEYS["torch"])


def test_a_registry_is_queried_only_once_a_layer_is_wanted(fleet: Fleet) -> None:
    fleet.publish(fleet.key)
    messages = list[str]()
    layers = fleet.fetched(registry=MemoryRegistry(fleet.store, message=lambda _, key: messages.append(key)))
    assert messages == []
    fleet.fetch(layers, "torch")
    count = len(messages)
    fleet.fetch(layers, "unknown")
    assert len(messages) == count  # all lists were read, once


def test_a_release_gets_its_list_once_it_is_signed(fleet: Fleet) -> None:
    fleet.publish(NoCosign(skip_reason="no key was given"))
    assert fleet.lists() == []
    assert sha256(HEADERS) not in fleet.store.blobs
    assert fleet.fetch(fleet.fetched(), "torch") == {}
    (warning,) = fleet.warnings
    assert "not signed" in warning
    fleet.publish(fleet.key)
    assert fleet.fetch(fleet.fetched(), "cudnn") == {"layer.tar.zst": CUDNN}
    fleet.publish(fleet.key)
    assert len(fleet.lists()) == 1


@pytest.mark.parametrize("unsigned", ["image", "list"])
def test_nothing_arrives_unless_image_and_list_are_signed(fleet: Fleet, unsigned: str) -> None:
    fleet.publish(fleet.key)
    (listed,) = fleet.lists()
    digest = listed if unsigned == "list" else fleet.image.digest
    fleet.store.signed = {one for one in fleet.store.signed if one[1] != digest} | {("theirs", digest)}
    assert fleet.fetch(fleet.fetched(), "torch") == {}
    (warning,) = fleet.warnings
    assert "not signed" in warning
    assert ("list of layers" in warning) == (unsigned == "list")
    assert fleet.fetch(fleet.fetched(MemorySigner(store=fleet.store, key="theirs")), "torch") == {}


def test_a_signed_list_of_another_image_does_not_count(fleet: Fleet) -> None:
    fleet.publish(NoCosign(skip_reason="no key was given"))
    other = fleet.small.make({}, [TORCH])
    item = list_of([other], fleet.layers)
    assert item
    there = Confusing(fleet.store)
    manifest = put_artifact(there, item, other)
    fleet.key.sign(there.repository, [fleet.image.digest, manifest.digest])
    assert fleet.fetch(fleet.fetched(registry=there), "torch") == {}
    assert fleet.warnings == []


def test_an_altered_blob_is_refused_and_the_other_layers_come(fleet: Fleet) -> None:
    fleet.publish(fleet.key)
    fleet.store.blobs[sha256(MODULES)] = b"modules of tarch"
    layers = fleet.fetched()
    assert fleet.fetch(layers, "torch") == fleet.fetch(layers, "torch again") == {}
    assert fleet.fetch(layers, "cudnn") == {"layer.tar.zst": CUDNN}
    (warning,) = fleet.warnings
    assert sha256(MODULES) in warning
    assert layers.sizes == [len(CUDNN)]


def test_a_lost_blob_does_not_keep_the_other_layers_away(fleet: Fleet) -> None:
    fleet.publish(fleet.key)

    def lost(_: str, key: str) -> None:
        if key == sha256(TORCH):
            raise StatusError("example.com answers 404", status=404)

    layers = fleet.fetched(registry=MemoryRegistry(fleet.store, message=lost))
    assert fleet.fetch(layers, "torch") == {}
    assert fleet.fetch(layers, "cudnn") == {"layer.tar.zst": CUDNN}
    assert len(fleet.warnings) == 1


def test_an_unreachable_registry_is_one_warning_and_one_request(fleet: Fleet) -> None:
    fleet.publish(fleet.key)
    messages = list[str]()

    def away(method: str, key: str) -> None:
        messages.append(key)
        if method == "GET":
            raise RegistryError("example.com does not answer: connection refused")

    layers = fleet.fetched(registry=MemoryRegistry(fleet.store, message=away))
    assert fleet.fetch(layers, "torch") == {}
    count = len(messages)
    assert fleet.fetch(layers, "cudnn") == {}
    assert len(messages) == count
    (warning,) = fleet.warnings
    assert "example.com does not answer" in warning


def test_a_list_that_cannot_be_read_is_refused(fleet: Fleet) -> None:
    fleet.publish(fleet.key)
    for digest, data in fleet.store.blobs.items():
        if b'"keys"' in data:
            fleet.store.blobs[digest] = b'{"layers": [{"keys": 5}]}'
    assert fleet.fetch(fleet.fetched(), "torch") == {}
    assert len(fleet.warnings) == 1


def test_a_damaged_layer_of_the_store_is_not_listed(fleet: Fleet) -> None:
    path = fleet.layers.path(sha256(MODULES))
    path.chmod(0o600)
    path.write_bytes(b"modules of tarch")
    fleet.publish(fleet.key)
    layers = fleet.fetched()
    assert fleet.fetch(layers, "torch") == {}
    assert fleet.fetch(layers, "cudnn") == {"layer.tar.zst": CUDNN}


def test_a_run_that_is_to_stop_ends_a_download(fleet: Fleet) -> None:
    fleet.publish(fleet.key)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.fetched().fetch(KEYS["torch"], fleet.folder, stop)
