"""Images that publish, promote and rollback sign, record and move, while others write to the registry in memory."""

import copy
import json
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from docker.errors import ImageNotFound

from tests.small import Small
from tests.unit.conftest import NIGHTLY, init_image
from tests.unit.registries import MemoryRegistry, MemorySigner, OnMessage, Store, Turns
from torchbake.checks.verdict import Outcome
from torchbake.commands.publish import Due, DueRelease
from torchbake.commands.publish import _plan as plan_all
from torchbake.commands.publish import _publish as publish_all
from torchbake.engine.export import Content
from torchbake.errors import PublishError, RegistryError
from torchbake.oci.manifest import Manifest
from torchbake.oci.reference import Repository
from torchbake.oci.tag_names import ARTIFACTS, artifact_tag
from torchbake.registry.artifact import IMAGE_CONFIG, Artifact, put_artifact, subject_of
from torchbake.registry.cosign import NoCosign, Signer
from torchbake.registry.referrers import fallback_tag, referrers_of
from torchbake.registry.transport import StatusError
from torchbake.release.attestations import SBOM_TYPE
from torchbake.release.candidate import Candidate, Publication
from torchbake.release.decide import Decision
from torchbake.release.immutable_tag import _give_way
from torchbake.release.promote import Shift, shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import Record, RecordedVerdict, find_record, read_record, write_record
from torchbake.ui.command import Command

REPOSITORY = Repository(host="one.example.com", path="team/pytorch")
OURS = "2.7.1-cuda12.6"
TAGS = (OURS, "2.7", "latest")
UNSIGNED = NoCosign(skip_reason="no key was given")
PARTS = ("", *(f".{name}" for name in ARTIFACTS), ".release")


def judged(suite: str) -> RecordedVerdict:
    return RecordedVerdict(suite=suite, started="now", outcome=Outcome.PASSED, counts={"passed": 40})


@dataclass
class Place:
    """A registry, and images that were built and tested on several machines."""

    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)

    def registry(self, machine: str = "one", message: OnMessage = lambda *_: None) -> MemoryRegistry:
        return MemoryRegistry(self.store, machine, message)

    @property
    def key(self) -> MemorySigner:
        return MemorySigner(store=self.store)

    def candidate(self, inputs: str = "a", build: str = "ours") -> Candidate:
        """Builds of the same inputs differ in their layer alone: labels are anybody's to write."""
        labels = {"org.torchbake.id": OURS, "org.torchbake.torch": "2.7.1", "org.torchbake.inputs": inputs}
        manifest = self.small.make(labels, [f"{build} of {inputs}".encode()])
        return Candidate(id=OURS, digest=manifest.digest, labels=labels, tags=TAGS, verdict=judged(build))

    def publish(
        self,
        candidate: Candidate,
        signer: Signer = UNSIGNED,
        *,
        keep: bool = False,
        machine: str = "one",
        message: OnMessage = lambda *_: None,
    ) -> Publication:
        publisher = Publisher(self.registry(machine, message), signer=signer, immutable_only=keep)
        return publisher.publish(candidate, self.small.supply, lambda _: None, lambda *_: None)

    def finish(self, signer: Signer = UNSIGNED, *, dry: bool = False) -> Decision | None:
        return Publisher(self.registry(), signer=signer).finish(TAGS, lambda _: None, dry=dry)

    def back(self, to: int | None = None, signer: Signer = UNSIGNED) -> Shift:
        return shift(self.registry(), TAGS, to=to, back=True, verifier=signer)

    def forward(self, to: int | None = None, signer: Signer = UNSIGNED) -> Shift:
        return shift(self.registry(), TAGS, to=to, back=False, verifier=signer)

    def rolling(self) -> set[str | None]:
        """Return the digests that the rolling tags point at."""
        return {self.store.tags.get(tag) for tag in TAGS}

    def record(self, revision: int = 0) -> Record:
        record = read_record(self.registry(), f"{OURS}-r{revision}")
        assert record
        return record

    def plant(self, candidate: Candidate, revision: int = 0) -> Manifest:
        """Put an image with our labels under an immutable tag, as anybody with write access can."""
        manifest, blobs, _ = self.small.images[candidate.digest]
        self.store.blobs |= blobs
        self.registry().put(manifest, f"{OURS}-r{revision}")
        return manifest

    def plant_record(self, candidate: Candidate, revision: int = 0, lies: Mapping[str, object] = {}) -> None:
        """A record that says what ours would say, but for the lies."""
        tag, manifest = f"{OURS}-r{revision}", self.plant(candidate, revision)
        content = self.small.describe(_content(manifest))
        attached = {}
        for artifact in content:
            pushed = put_artifact(self.registry(), artifact, manifest)
            self.registry().put(pushed, artifact_tag(tag, artifact.name))
            attached[artifact.name] = pushed.digest
        lines = {
            "state": "begun", "id": OURS, "tag": tag, "digest": candidate.digest, "released": "2026-01-01",
            "inputs": candidate.labels["org.torchbake.inputs"], "size": 1, "layers": 1, "labels": candidate.labels,
            "rolling": (), "verdict": judged("theirs"), "attached": attached, "signature": "by ours",
        }  # fmt: skip
        write_record(self.registry(), Record.model_validate({**lines, **lies}), manifest)

    def signed(self) -> set[str]:
        return {digest for _, digest in self.store.signed}


