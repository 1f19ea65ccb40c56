"""Validation of a real release, on a registry in memory: verdicts, reports, and orderly ends."""

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.small import Small
from tests.unit.conftest import cuda_pins, image, lock_for
from tests.unit.engines import Box, Daemon
from tests.unit.processes import interrupt
from tests.unit.registries import MemoryRegistry, MemorySigner, OnMessage, Store
from torchbake.checks.reports import ImageResult, Reports
from torchbake.checks.smoke_run import Session
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.problem import Problem, unknown
from torchbake.engine.runner import RUN
from torchbake.errors import EngineError, RegistryError
from torchbake.oci.reference import Reference
from torchbake.registry.cosign import NoCosign as Unsigned
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher
from torchbake.release.record import RecordedVerdict
from torchbake.render.dockerfile import promised_labels
from torchbake.validate.judge import Inside
from torchbake.validate.promise import promise_of
from torchbake.validate.pull import PULL, VERSIONS, InspectionRequest, Look, Looker, NoInspection
from torchbake.validate.run import Foreign, MatrixSubject, ValidateRun, ValidationSubject

PASSED, FAILED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN
SPEC = image()
LOCK = lock_for(SPEC, cuda_pins())
TAGS = (SPEC.id, "2.10", "latest")
LABELS = promised_labels(SPEC, LOCK) | {"org.torchbake.inputs": "sha256:a", "org.torchbake.base": "registry"}


