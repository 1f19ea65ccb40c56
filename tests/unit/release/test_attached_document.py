"""Documents that are attached to a released image, at its release and later, in a registry in memory."""

from collections.abc import Callable

import pytest

from tests.small import Small
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from torchbake.errors import RegistryError
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.manifest import Manifest
from torchbake.registry.artifact import Artifact, text_of
from torchbake.registry.cosign import NoCosign
from torchbake.registry.referrers import referrers_of
from torchbake.release.attached_document import attach_document
from torchbake.release.candidate import Candidate, Publication
from torchbake.release.decide import Decision
from torchbake.release.publisher import Publisher

UNSIGNED = NoCosign(skip_reason="no key was given")
VEX = Artifact(name="vex", media_type=MEDIA_TYPE, text='{"a": 1}')
OTHER = Artifact(name="vex", media_type=MEDIA_TYPE, text='{"a": 2}')
TAGS = ("2.7.1-cuda", "latest")


def released(registry: MemoryRegistry, small: Small, inputs: str = "a") -> Publication:
    labels = {"org.torchbake.id": TAGS[0], "org.torchbake.torch": "2.7.1", "org.torchbake.inputs": inputs}
    manifest = small.make(labels, [inputs.encode()])
    candidate = Candidate(id=TAGS[0], digest=manifest.digest, labels=labels, tags=TAGS, verdict=None)
    return Publisher(registry).publish(candidate, small.supply, lambda _: None, lambda *_: None)


def documents(registry: MemoryRegistry, digest: str) -> dict[str, Manifest]:
    """The attached documents of one image, by their texts."""
    manifests = [registry.manifest(one) for one in referrers_of(registry, digest)]
    texts = {text_of(registry, one, "").decode(): one for one in manifests if one}
    return {text: one for text, one in texts.items() if text in (VEX.text, OTHER.text)}


@pytest.mark.parametrize("store", [Store, lambda: Store(lists=False)], ids=["referrers", "tag"])
def test_a_document_is_listed_and_has_no_tag(store: Callable[[], Store]) -> None:
    registry = MemoryRegistry(store())
    release = released(registry, Small())
    before = {tag: digest for tag, digest in registry.store.tags.items() if not tag.startswith("sha256-")}
    publication = Publisher(registry).attach(release, VEX, lambda _: None)
    (manifest,) = documents(registry, release.tested).values()
    assert publication.documents == {"vex": manifest.digest}
    assert manifest.content["artifactType"] == MEDIA_TYPE
    assert "org.opencontainers.image.created" in manifest.content["annotations"]
    assert before == {tag: digest for tag, digest in registry.store.tags.items() if not tag.startswith("sha256-")}


def test_equal_documents_are_attached_once() -> None:
    writes = list[str]()
    registry = MemoryRegistry(Store(), message=lambda method, key: writes.append(key) if method == "PUT" else None)
    digest = released(registry, Small()).tested
    first = attach_document(registry, digest, VEX, UNSIGNED)
    writes.clear()
    assert attach_document(registry, digest, VEX, UNSIGNED) == first
    assert writes == []
    assert attach_document(registry, digest, OTHER, UNSIGNED) != first
    assert set(documents(registry, digest)) == {VEX.text, OTHER.text}


def test_a_document_that_comes_back_is_the_newest_again() -> None:
    registry = MemoryRegistry(Store())
    digest = released(registry, Small()).tested
    for artifact in (VEX, OTHER, VEX):
        last = attach_document(registry, digest, artifact, UNSIGNED)
    manifests = filter(None, (registry.manifest(one) for one in referrers_of(registry, digest)))
    dated = [one for one in manifests if "annotations" in one.content]
    newest = max(dated, key=lambda one: str(one.content["annotations"]["org.opencontainers.image.created"]))
    assert (newest.digest, text_of(registry, newest, "").decode()) == (last, VEX.text)


def test_a_document_that_is_not_needed_only_follows_another() -> None:
    registry = MemoryRegistry(Store())
    release = released(registry, Small())
    publication = Publisher(registry).attach(release, OTHER, lambda _: None, always=False)
    assert (publication.documents, documents(registry, release.tested)) == ({}, {})
    attach_document(registry, release.tested, VEX, UNSIGNED)
    publication = Publisher(registry).attach(release, OTHER, lambda _: None, always=False)
    assert publication.documents["vex"] == documents(registry, release.tested)[OTHER.text].digest


def test_a_document_is_signed_also_if_it_was_attached_before() -> None:
    registry = MemoryRegistry(Store())
    digest = released(registry, Small()).tested
    document = attach_document(registry, digest, VEX, UNSIGNED)
    signer = MemorySigner(store=registry.store)
    assert not signer.holds(registry.repository, [document])
    assert attach_document(registry, digest, VEX, signer) == document
    assert signer.holds(registry.repository, [document])


def test_a_document_is_not_attached_to_another_build() -> None:
    registry = MemoryRegistry(Store())
    release = released(registry, Small())
    decision = Decision(action="nothing", tag=release.decision.tag, digest=release.tested, moves=(), held_back={})
    other = Publication(decision=decision, tested=f"sha256:{'0' * 64}")
    assert Publisher(registry).attach(other, VEX, lambda _: None) == other
    assert documents(registry, release.tested) == {}
    same = Publication(decision=decision, tested=f"sha256:{'0' * 64}", released_by="gzip")
    assert Publisher(registry).attach(same, VEX, lambda _: None).documents


def test_an_image_that_is_gone_gets_no_document() -> None:
    with pytest.raises(RegistryError, match="does not hold"):
        attach_document(MemoryRegistry(Store()), f"sha256:{'0' * 64}", VEX, UNSIGNED)
