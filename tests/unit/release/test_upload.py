"""Uploads to a registry in memory: each missing blob once, and no other image than the tested one."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.small import Small
from tests.unit.registries import MemoryRegistry, OnMessage, Store
from torchbake.engine.export import Content
from torchbake.errors import EngineError, RegistryError
from torchbake.oci.manifest import Blob, Manifest, sha256
from torchbake.registry.artifact import Artifact
from torchbake.release.candidate import Candidate, Parcel, Supply
from torchbake.release.upload import Delivery

LAYERS = (b"a base", b"torch", b"the site's packages")


@dataclass
class Post:
    """A repository, and an image to bring there. ``others`` are layers of other repositories of the registry."""

    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)
    others: dict[str, dict[str, bytes]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    used_names: set[str] = field(default_factory=set)  # layers that were read out of the engine

    @property
    def image(self) -> Manifest:
        return self.small.make({"org.torchbake.id": "cpu"}, LAYERS)

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        def noted(name: str) -> bool:
            is_chosen = select(name)
            self.used_names |= {name} if is_chosen else set()
            return is_chosen

        return self.small.take_out(digest, folder, noted)

    def send(
        self,
        *,
        mounts: Collection[str] = (),
        supply: Supply | None = None,
        message: OnMessage = lambda *_: None,
        tested: str = "",
    ) -> Parcel:
        candidate = Candidate(id="cpu", digest=self.image.digest, labels={}, tags=("cpu",), verdict=None, tested=tested)
        registry = Mounting(self.store, message=message)
        registry.others = self.others
        delivery = Delivery(registry, tuple(mounts))
        return delivery.send(candidate, supply or Supply(source=self), lambda _: None, self.count)

    def count(self, blob: Blob, size: int) -> None:
        self.counted[blob.digest] = self.counted.get(blob.digest, 0) + size

    def is_whole(self) -> bool:
        return all(len(self.store.blobs.get(blob.digest, b"")) == blob.size for blob in self.image.blobs)


class Mounting(MemoryRegistry):
    """A registry that mounts layers from its other repositories, and counts requests."""

    others: dict[str, dict[str, bytes]]

    def mount(self, blob: Blob, source: str) -> bool:
        text = self.others.get(source, {}).get(blob.digest)
        if text is not None:
            self.store.blobs[blob.digest] = text
        return text is not None

    def upload(self, blob: Blob, path: Path, count: Callable[[int], None] = lambda _: None) -> None:
        super().upload(blob, path)
        count(blob.size)


@pytest.fixture
def post() -> Post:
    return Post()


def test_everything_that_an_image_needs_is_there_and_no_tag(post: Post) -> None:
    parcel = post.send()
    whole = sum(map(len, LAYERS)) + post.image.config.size
    assert post.is_whole()
    assert (parcel.count.bytes, parcel.count.layers, parcel.count.whole) == (whole, len(LAYERS) + 1, whole)
    assert parcel.manifest.digest == post.image.digest
    assert post.store.tags == {}
    assert post.counted == {blob.digest: blob.size for blob in post.image.blobs}


def test_what_is_there_is_neither_read_nor_sent_again(post: Post) -> None:
    post.store.blobs[sha256(LAYERS[1])] = LAYERS[1]
    parcel = post.send()
    assert post.is_whole()
    assert sha256(LAYERS[1]) not in {*post.used_names, *post.counted}
    assert parcel.count.layers == len(LAYERS)
    assert post.send().count.bytes == 0


def test_half_of_a_layer_is_not_taken_for_the_whole_one(post: Post) -> None:
    """A registry that lost the end of a blob still says that it has it."""
    post.store.blobs[sha256(LAYERS[1])] = LAYERS[1][:2]
    with pytest.raises(RegistryError, match="no longer has it"):
        post.send()
    assert not post.is_whole()


def test_a_layer_of_another_repository_is_mounted_and_not_sent(post: Post) -> None:
    post.others = {"team/base": {sha256(LAYERS[0]): LAYERS[0]}}
    parcel = post.send(mounts=["team/nothing", "team/base"])
    assert post.is_whole()
    assert sha256(LAYERS[0]) not in post.counted
    assert parcel.count.layers == len(LAYERS)


def test_describing_an_image_reads_only_the_layers_it_must(post: Post) -> None:
    torch, contents = sha256(LAYERS[1]), list[bytes]()
    post.store.blobs |= {sha256(layer): layer for layer in LAYERS}

    def describe(content: Content) -> tuple[Artifact, ...]:
        (layer,) = (blob for blob in content.manifest.layers if blob.digest == torch)
        contents.append(content.path(layer).read_bytes())
        return (Artifact(name="sbom", media_type="application/json", text="{}"),)

    supply = Supply(source=post, describe=describe, needs=lambda digest: digest == torch)
    parcel = post.send(supply=supply)
    assert contents == [LAYERS[1]]
    assert [artifact.text for artifact in parcel.artifacts] == ["{}"]


def test_another_image_than_the_tested_one_is_not_sent(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    other = post.small.make({"org.torchbake.id": "cpu"}, [b"another"])

    def exchange(_: str, folder: Path, select: Callable[[str], bool]) -> Content:
        return post.small.take_out(other.digest, folder, select)

    monkeypatch.setattr(post, "take_out", exchange)
    with pytest.raises(EngineError, match=f"the engine hands out {other.digest}"):
        post.send()
    assert post.store.blobs == {}


def test_a_classic_stores_image_is_sent_if_its_layers_are_tested(post: Post) -> None:
    config = post.image.config.digest
    assert post.send(tested=post.image.digest).manifest == post.image
    post.store.blobs.clear()
    for tested, words in ((sha256(b"another"), "was tested, and not"), (config, "cannot be read")):
        with pytest.raises(EngineError, match=words):
            post.send(tested=tested)
        assert post.store.blobs == {}


def test_a_layer_that_a_registry_had_and_lost_is_told(post: Post) -> None:
    layer = sha256(LAYERS[1])
    post.store.blobs[layer] = LAYERS[1]
    count = 0

    def lose(what: str, key: str) -> None:
        nonlocal count
        count += (what, key) == ("HEAD", layer)
        if count == 2:
            post.store.blobs.pop(layer, None)

    with pytest.raises(RegistryError, match=f"had {layer}, and no longer has it"):
        post.send(message=lose)


def test_a_failed_upload_is_the_error_and_leaves_nothing_behind(
    post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refuse(what: str, key: str) -> None:
        if what == "POST":
            raise RegistryError("quota exceeded")

    with pytest.raises(RegistryError, match="quota exceeded"):
        post.send(message=refuse)
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_cannot_be_described_is_no_parcel(post: Post) -> None:
    def describe(_: Content) -> tuple[Artifact, ...]:
        raise EngineError("a layer cannot be read")

    with pytest.raises(EngineError, match="cannot be read"):
        post.send(supply=replace(Supply(source=post), describe=describe))