@dataclass
class Eyes(Looker):
    """A looker in memory. ``finds`` are the problems of images by digest; all others pass."""

    finds: dict[str, str] = field(default_factory=dict)
    questions: list[InspectionRequest] = field(default_factory=list)
    during: Callable[[Look], None] = lambda look: look("versions inside")
    stopped: bool = False

    def look_into(self, question: InspectionRequest, look: Look) -> Inside:
        self.questions.append(question)
        self.during(look)
        text = self.finds.get(question.digest)
        problem = question.problem or (Problem(reason=text) if text else None)
        return tuple(CheckResult.of(name, problem) for name in (PULL, VERSIONS))

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Place:
    """A registry with a release, and who validates it."""

    folder: Path
    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)
    session: Session = field(default_factory=Session)
    daemon: Daemon = field(default_factory=Daemon)
    looker: Looker = field(default_factory=Eyes)

    @property
    def key(self) -> MemorySigner:
        return MemorySigner(store=self.store)

    @property
    def reports(self) -> Reports:
        return Reports(folder=self.folder / "reports")

    def release(self, layer: str = "one", labels: Mapping[str, str] = LABELS) -> str:
        manifest = self.small.make(labels, [layer.encode()])
        verdict = RecordedVerdict(suite="s", started="now", outcome=PASSED, counts={"passed": 1})
        candidate = Candidate(id=SPEC.id, digest=manifest.digest, labels=labels, tags=TAGS, verdict=verdict)
        publisher = Publisher(MemoryRegistry(self.store), signer=self.key)
        publisher.publish(candidate, self.small.supply, lambda _: None, lambda *_: None)
        return manifest.digest

    def row(self, message: OnMessage = lambda *_: None, **changes: Any) -> MatrixSubject:
        arguments: dict[str, Any] = {"verifier": self.key, "known_ids": frozenset({SPEC.id}), **changes}
        return MatrixSubject(
            promise=promise_of(SPEC, TAGS, LOCK), registry=MemoryRegistry(self.store, message=message), **arguments
        )

    def foreign(self, key: str, **expected: str) -> Foreign:
        registry = MemoryRegistry(self.store)
        reference = Reference(repository=registry.repository, tag=key)
        return Foreign(reference=reference, registry=registry, expected=expected)

    def run(self, *subjects: ValidationSubject, jobs: int = 2, engine: bool = True) -> dict[str, ImageResult]:
        """Validate the subjects, and return the results by tag."""
        run = ValidateRun(
            looker=self.looker, reports=self.reports, session=self.session,
            engine=self.daemon.engine if engine else None,
        )  # fmt: skip
        return {one.name.rpartition(":")[2]: one for one in run.run(subjects, jobs=jobs)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Place(folder=tmp_path)


def failures(results: Mapping[str, ImageResult]) -> dict[str, set[str]]:
    matches = {name: {check.id for check in one.checks if check.outcome is FAILED} for name, one in results.items()}
    return {name: checks for name, checks in matches.items() if checks}


def test_released_images_are_good_and_each_tag_has_a_report(place: Place) -> None:
    digest = place.release()
    results = place.run(place.row())
    assert list(results) == [*TAGS, f"{SPEC.id}-r0"]
    assert failures(results) == {}
    assert {check.outcome for one in results.values() for check in one.checks} == {PASSED}
    for one in results.values():
        assert one.verdict
        assert (one.outcome, one.verdict.digest, one.verdict.id) == (PASSED, digest, SPEC.id)
        assert one.platform == SPEC.platform
        assert place.reports.find(one.name, digest) == one.verdict
        assert one.report
        assert one.report.exists()


def test_one_image_is_looked_into_once_whatever_its_tags(place: Place) -> None:
    digest = place.release()
    place.run(place.row())
    assert isinstance(place.looker, Eyes)
    assert [question.digest for question in place.looker.questions] == [digest]
    (question,) = place.looker.questions
    assert question.expected["torch"] == "2.10.0"
    assert question.row == SPEC.id


def test_a_tag_that_somebody_moved_is_the_one_that_fails(place: Place) -> None:
    place.release()
    theirs = place.small.make({}, [b"theirs"])
    place.store.blobs |= place.small.images[theirs.digest][1]
    MemoryRegistry(place.store).put(theirs, "latest")
    assert set(failures(place.run(place.row()))) == {"latest"}


def test_an_overwritten_release_is_told_of(place: Place) -> None:
    place.release()
    theirs = place.small.make(LABELS, [b"theirs"])
    place.store.blobs |= place.small.images[theirs.digest][1]
    MemoryRegistry(place.store).put(theirs, f"{SPEC.id}-r0")
    assert "registry.immutable" in failures(place.run(place.row()))[f"{SPEC.id}-r0"]


def test_a_lost_layer_is_told_of_and_such_an_image_is_not_pulled(place: Place) -> None:
    digest = place.release()
    layer = place.store.manifests[digest].layers[0].digest
    del place.store.blobs[layer]
    results = place.run(place.row())
    assert {"registry.blobs"} <= failures(results)["latest"]
    assert isinstance(place.looker, Eyes)
    assert [question.problem for question in place.looker.questions] == [unknown("not all of it is there")]


def test_what_is_inside_decides_too(place: Place) -> None:
    digest = place.release()
    place.looker = Eyes(finds={digest: "torch is 2.9.0"})
    matches = failures(place.run(place.row()))
    assert set(matches) == {*TAGS, f"{SPEC.id}-r0"}
    assert {check for checks in matches.values() for check in checks} == {PULL, VERSIONS}


def test_a_missing_signature_fails_only_if_there_is_a_key(place: Place) -> None:
    place.release()
    place.store.signed.clear()
    assert {"registry.signature"} == {check for checks in failures(place.run(place.row())).values() for check in checks}
    results = place.run(place.row(verifier=Unsigned(skip_reason="no key")))
    assert failures(results) == {}
    reasons = {one.reason for tag in results.values() for one in tag.checks if one.id == "registry.signature"}
    assert reasons == {"no key"}


def test_without_a_release_every_tag_of_the_image_is_missing(place: Place) -> None:
    results = place.run(place.row())
    assert list(results) == list(TAGS)
    assert all("registry.exists" in checks for checks in failures(results).values())
    assert len(failures(results)) == len(TAGS)


@pytest.mark.parametrize("required", [False, True])
def test_a_silent_registry_is_not_run_unless_it_is_required(place: Place, required: bool) -> None:
    place.release()

    def silence(*_: str) -> None:
        raise RegistryError("it does not answer")

    subjects: list[ValidationSubject] = [place.row(silence), place.foreign("2.10")]
    run = ValidateRun(
        looker=place.looker, reports=place.reports, session=place.session, engine=None, require_answer=required
    )
    results = run.run(subjects, jobs=1)
    assert [one.outcome for one in results] == [FAILED if required else Outcome.NOT_RUN] * len(TAGS) + [PASSED]
    failed = {check.id for one in results[:-1] for check in one.checks if check.outcome is FAILED}
    assert failed == ({"registry.answers"} if required else set())
    assert all(one.checks[0].reason == "it does not answer" for one in results[:-1])


@pytest.mark.parametrize(("expected", "wrong"), [({"torch": "2.10.0"}, False), ({"torch": "2.9.0"}, True), ({}, False)])
def test_any_reference_is_judged_by_what_is_expected_of_it(
    place: Place, expected: Mapping[str, str], wrong: bool
) -> None:
    digest = place.release()
    subject = place.foreign("latest", **expected)
    result = place.run(subject)["latest"]
    assert failures({"latest": result}) == ({"latest": {"registry.labels"}} if wrong else {})
    assert result.verdict
    assert (result.name, result.verdict.id, result.verdict.digest) == (subject.name, "", digest)


def test_a_missing_reference_has_a_verdict_and_a_report(place: Place) -> None:
    result = place.run(place.foreign("nothing"))["nothing"]
    assert result.verdict
    assert result.outcome is FAILED
    assert result.verdict.digest == "none"
    assert result.report
    assert result.report.exists()


def test_an_engine_that_fails_is_one_subjects_problem(place: Place) -> None:
    place.release()
    eyes = Eyes()

    def fail(_: Look) -> None:
        if len(eyes.questions) == 1:
            raise EngineError("the engine does not answer")

    place.looker, eyes.during = eyes, fail
    row, foreign = place.row(), place.foreign("latest")
    first, *_, last = ValidateRun(looker=eyes, reports=place.reports, session=place.session, engine=None).run(
        [row, foreign], jobs=1
    )
    assert (first.problem, first.outcome) == (Problem(reason="the engine does not answer"), FAILED)
    assert first.verdict is None
    assert (last.name, last.outcome) == (foreign.name, PASSED)


def test_nobody_looks_inside_where_that_is_not_asked_for(place: Place) -> None:
    place.release()
    place.looker = NoInspection(reason="--no-pull was given")
    results = place.run(place.row(), engine=False)
    assert failures(results) == {}
    assert {one.outcome for one in results.values()} == {PASSED}
    inside = {check.reason for one in results.values() for check in one.checks if check.id in (PULL, VERSIONS)}
    assert inside == {"--no-pull was given"}


def test_an_interruption_ends_queries_and_removes_containers(place: Place) -> None:
    place.release()
    waiting = threading.Event()

    def hang(look: Look) -> None:
        start = time.monotonic()
        waiting.set()
        while time.monotonic() - start < 10:
            look("still looking")  # raises once the run is stopped
            time.sleep(0.005)

    def stop() -> None:
        waiting.wait(10)
        time.sleep(0.05)
        interrupt()

    place.looker = Eyes(during=hang)
    labels = {RUN: place.session.id}
    for name, owner in (("ours", labels), ("theirs", {RUN: "another"})):
        place.daemon.boxes[name] = Box(
            daemon=place.daemon, id=name, image="x", command=(), options={"labels": owner}, started=True
        )
    threading.Thread(target=stop, daemon=True).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        place.run(place.row(), place.foreign("latest"), jobs=1)
    assert time.monotonic() - start < 5
    assert list(place.daemon.boxes) == ["theirs"]
    assert len(place.looker.questions) == 1
    assert place.looker.stopped
    assert not place.reports.folder.exists()