def _content(manifest: Manifest) -> Content:
    return Content(manifest=manifest, folder=Path("/nowhere"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    return Place()


@pytest.fixture(params=["signed", "unsigned"])
def signer(request: pytest.FixtureRequest, place: Place) -> Signer:
    return place.key if request.param == "signed" else UNSIGNED


PLANTS: Mapping[str, Callable[[Place, Candidate], object]] = {
    "an image": lambda place, theirs: place.plant(theirs),
    "an image with a record that is begun": lambda place, theirs: place.plant_record(theirs),
    "an image over what was released": lambda place, theirs: (
        place.publish(place.candidate(build="first"), place.key),
        place.plant(theirs),
    ),
}


@pytest.mark.parametrize("keep", [False, True], ids=["rolling", "left"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_revision_is_neither_signed_nor_promoted(
    place: Place, signer: Signer, plant: str, *, keep: bool
) -> None:
    ours, theirs = place.candidate(), place.candidate(build="theirs")
    PLANTS[plant](place, theirs)
    before = dict(place.store.tags)
    if keep and signer is UNSIGNED and "begun" in plant:  # it is left to who promotes it: nothing here proves more
        assert place.publish(ours, signer, keep=keep).decision.action == "nothing"
        assert place.store.tags == before
        return
    with pytest.raises(PublishError) as refused:
        place.publish(ours, signer, keep=keep)
    assert f"{OURS}-r0 holds {theirs.digest}" in refused.value.message
    assert place.store.tags == before
    assert theirs.digest not in place.signed()
    # Nor does the plan say that it would be.
    with pytest.raises(PublishError, match=theirs.digest):
        Publisher(place.registry(), signer=signer, immutable_only=keep).plan(ours)


@pytest.mark.parametrize("state", ["begun", "released"])
def test_with_a_key_a_planted_record_is_trusted_by_nobody(place: Place, state: str) -> None:
    theirs = place.candidate(build="theirs")
    place.plant_record(theirs, lies={"state": state})
    before = dict(place.store.tags)
    for attempt in (
        lambda: place.finish(place.key),
        lambda: place.finish(place.key, dry=True),
        lambda: place.publish(place.candidate(), place.key),
        lambda: place.forward(signer=place.key),
        lambda: place.back(0, place.key),
    ):
        with pytest.raises(PublishError, match=f"holds {theirs.digest}, and its image .* is not signed"):
            attempt()
    assert (place.store.tags, place.signed()) == (before, set())


def test_a_record_of_ours_does_not_stand_for_another_revision(place: Place) -> None:
    first = place.candidate()
    place.publish(first, place.key)
    stored = find_record(place.registry(), f"{OURS}-r0")
    assert stored
    # All of it is signed by us: the image, what is attached to it, and the record.
    for part in PARTS:
        place.store.tags[f"{OURS}-r1{part}"] = place.store.tags[f"{OURS}-r0{part}"]
    for attempt in (lambda: place.finish(place.key), lambda: place.forward(signer=place.key)):
        with pytest.raises(PublishError, match=f"its record says that its tag is {OURS}-r0"):
            attempt()


LIES: Mapping[str, Mapping[str, object]] = {
    "tag": {"tag": f"{OURS}-r0", "id": OURS, "digest": "sha256:" + "0" * 64},
    "id": {"id": "2.7.1-cuda12.6-devel"},
    "inputs": {"inputs": "others"},
    "labels": {"labels": {"org.torchbake.torch": "9.9"}},
    "attached": {"attached": {"sbom": "sha256:" + "0" * 64}},
    "nothing attached": {"attached": {}},
}


@pytest.mark.parametrize("lie", LIES)
def test_without_a_key_a_record_must_at_least_be_true(place: Place, lie: str) -> None:
    theirs = place.candidate(build="theirs")
    place.plant_record(theirs, lies=LIES[lie])
    before = dict(place.store.tags)
    for attempt in (place.finish, place.forward, lambda: place.back(0)):
        with pytest.raises(PublishError, match=f"{OURS}-r0 holds {theirs.digest}, and "):
            attempt()
    assert place.store.tags == before


def test_an_unfinished_local_release_is_promoted_by_its_verdict(place: Place, signer: Signer) -> None:
    ours = place.candidate()
    place.publish(ours, signer, keep=True)
    record = place.record()
    assert place.rolling() == {None}
    finished = place.finish(signer)
    assert finished
    assert finished.action == "finish"
    assert (place.record(), record.verdict, place.rolling()) == (record, judged("ours"), {ours.digest})
    assert [(moved.tag, moved.before, moved.after) for moved in record.rolling] == [
        (tag, None, ours.digest) for tag in TAGS
    ]
    if not signer.skip_reason:
        assert {place.store.tags[f"{OURS}-r0{part}"] for part in PARTS} <= place.signed()


def test_what_is_signed_is_not_finished_without_a_key(place: Place) -> None:
    ours = place.candidate()
    place.publish(ours, place.key, keep=True)
    before = dict(place.store.tags)
    for attempt in (place.finish, lambda: place.publish(ours)):
        with pytest.raises(PublishError, match="its record is signed"):
            attempt()
    assert place.store.tags == before
    place.finish(place.key)
    assert place.publish(ours).decision.action == "nothing"  # which needs no key


def test_a_record_of_another_tag_puts_nothing_back(place: Place) -> None:
    """A record that somebody forged under our record's tag changes no other tag."""
    foreign = place.candidate(build="theirs")
    place.publish(foreign)
    record = place.record()
    ours = place.small.make({}, [b"ours"])
    registry = place.registry()
    manifest = registry.manifest(foreign.digest)
    assert manifest
    write_record(registry, record.model_copy(update={"tag": "stable"}), manifest, lambda _: None)
    place.store.tags[f"{OURS}-r7.release"] = place.store.tags["stable.release"]
    before = dict(place.store.tags)
    _give_way(registry, f"{OURS}-r7", {f"{OURS}-r7": ours.digest})
    assert place.store.tags == before


def test_another_signed_build_is_finished_with_its_verdict(place: Place) -> None:
    there, here = place.candidate(build="another machine"), place.candidate(build="this machine")
    place.publish(there, place.key, keep=True)
    published = place.publish(here, place.key)
    assert (published.decision.action, published.decision.digest, published.tested) == (
        "finish", there.digest, here.digest,
    )  # fmt: skip
    assert place.rolling() == {there.digest}
    assert place.record().verdict == judged("another machine")
    assert here.digest not in place.store.manifests
    assert place.publish(here, place.key).decision.action == "nothing"


def test_another_unsigned_build_is_left_unchanged(place: Place) -> None:
    there, here = place.candidate(build="another machine"), place.candidate(build="this machine")
    place.publish(there, keep=True)
    with pytest.raises(PublishError, match=f"holds {there.digest}, and {here.digest} was tested here"):
        place.publish(here)
    place.finish()
    published = place.publish(here)
    assert (published.decision.action, published.decision.digest) == ("nothing", there.digest)
    assert place.rolling() == {there.digest}


def test_attached_artifacts_are_not_signed_without_proof(place: Place) -> None:
    ours = place.candidate()
    good = place.publish(ours, place.key, keep=True)
    assert good.transfer
    image = place.registry().manifest(f"{OURS}-r0")
    assert image
    planted = put_artifact(place.registry(), Artifact(name="sbom", media_type=SBOM_TYPE, text="{}"), image)
    place.registry().put(planted, f"{OURS}-r0.sbom")
    place.store.tags.pop(f"{OURS}-r0.release")
    with pytest.raises(PublishError, match="no record"):
        place.finish(place.key)
    assert place.publish(ours, place.key).decision.action == "finish"
    assert planted.digest not in place.signed()
    assert place.record().attached == {name: place.store.tags[f"{OURS}-r0.{name}"] for name in ARTIFACTS}
    assert planted.digest not in place.record().attached.values()


@pytest.mark.parametrize("text", ["no record", "{}", json.dumps({"format": 1})])
def test_an_invalid_record_is_rewritten_for_the_tested_image(place: Place, text: str) -> None:
    ours = place.candidate()
    image = place.plant(ours)
    broken = put_artifact(place.registry(), Artifact(name="release", media_type="text/plain", text=text), image)
    place.registry().put(broken, f"{OURS}-r0.release")
    with pytest.raises(PublishError, match="its record cannot be read"):
        place.finish()
    assert place.publish(ours).decision.action == "finish"
    assert (place.record().digest, place.rolling()) == (ours.digest, {ours.digest})


def test_rolling_back_needs_a_release_that_verifies(place: Place) -> None:
    first, second = place.candidate(), place.candidate("b")
    place.publish(first)  # before there was a key
    place.publish(second, place.key)
    with pytest.raises(PublishError, match=f"r0 holds {first.digest}, and its image .* is not signed"):
        place.back(signer=place.key)
    assert place.rolling() == {second.digest}
    place.back()
    assert place.rolling() == {first.digest}
    place.forward(signer=place.key)
    assert place.rolling() == {second.digest}


def test_a_revision_that_was_removed_is_not_set_again(place: Place) -> None:
    place.publish(place.candidate(), place.key)
    place.publish(place.candidate("b"), place.key)
    place.store.tags.pop(f"{OURS}-r1")
    published = place.publish(place.candidate("c"), place.key)
    assert str(published.decision.tag) == f"{OURS}-r2"


def killed_at(key: str) -> OnMessage:
    """Ends a run when it is about to write under a tag."""

    def message(method: str, query: str) -> None:
        if (method, query) == ("PUT", key):
            raise KeyboardInterrupt

    return message


@pytest.mark.parametrize("start", ["left", "killed before its tags moved", "killed while its tags moved"])
def test_a_rollback_holds_until_a_person_or_a_newer_release(place: Place, signer: Signer, start: str) -> None:
    first, second, third = place.candidate(), place.candidate("b"), place.candidate("c")
    place.publish(first, signer)
    if start == "left":
        place.publish(second, signer, keep=True)
    else:
        stop = killed_at(TAGS[0] if "before" in start else TAGS[1])
        with pytest.raises(KeyboardInterrupt):
            place.publish(second, signer, message=stop)
    place.back(0)
    for _ in range(2):
        assert place.publish(second, signer).decision.action == "held"
        holder = place.finish(signer)
        assert holder
        assert holder.action == "held"
        assert place.rolling() == {first.digest}
    if start == "left":
        place.forward()
        assert place.rolling() == {second.digest}
        finished = place.finish(signer)
        assert finished
        assert finished.action == "nothing"
    else:
        assert place.publish(third, signer).decision.action == "release"
        assert place.rolling() == {third.digest}


def kills(place: Place, begin: Store, candidate: Candidate, signer: Signer) -> Iterator[int]:
    """Publish on a copy of ``begin``, killed at each request in turn, and give the request's number after each kill."""
    for at in count():
        place.store.__dict__.update(copy.deepcopy(begin).__dict__)
        left = count(at, -1)

        def message(*_: str, left: Iterator[int] = left) -> None:
            if next(left) == 0:
                raise KeyboardInterrupt

        try:
            place.publish(candidate, signer, message=message)
            return
        except KeyboardInterrupt:
            yield at


def test_the_next_run_finishes_a_release_killed_anywhere(place: Place, signer: Signer) -> None:
    first, second = place.candidate(), place.candidate("b")
    place.publish(first, signer)
    begin = copy.deepcopy(place.store)
    place.publish(second, signer)
    expected, rounds = dict(place.store.tags), 0
    for at in kills(place, begin, second, signer):
        rounds += 1
        assert place.store.tags[f"{OURS}-r0"] == first.digest
        assert place.store.tags.get(f"{OURS}-r1") in (None, second.digest)
        assert place.rolling() <= {first.digest, second.digest}
        place.publish(second, signer)
        assert {tag: place.store.tags.get(tag) for tag in TAGS} == dict.fromkeys(TAGS, second.digest)
        assert set(place.store.tags) == set(expected)
        assert place.record(1).digest == second.digest
        assert {moved.before for moved in place.record(1).rolling} == {first.digest}, f"killed at request {at}"
    assert rounds > 40


IMMUTABLE = r"-r\d"


def test_a_registry_of_immutable_revisions_supports_a_whole_life(place: Place, signer: Signer) -> None:
    place.store.immutable = IMMUTABLE
    first, second, third = place.candidate(), place.candidate("b"), place.candidate("c")
    for candidate in (first, second):
        assert place.publish(candidate, signer).decision.action == "release"
        assert place.publish(candidate, signer).decision.action == "nothing"
    for _ in range(2):
        place.back(signer=signer)
        assert place.publish(second, signer).decision.action == "held"
        assert place.rolling() == {first.digest}
        place.forward(signer=signer)
        assert place.rolling() == {second.digest}
    place.publish(third, signer, keep=True)
    assert place.publish(third, signer, keep=True).decision.action == "nothing"
    place.finish(signer)
    place.back(0, signer)
    place.back(1, signer)
    assert place.rolling() == {second.digest}


def test_a_registry_that_makes_all_tags_immutable_is_told_of(place: Place) -> None:
    place.store.immutable = "."
    first, second = place.candidate(), place.candidate("b")
    place.publish(first)
    with pytest.raises(StatusError) as refused:
        place.publish(second)
    assert str(Command("help", "tags#make-them-immutable-in-the-registry")) in (refused.value.hint or "")
    assert place.rolling() == {first.digest}


def test_an_immutable_registrys_killed_release_is_finished(place: Place, signer: Signer) -> None:
    place.store.immutable = IMMUTABLE
    first, second = place.candidate(), place.candidate("b")
    place.publish(first, signer)
    begin, finished = copy.deepcopy(place.store), set[str]()
    for at in kills(place, begin, second, signer):
        if at % 2 and f"{OURS}-r1.release" in place.store.tags:
            finished.add("promote")
            place.finish(signer)
        else:  # by whoever has tested the same image again
            finished.add("publish")
            place.publish(replace(second, verdict=judged("again")), signer)
        assert place.rolling() == {second.digest}, f"killed at request {at}"
        assert {f"{OURS}-r1{part}" for part in PARTS} <= set(place.store.tags)
        assert place.publish(second, signer).decision.action == "nothing"
    assert finished == {"promote", "publish"}


@pytest.mark.parametrize("lists", [False, True], ids=["list by a tag", "list of the registry"])
def test_artifacts_are_listed_with_their_image_and_put_back(place: Place, signer: Signer, *, lists: bool) -> None:
    place.store.immutable, place.store.lists = IMMUTABLE, lists
    ours = place.candidate()
    place.publish(ours, signer)
    artifacts = {place.store.tags[f"{OURS}-r0{part}"] for part in PARTS[1:]}
    tag = fallback_tag(ours.digest)
    assert referrers_of(place.registry(), ours.digest) == artifacts
    assert (tag in place.store.tags) != lists
    expected = dict(place.store.tags)
    place.store.tags.pop(tag, None)
    assert place.publish(ours, signer).decision.action == "nothing"
    assert set(place.store.tags) == set(expected)
    assert referrers_of(place.registry(), ours.digest) == artifacts


def test_a_registry_without_referrers_is_queried_once(place: Place, signer: Signer) -> None:
    place.store.immutable = IMMUTABLE
    place.store.lists = place.store.indexes = place.store.artifacts = False
    ours, puts = place.candidate(), list[str]()
    place.publish(ours, signer)
    assert place.record().listed is False
    before = dict(place.store.tags)
    place.publish(ours, signer, message=lambda method, key: puts.append(key) if method == "PUT" else None)
    assert (puts, place.store.tags, place.rolling()) == ([], before, {ours.digest})


def test_a_list_of_artifacts_that_is_none_is_not_overwritten(place: Place) -> None:
    place.store.lists = False
    ours = place.candidate()
    image = place.plant(place.candidate(build="theirs"), revision=7)
    place.store.tags.pop(f"{OURS}-r7")
    place.store.tags[fallback_tag(ours.digest)] = image.digest
    with pytest.raises(RegistryError, match="is not a list of artifacts"):
        place.publish(ours)
    assert place.store.tags == {fallback_tag(ours.digest): image.digest}


def test_a_registry_of_images_alone_gets_artifacts_as_images(place: Place, signer: Signer) -> None:
    place.store.immutable, place.store.artifacts = IMMUTABLE, False
    ours = place.candidate()
    place.publish(ours)

    def types() -> set[str]:
        manifests = [place.store.manifests[place.store.tags[f"{OURS}-r0{part}"]] for part in PARTS[1:]]
        assert all(subject_of(manifest) == ours.digest for manifest in manifests)
        return {manifest.config.media_type for manifest in manifests}

    assert types() == {IMAGE_CONFIG}
    # A later version of the registry takes artifacts: a release stays as it is, also when it is signed then.
    place.store.artifacts, before = True, dict(place.store.tags)
    assert place.publish(ours, signer).decision.action == "nothing"
    assert (place.store.tags, types()) == (before, {IMAGE_CONFIG})
    if not signer.skip_reason:
        assert {place.store.tags[f"{OURS}-r0{part}"] for part in PARTS} <= place.signed()


def test_a_refusal_unrelated_to_types_is_not_retried(place: Place) -> None:
    ours, attempts = place.candidate(), list[str]()

    def message(method: str, key: str) -> None:
        if method == "PUT" and key.startswith("sha256:"):
            attempts.append(key)
            raise StatusError("not yours", status=403, codes=("DENIED",))

    with pytest.raises(StatusError, match="not yours"):
        place.publish(ours, message=message)
    assert len(attempts) == 1


def test_a_rehearsal_reads_only_if_due_and_writes_nothing(place: Place) -> None:
    queries: list[tuple[str, str]] = []
    publisher = Publisher(place.registry(message=lambda *request: queries.append(request)))
    place.store.lists = False
    value = publisher.rehearse(place.candidate()).abilities
    assert value
    assert (value.push, value.artifacts[:9], value.referrers[:9]) == ("yes", "not known", "not known")
    assert [request for request in queries if request[0] not in ("GET", "HEAD")] == [("POST", "upload")]
    place.publish(place.candidate())
    assert publisher.rehearse(place.candidate()).abilities is None
    value = Publisher(place.registry()).rehearse(place.candidate("b")).abilities
    assert value
    assert (value.artifacts, value.referrers[:3]) == (f"yes, as {OURS}-r0.release shows", "no:")


def test_a_revision_with_a_remaining_artifact_is_not_reused(place: Place) -> None:
    place.store.immutable = IMMUTABLE
    place.publish(place.candidate())
    place.store.tags[f"{OURS}-r1.sbom"] = place.store.tags[f"{OURS}-r0.sbom"]  # earlier versions set it first
    assert str(place.publish(place.candidate("b")).decision.tag) == f"{OURS}-r2"


def test_releases_of_earlier_versions_are_finished_and_held(place: Place, signer: Signer) -> None:
    """Their records were written twice, and said themselves whether they had ended."""
    first, second = place.candidate(), place.candidate("b")
    place.publish(first, signer)
    place.publish(second, signer, keep=True)
    for state, action in (("begun", "finish"), ("released", "held")):
        earlier = place.record(1).model_copy(update={"state": state})
        manifest = place.registry().manifest(second.digest)
        assert manifest
        write_record(place.registry(), earlier, manifest, lambda digest: place.key.sign(REPOSITORY, [digest]))
        decision = Publisher(place.registry(), signer=signer).plan(second)
        assert (decision.action, place.record(1).state) == (action, state)
    place.forward(signer=signer)
    assert place.publish(second, signer).decision.action == "nothing"
    assert place.record(1).state == "released"


def test_a_rollback_that_was_killed_holds_nothing_half(place: Place) -> None:
    first, second = place.candidate(), place.candidate("b")
    place.publish(first)
    place.publish(second, keep=True)
    place.forward()
    with pytest.raises(KeyboardInterrupt):
        shift(place.registry(message=killed_at(OURS)), TAGS, to=0, back=True)
    assert place.rolling() == {second.digest}
    finished = place.finish()
    assert finished
    assert finished.action == "nothing"


def test_tags_that_go_back_are_our_own_alone(place: Place) -> None:
    """Another machine finishes a newer release while this machine moves its tags, and cannot move the last tag."""
    ours, theirs = place.candidate("b"), place.candidate("c")
    place.publish(place.candidate())
    finished: list[bool] = []

    def message(method: str, key: str) -> None:
        if (method, key) == ("PUT", "latest") and not finished:
            finished.append(True)
            place.publish(theirs, machine="two")
            raise RegistryError("no luck")

    with pytest.raises(RegistryError, match="no luck"):
        place.publish(ours, message=message)
    assert place.rolling() == {theirs.digest}
    assert place.record(2).digest == theirs.digest


@pytest.mark.parametrize("at", [f"{OURS}", "2.7", "latest"])
def test_a_tag_that_moved_since_the_decision_is_not_overwritten(place: Place, at: str) -> None:
    ours, theirs = place.candidate("b"), place.candidate("c")
    place.publish(place.candidate())
    finished: list[bool] = []

    def message(method: str, key: str) -> None:
        if (method, key) == ("HEAD", at) and f"{OURS}-r1.release" in place.store.tags and not finished:
            finished.append(True)
            place.publish(theirs, machine="two")

    with pytest.raises(RegistryError, match="Somebody else releases there"):
        place.publish(ours, message=message)
    assert place.rolling() == {theirs.digest}


def orders(steps: int) -> list[list[str]]:
    """Orders in which machine two interrupts machine one at a step, and machine one interrupts it again later."""
    return [
        ["one"] * first + ["two"] * second + ["one"] * steps + ["two"] * steps
        for first in range(0, steps, 1 if NIGHTLY else 3)
        for second in (5, 15, steps)
    ]


@pytest.mark.parametrize(
    ("inputs", "signed"), [(("b", "c"), False), (("b", "b"), True)], ids=["other inputs", "same inputs, signed"]
)
def test_two_concurrent_releases_overwrite_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: tuple[str, str], *, signed: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, ends_of_both = Place(), set[tuple[bool, bool]]()
    first.publish(first.candidate(), first.key)
    for order in orders(steps=45):
        place = copy.deepcopy(first)
        signer: Signer = place.key if signed else UNSIGNED
        names = ("one", "two")
        candidates = {name: place.candidate(what, build=name) for name, what in zip(names, inputs, strict=True)}
        published: dict[str, Publication] = {}

        def work(name: str, message: OnMessage) -> None:
            published[name] = place.publish(candidates[name], signer, machine=name, message=message)  # noqa: B023

        ends = Turns(order).run({name: partial(work, name) for name in names})
        assert all(isinstance(error, RegistryError | PublishError | None) for error in ends.values()), ends
        _expect_true(place, published, order, lost={candidates[name].digest for name in names if ends[name]})
        ends_of_both.add((ends["one"] is None, ends["two"] is None))
        for name in names:  # whoever comes again alone finds what to do, or says why not
            try:
                published[name] = place.publish(candidates[name], signer, machine=name)
            except PublishError:
                assert inputs[0] == inputs[1]
        _expect_true(place, published, order)
        assert len(place.rolling()) == 1
    assert (True, True) in ends_of_both
    assert ends_of_both & {(True, False), (False, True)}


def _expect_true(
    place: Place, published: Mapping[str, Publication], order: list[str], lost: Collection[str] = ()
) -> None:
    """Check that each successful release agrees with its tag and its record.

    Between its last request and the answer, the slower machine can still overwrite the record of the faster one. Then
    it raises an error, no run promotes the image without a record, and the next run of the faster machine repairs it.
    """
    lines: dict[str, str] = {}
    for one in published.values():
        tag, digest = str(one.decision.tag), one.decision.digest
        assert lines.setdefault(tag, digest) == digest, f"two images were released as {tag}: {order}"
        assert place.store.tags[tag] == digest, f"{tag} was written over: {order}"
        record = read_record(place.registry(), tag)
        assert record
        if record.digest != digest and record.digest in lost:
            with pytest.raises(PublishError, match=f"its record says that its digest is {record.digest}"):
                place.forward()
        else:
            assert record.digest == digest, f"the record of {tag}: {order}"
            assert record.attached == {part: place.store.tags[f"{tag}.{part}"] for part in ARTIFACTS}, f"{tag}: {order}"


def test_one_odd_image_is_a_row_and_the_others_are_released(place: Place) -> None:
    """Whatever is wrong with it: an engine that has it no more, an archive that is none, a mistake of ours."""
    good, registry = place.candidate(), place.registry()

    def odd(error: Exception) -> Candidate:
        raise error

    works: dict[str, Callable[[], Candidate]] = {
        "gone": partial(odd, ImageNotFound("No such image")),
        "no archive": partial(odd, tarfile.ReadError("not a tar file")),
        "a mistake": partial(odd, KeyError("size")),
        "full disk": partial(odd, OSError(28, "No space left on device")),
        "good": lambda: good,
    }
    due = [
        Due(
            spec=init_image(name),
            candidate=work,
            releases=(
                DueRelease(publisher=Publisher(registry), supply=place.small.supply, repository=registry.repository),
            ),
        )
        for name, work in works.items()
    ]
    for ends in (publish_all(due, 2), plan_all(due)):
        problems = {one.id: one.problem for one in ends}
        assert problems.pop("good") == ""
        assert all(
            text.startswith("An unexpected failure: ") and "test_publisher.py:" in text for text in problems.values()
        )
        assert "KeyError: 'size'" in problems["a mistake"]
    assert place.rolling() == {good.digest}
