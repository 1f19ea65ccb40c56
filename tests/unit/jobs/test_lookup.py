"""Look-ups of a job's image in a registry and in an engine."""

import json

import pytest

from tests.unit.engines import Daemon, MemoryEngine
from tests.unit.registries import MemoryRegistry, Store
from torchbake.errors import EngineError
from torchbake.jobs.lookup import in_engine, in_registry
from torchbake.jobs.pin import ResolvedImage
from torchbake.oci.labels import ID
from torchbake.oci.manifest import INDEX, MANIFEST, Manifest, sha256
from torchbake.oci.reference import parse_reference

REFERENCE = parse_reference("ghcr.io/acme/pytorch:latest")
LOCAL = "sha256:" + "a" * 64


def image(store: Store, labels: dict[str, str], *tags: str) -> str:
    """Put an image there, under these tags; its digest."""
    config = json.dumps({"config": {"Labels": labels}}).encode()
    store.blobs[sha256(config)] = config
    described = {"digest": sha256(config), "size": len(config), "mediaType": "x"}
    manifest = Manifest(data=json.dumps({"config": described}).encode(), media_type=MANIFEST)
    store.manifests[manifest.digest] = manifest
    store.tags |= dict.fromkeys(tags, manifest.digest)
    return manifest.digest


@pytest.fixture
def store() -> Store:
    return Store()


def test_an_image_of_ours_is_found_with_its_newest_release(store: Store) -> None:
    image(store, {ID: "2-cpu", "n": "old"}, "2-cpu-r1", "2-cpu-r12")
    digest = image(store, {ID: "2-cpu"}, "latest", "2-cpu", "2-cpu-r2", "2-cpu-r10", "3-cpu-r11")
    stored = in_registry(lambda _: MemoryRegistry(store))(REFERENCE)
    assert stored == ResolvedImage(digest=digest, tags=("2-cpu-r10",), ours=True)


def test_a_foreign_image_is_found_without_a_list_of_all_tags(store: Store) -> None:
    digest, requests = image(store, {}, "latest", "latest-r1"), list[str]()
    registry = MemoryRegistry(store, message=lambda _, key: requests.append(key))
    assert in_registry(lambda _: registry)(REFERENCE) == ResolvedImage(digest=digest, ours=False)
    assert "tags" not in requests


def test_an_index_is_ours_as_its_first_image_is(store: Store) -> None:
    """Docker's buildx pushes an index of one image and its attestation."""
    attested, ours = image(store, {"n": "attestation"}), image(store, {ID: "2-cpu"}, "2-cpu-r1")
    for digest, expected in ((ours, True), (attested, False), (sha256(b"gone"), None)):
        listed = [
            {"digest": attested, "size": 2, "platform": {"os": "unknown", "architecture": "unknown"}},
            {"digest": digest, "size": 2, "platform": {"os": "linux", "architecture": "amd64"}},
        ]
        index = Manifest(data=json.dumps({"manifests": listed}).encode(), media_type=INDEX)
        store.manifests[index.digest] = index
        store.tags["latest"] = index.digest
        stored = in_registry(lambda _: MemoryRegistry(store))(REFERENCE)
        assert stored == ResolvedImage(digest=index.digest, ours=expected)


def test_what_a_registry_has_not_is_not_found(store: Store) -> None:
    assert in_registry(lambda _: MemoryRegistry(store))(REFERENCE) is None


@pytest.mark.parametrize(
    ("containerd", "pulled", "digest", "sure"),
    [(False, True, LOCAL, True), (False, False, "", True), (True, False, LOCAL, False)],
)
def test_a_digest_of_the_containerd_store_proves_no_registry(
    containerd: bool, pulled: bool, digest: str, sure: bool
) -> None:
    daemon = Daemon(containerd=containerd)
    daemon.hold(
        LOCAL,
        "acme/pytorch:cpu",
        "acme/pytorch:cpu-r1",
        "other/name:cpu-r9",
        pulled=pulled,
        labels={ID: "x"} if pulled else {},
    )
    look = in_engine(lambda: daemon.engine)
    assert look(parse_reference("acme/pytorch:cpu")) == ResolvedImage(
        digest=digest, tags=("cpu", "cpu-r1"), sure=sure, ours=pulled
    )
    assert look(parse_reference("acme/pytorch:other")) is None


def test_an_unreachable_engine_finds_nothing_and_is_queried_once() -> None:
    requests = list[str]()

    def connect() -> MemoryEngine:
        requests.append("engine")
        raise EngineError("no engine")

    look = in_engine(connect)
    assert look(REFERENCE) is None
    assert look(REFERENCE) is None
    assert requests == ["engine"]
