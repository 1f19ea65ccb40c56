"""One image in several compressions: sent, kept, and found again in a registry."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from tests.unit.layouts import archive, damage, file, put, sha256
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from torchbake.checks.verdict import Outcome
from torchbake.core.files import remove_folder
from torchbake.engine.export import LayoutSource
from torchbake.errors import BuildError, EngineError, PublishError
from torchbake.oci.gzip_layer import gzip_layer
from torchbake.oci.manifest import Manifest
from torchbake.oci.variants import CompressionName
from torchbake.registry.cosign import NoCosign, Signer
from torchbake.registry.variants import images_of
from torchbake.release.attestations import supply_of
from torchbake.release.candidate import Candidate, Publication
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import RecordedVerdict, read_record
from torchbake.release.repository_view import Holdings
from torchbake.release.transport import ImageTransport
from torchbake.store import gzip_images
from torchbake.store.layout import Layout
from torchbake.validate.fetch import Survey

ID, TAGS = "2.7.1-cpu", ("2.7.1-cpu", "latest")
LAYERS = (archive(file("base", b"b" * 2**20)), archive(file("upper", b"u" * 999)))
LABELS = {"org.torchbake.id": ID, "org.torchbake.torch": "2.7.1", "org.torchbake.inputs": "a"}
CONFIG = {"os": "linux", "architecture": "amd64", "config": {"Labels": LABELS}}
VERDICT = RecordedVerdict(suite="s", started="now", outcome=Outcome.PASSED, counts={"passed": 1})
UNSIGNED = NoCosign(skip_reason="no key was given")
# As in a build: a bootstrapped base is not compressed.
PACKINGS = ("tar", "zstd")


class Place:
    """A built image, and a registry."""

    def __init__(self, folder: Path, *packings: str) -> None:
        self.folder, self.store = folder, Store()
        self.layout, self.gzip = Layout(folder=folder / "layout"), Layout(folder=folder / "gzip")
        (folder / "export").mkdir(parents=True)
        self.digest = put(Layout(folder=folder / "export"), *LAYERS, packing=packings or PACKINGS, config=CONFIG)
        self.layout.take(folder / "export", self.digest)
        self.config = self.layout.get(self.digest).config.digest

    @property
    def registry(self) -> MemoryRegistry:
        return MemoryRegistry(self.store)

    def transport(self, compression: CompressionName) -> ImageTransport:
        source = LayoutSource(layout=self.layout)
        return ImageTransport(
            compression=compression, built_images=source, gzip=self.gzip, target_digest=lambda image: image
        )

    def candidate(self, transport: ImageTransport, *, dry: bool = False) -> Candidate:
        ready = transport.prepare(self.digest, dry=dry)
        return Candidate(
            id=ID, digest=ready.digest, labels=LABELS, tags=TAGS, verdict=VERDICT, tested=self.digest,
            config=ready.config,
        )  # fmt: skip

    def publish(self, compression: CompressionName, signer: Signer = UNSIGNED, *, keep: bool = False) -> Publication:
        transport = self.transport(compression)
        supply = supply_of("pytorch", transport, self.folder / "cache", self.folder / "layers")
        publisher = Publisher(self.registry, signer=signer, immutable_only=keep)
        return publisher.publish(self.candidate(transport), supply, lambda _: None, lambda *_: None)

    def rehearse(self, compression: CompressionName) -> Publication:
        return Publisher(self.registry).rehearse(self.candidate(self.transport(compression), dry=True))

    def served(self, tag: str = "latest") -> tuple[Manifest, tuple[Manifest, ...]]:
        manifest = self.registry.manifest(tag)
        assert manifest
        return manifest, tuple(images_of(self.registry, manifest))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("compression", get_args(CompressionName))
def test_each_compression_is_a_whole_release_of_one_config(place: Place, compression: CompressionName) -> None:
    published = place.publish(compression)
    manifest, images = place.served()
    kinds = [[layer.media_type.rpartition(".")[2] for layer in image.layers] for image in images]
    as_built, by_gzip = ["tar", "tar+zstd"], ["tar+gzip", "tar+gzip"]
    assert kinds == {"zstd": [as_built], "gzip": [by_gzip], "both": [by_gzip, as_built]}[compression]
    assert {image.config.digest for image in images} == {place.config}
    for image in images:
        assert all(sha256(place.store.blobs[blob.digest]) == blob.digest for blob in image.blobs)
    record = read_record(place.registry, f"{ID}-r0")
    assert record
    assert record.digest == manifest.digest == published.decision.digest
    assert record.size == sum(layer.size for layer in images[0].layers)
    holder = Holdings(place.registry).look("latest")
    assert holder
    assert (holder.labels, holder.config) == (LABELS, place.config)
    assert place.publish(compression).decision.action == "nothing"


@pytest.mark.parametrize("compression", ["gzip", "both"])
def test_a_dry_run_compresses_nothing(place: Place, compression: CompressionName) -> None:
    planned = place.rehearse(compression).decision
    assert not place.gzip.folder.exists()
    assert (planned.action, planned.digest, str(planned.tag)) == ("release", "", f"{ID}-r0")
    published = place.publish(compression).decision
    assert [move.tag for move in planned.due] == [move.tag for move in published.due]
    assert place.rehearse(compression).decision.digest == published.digest
    remove_folder(place.gzip.folder)
    again = place.rehearse(compression)
    assert (again.decision.action, again.decision.digest) == ("nothing", published.digest)
    assert again.released_by
    del place.store.tags["latest"]
    assert place.rehearse(compression).decision.action == "finish"
    assert not place.gzip.folder.exists()


def test_an_index_lets_clients_choose_and_has_gzip_first(place: Place) -> None:
    place.publish("both")
    index, _ = place.served()
    first, second = json.loads(index.data)["manifests"]
    assert first["platform"] == second["platform"] == {"os": "linux", "architecture": "amd64"}
    assert "annotations" not in first
    assert second["annotations"] == {"io.github.containers.compression.zstd": "true"}
    assert second["digest"] == place.digest


@pytest.mark.parametrize("first", get_args(CompressionName))
def test_another_compression_of_the_config_is_no_other_release(place: Place, first: CompressionName) -> None:
    before = place.publish(first).decision.digest
    tags = dict(place.store.tags)
    for then in get_args(CompressionName):
        published = place.publish(then)
        assert (published.decision.action, published.decision.digest) == ("nothing", before)
        assert published.released_by == ("" if first == then else {"both": "gzip and zstd"}.get(first, first))
        assert place.store.tags == tags


def test_an_unfinished_release_names_how_to_finish_it(place: Place) -> None:
    place.publish("zstd", keep=True)
    with pytest.raises(PublishError, match=r"compressed by zstd: .* `promote --pending`"):
        place.publish("gzip")
    assert "latest" not in place.store.tags
    assert Publisher(place.registry).finish(TAGS, lambda _: None)
    assert place.publish("gzip").decision.action == "nothing"


def test_an_index_is_signed_moved_back_and_forth(place: Place) -> None:
    key = MemorySigner(store=place.store)
    first = place.publish("both", key).decision.digest
    assert {digest for _, digest in place.store.signed} >= {first}
    (place.folder / "export").mkdir()
    config = {**CONFIG, "config": {"Labels": {**LABELS, "org.torchbake.inputs": "b"}}}
    place.digest = put(Layout(folder=place.folder / "export"), *LAYERS, packing=PACKINGS, config=config)
    place.layout.take(place.folder / "export", place.digest)
    transport = place.transport("gzip")
    candidate = replace(place.candidate(transport), labels=config["config"]["Labels"])  # type: ignore[index]
    supply = supply_of("pytorch", transport, place.folder / "cache", place.folder / "layers")
    second = Publisher(place.registry, signer=key).publish(candidate, supply, lambda _: None, lambda *_: None)
    assert str(second.decision.tag) == f"{ID}-r1"
    assert place.store.tags["latest"] == second.decision.digest
    for back, digest in ((True, first), (False, second.decision.digest)):
        shift(place.registry, TAGS, to=None, back=back, verifier=key)
        assert place.store.tags["latest"] == digest


def test_a_lost_blob_of_either_image_is_found(place: Place) -> None:
    place.publish("both")
    _, images = place.served()
    for image in images:
        lost = image.layers[0].digest
        data = place.store.blobs.pop(lost)
        served = Survey(place.registry).look_up("latest").image
        assert served
        assert [piece.digest for piece in served.pieces if piece.actual_size is None] == [lost]
        assert served.labels == LABELS
        place.store.blobs[lost] = data


def test_an_index_of_different_images_is_nobodys_release(place: Place) -> None:
    place.publish("both")
    index, images = place.served()
    content = json.loads(images[0].data)
    content["config"] = {**content["config"], "digest": images[0].layers[0].digest}
    other = Manifest(data=json.dumps(content).encode(), media_type=images[0].media_type)
    place.registry.put(other, other.digest)
    text = index.data.replace(images[1].digest.encode(), other.digest.encode())
    mixed = Manifest(data=text, media_type=index.media_type)
    place.registry.put(mixed, "latest")
    holder = Holdings(place.registry).look("latest")
    assert holder
    assert (holder.labels, holder.config) == ({}, "")


def test_a_layer_is_compressed_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[Path] = []

    def counted(source: Path, target: Path) -> object:
        paths.append(source)
        return gzip_layer(source, target)

    monkeypatch.setattr(gzip_images, "gzip_layer", counted)
    for _ in range(2):
        place.transport("gzip").prepare(place.digest)
        place.transport("both").prepare(place.digest)
    assert len(paths) == len(LAYERS)
    (place.folder / "export").mkdir()
    upper = archive(file("other", b"o"))
    other = put(Layout(folder=place.folder / "export"), LAYERS[0], upper, packing=PACKINGS, config=CONFIG)
    place.layout.take(place.folder / "export", other)
    place.transport("gzip").prepare(other)
    assert len(paths) == len(LAYERS) + 1


def test_the_same_image_gives_the_same_gzip(place: Place) -> None:
    first = place.transport("gzip").prepare(place.digest)
    remove_folder(place.gzip.folder)
    assert place.transport("gzip").prepare(place.digest).digest == first.digest
    header = place.gzip.path(place.gzip.get(first.digest).layers[0].digest).read_bytes()[:10]
    assert header[:8] == b"\x1f\x8b\x08\x00" + bytes(4)  # neither a name nor a time


def test_images_that_were_removed_leave_the_layout_of_gzip(place: Place) -> None:
    transport = place.transport("gzip")
    transport.prepare(place.digest)
    transport.tidy()
    assert place.gzip.configs() == {place.config}
    place.layout.tidy([])
    transport.tidy()
    assert place.gzip.files() == []


def _truncated(place: Place) -> None:
    path = place.layout.path(place.layout.get(place.digest).layers[1].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-9])


def _flipped(place: Place) -> None:
    damage(place.layout.path(place.layout.get(place.digest).layers[0].digest), is_seen=False)


@pytest.mark.parametrize("spoil", [_truncated, _flipped])
def test_a_damaged_layer_is_not_compressed_again(place: Place, spoil: Callable[[Place], None]) -> None:
    manifest = place.layout.get(place.digest)
    spoil(place)
    with pytest.raises(BuildError, match=f"{place.digest} cannot be compressed again"):
        gzip_images.gzip_image(manifest, place.layout.blobs, place.gzip)
    assert place.gzip.entries() == []


def test_both_needs_an_image_with_zstd(tmp_path: Path) -> None:
    place = Place(tmp_path, "gzip", "gzip")
    with pytest.raises(EngineError, match="cannot be sent in both compressions"):
        place.transport("both").prepare(place.digest)
    assert place.publish("gzip").decision.action == "release"


def test_what_is_sent_unpacks_to_what_a_classic_store_tested(place: Place) -> None:
    transport = place.transport("both")
    candidate = replace(place.candidate(transport), tested=place.config)
    transport.prepare(place.digest)
    supply = supply_of("pytorch", transport, place.folder / "cache", place.folder / "layers")
    publish = partial(Publisher(place.registry).publish, candidate, supply, lambda _: None, lambda *_: None)
    content = transport.take_out(candidate.digest, place.folder, lambda _: True)
    damage(content.images[0].path(content.images[0].manifest.layers[0]), is_seen=False)
    with pytest.raises(EngineError):
        publish()
    assert place.store.tags == {}
