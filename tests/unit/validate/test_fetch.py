"""Validation of an index of two platforms, on a registry in memory: each platform is judged by its own promise."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.small import Small
from tests.unit.conftest import cuda_pins, image, lock_for
from tests.unit.engines import Daemon
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from tests.unit.validate.test_run import Eyes, failures
from torchbake.checks.reports import ImageResult, Reports
from torchbake.checks.smoke_run import Session
from torchbake.checks.verdict import Outcome
from torchbake.matrix.platforms import platform_tag, shared_id
from torchbake.matrix.spec import AMD64, ARM64, PLATFORMS, ImageSpec
from torchbake.oci.reference import Reference
from torchbake.release.candidate import Candidate
from torchbake.release.platforms import PlatformPart, PlatformSet
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import RecordedVerdict
from torchbake.render.dockerfile import promised_labels
from torchbake.validate.promise import promise_of
from torchbake.validate.run import Foreign, MatrixSubject, ValidateRun, ValidationSubject

SPECS = (image(), image(platform=ARM64))
OWN = SPECS[0].own_tag
TAGS = (OWN, "2.10", "latest")
LOCK = lock_for(SPECS[0], cuda_pins())


@dataclass
class Pair:
    """A registry with a release of two platforms, and who validates it."""

    folder: Path
    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)
    looker: Eyes = field(default_factory=Eyes)

    @property
    def key(self) -> MemorySigner:
        return MemorySigner(store=self.store)

    @property
    def publisher(self) -> Publisher:
        return Publisher(MemoryRegistry(self.store), signer=self.key)

    def release(self, spec: ImageSpec, inputs: str = "a", **changes: str) -> None:
        labels = promised_labels(spec, LOCK) | {"org.torchbake.inputs": f"{spec.platform} {inputs}", **changes}
        architecture = spec.platform.partition("/")[2]
        manifest = self.small.make(labels, [f"{spec.platform} {inputs}".encode()], architecture=architecture)
        verdict = RecordedVerdict(suite="s", started="now", outcome=Outcome.PASSED, counts={"passed": 1})
        candidate = Candidate(
            id=spec.id, digest=manifest.digest, labels=labels, tags=(), own=platform_tag(spec), verdict=verdict
        )
        self.publisher.publish(candidate, self.small.supply, lambda _: None, lambda *_: None)

    def release_alone(self, spec: ImageSpec) -> None:
        """Release an image of a row that has one platform."""
        labels = promised_labels(spec, LOCK) | {"org.torchbake.inputs": "alone"}
        manifest = self.small.make(labels, [b"alone"], architecture=spec.platform.partition("/")[2])
        verdict = RecordedVerdict(suite="s", started="now", outcome=Outcome.PASSED, counts={"passed": 1})
        single = Candidate(id=spec.id, digest=manifest.digest, labels=labels, tags=TAGS, own=OWN, verdict=verdict)
        self.publisher.publish(single, self.small.supply, lambda _: None, lambda *_: None)

    def join(self) -> None:
        parts = [PlatformPart(platform=spec.platform, id=spec.id, name=platform_tag(spec)) for spec in SPECS]
        pair = PlatformSet(id=OWN, repository="team/pytorch", tags=TAGS, parts=tuple(parts))
        self.publisher.publish_index(pair, lambda _: None)

    def subject(self, spec: ImageSpec) -> MatrixSubject:
        promise = promise_of(spec, TAGS, LOCK)
        return MatrixSubject(
            promise=replace(promise, tags=(), own=platform_tag(spec)),
            index=replace(promise, index=shared_id(spec)),
            registry=MemoryRegistry(self.store),
            known_ids=frozenset(each.id for each in SPECS),
            verifier=self.key,
        )

    def run(self, *subjects: ValidationSubject) -> dict[str, ImageResult]:
        run = ValidateRun(
            looker=self.looker, reports=Reports(folder=self.folder), session=Session(), engine=Daemon().engine
        )  # fmt: skip
        results = run.run(subjects, jobs=1)
        names = [one.name.partition("team/pytorch:")[2] for one in results]
        assert len(set(names)) == len(names)
        return dict(zip(names, results, strict=True))

    def validate(self) -> dict[str, ImageResult]:
        return self.run(*map(self.subject, SPECS))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = Pair(folder=tmp_path)
    for spec in SPECS:
        place.release(spec)
    place.join()
    return place


def outcomes(results: Mapping[str, ImageResult]) -> set[Outcome]:
    return {check.outcome for one in results.values() for check in one.checks}


def test_every_tag_is_good_for_each_platform(pair: Pair) -> None:
    results = pair.validate()
    assert list(results) == [
        name
        for spec in SPECS
        for name in (f"{platform_tag(spec)}-r0", *(f"{tag} ({spec.platform})" for tag in (*TAGS, f"{OWN}-r0")))
    ]
    assert failures(results) == {}
    assert outcomes(results) == {Outcome.PASSED}


def test_the_image_of_each_platform_is_looked_into_once(pair: Pair) -> None:
    pair.validate()
    questions = pair.looker.questions
    assert [question.platform for question in questions] == [AMD64, ARM64]
    assert [question.row for question in questions] == [spec.id for spec in SPECS]
    assert len({question.digest for question in questions}) == 2


def test_a_wrong_image_of_one_platform_is_its_failure_alone(pair: Pair) -> None:
    pair.release(SPECS[1], "b", **{"org.torchbake.cuda": "11.8"})
    pair.join()
    wrong = failures(pair.validate())
    assert wrong
    assert all("arm64" in name for name in wrong)
    assert set().union(*wrong.values()) == {"registry.labels"}


@pytest.mark.parametrize("spec", SPECS, ids=PLATFORMS)
def test_a_release_before_the_row_had_the_platform_is_left_out(pair: Pair, spec: ImageSpec) -> None:
    pair = Pair(folder=pair.folder)
    pair.release_alone(spec)
    for each in SPECS:
        pair.release(each)
    pair.join()
    results = pair.validate()
    assert failures(results) == {}
    assert [name for name in results if name.startswith(f"{OWN}-r0")] == [f"{OWN}-r0 ({spec.platform})"]


def test_after_a_rollback_to_one_platform_the_other_fails(pair: Pair) -> None:
    pair = Pair(folder=pair.folder)
    pair.release_alone(SPECS[0])
    for spec in SPECS:
        pair.release(spec)
    pair.join()
    shift(MemoryRegistry(pair.store), TAGS, to=None, back=True, verifier=pair.key)
    wrong = failures(pair.validate())
    assert set(wrong) == {f"{tag} ({ARM64})" for tag in TAGS}
    assert all("registry.platform" in checks for checks in wrong.values())


@pytest.mark.parametrize("spec", SPECS, ids=PLATFORMS)
def test_a_row_that_lost_a_platform_keeps_its_indexes(pair: Pair, spec: ImageSpec) -> None:
    pair.release_alone(spec)
    subject = MatrixSubject(
        promise=promise_of(spec, TAGS, LOCK), registry=MemoryRegistry(pair.store), verifier=pair.key,
        known_ids=frozenset({spec.id}),
    )  # fmt: skip
    results = pair.run(subject)
    assert list(results) == [*TAGS, f"{OWN}-r0", f"{OWN}-r1"]
    assert failures(results) == {}
    shift(MemoryRegistry(pair.store), TAGS, to=None, back=True, verifier=pair.key)
    assert failures(pair.run(subject)) == {}


def test_an_index_must_have_the_released_image(pair: Pair) -> None:
    """Nobody can replace the image of one platform behind the record of the index."""
    name = f"{platform_tag(SPECS[1])}-r0"
    labels = promised_labels(SPECS[1], LOCK) | {"org.torchbake.inputs": f"{ARM64} a"}
    other = pair.small.make(labels, [b"another build"], architecture="arm64")
    pair.store.blobs |= pair.small.images[other.digest][1]
    MemoryRegistry(pair.store).put(other, name)
    wrong = failures(pair.validate())
    assert "registry.record" in wrong[f"{OWN}-r0 ({ARM64})"]
    assert f"{OWN}-r0 ({AMD64})" not in wrong
    assert "registry.immutable" in wrong[name]


def test_a_tag_without_the_platform_fails(pair: Pair) -> None:
    manifest = MemoryRegistry(pair.store).manifest(f"{platform_tag(SPECS[0])}-r0")
    assert manifest
    MemoryRegistry(pair.store).put(manifest, "latest")
    wrong = failures(pair.validate())
    assert set(wrong) == {f"latest ({AMD64})", f"latest ({ARM64})"}
    assert "registry.platform" in wrong[f"latest ({ARM64})"]
    assert wrong[f"latest ({AMD64})"] == {"registry.rolling"}


def test_a_rollback_of_the_index_is_good(pair: Pair) -> None:
    for spec in SPECS:
        pair.release(spec, "b")
    pair.join()
    shift(MemoryRegistry(pair.store), TAGS, to=None, back=True, verifier=pair.key)
    assert failures(pair.validate()) == {}


@pytest.mark.parametrize("platform", [AMD64, ARM64])
def test_a_reference_is_judged_for_one_platform(pair: Pair, platform: str) -> None:
    registry = MemoryRegistry(pair.store)
    reference = Reference(repository=registry.repository, tag="latest")
    subject = Foreign(
        reference=reference, registry=registry, expected={"torch": "2.10.0"}, platform=platform, verifier=pair.key
    )  # fmt: skip
    results = pair.run(subject)
    assert failures(results) == {}
    (question,) = pair.looker.questions
    assert question.platform == platform
