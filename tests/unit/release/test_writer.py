"""Tags, artifacts and records of a release, and their order, in a registry in memory."""

import copy
import tempfile
from pathlib import Path

import pytest

from tests.unit.registries import OnMessage
from tests.unit.release.test_publisher import OURS, PARTS, TAGS, UNSIGNED, Place
from torchbake.errors import RegistryError
from torchbake.oci.tag_names import ARTIFACTS
from torchbake.registry.cosign import Signer
from torchbake.release.candidate import Candidate
from torchbake.release.planner import Planner
from torchbake.release.record import record_of
from torchbake.release.upload import Delivery
from torchbake.release.writer import ReleaseWriter

IMMUTABLE = f"{OURS}-r0"
RECORD = f"{IMMUTABLE}.release"
BESIDE = [f"{IMMUTABLE}.{name}" for name in ARTIFACTS]


def silent(_: str) -> None:
    """Ignore a message for people."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    return Place()


def write(
    place: Place,
    candidate: Candidate,
    signer: Signer = UNSIGNED,
    *,
    keep: bool = False,
    message: OnMessage = lambda *_: None,
) -> list[str]:
    """Write a candidate whose content is there; the tags that were set, in order."""
    parcel = Delivery(place.registry(), ()).send(candidate, place.small.supply, silent, lambda *_: None)
    decision, put = Planner(place.registry(), immutable_only=keep).decide(candidate), list[str]()

    def hear(method: str, key: str) -> None:
        message(method, key)
        put.extend([key] if method == "PUT" and not key.startswith("sha256:") else [])

    writer = ReleaseWriter(place.registry(message=hear), signer)
    stored = record_of(place.registry(), str(decision.tag), decision.digest)
    writer.release(candidate, decision, parcel, stored, silent)
    return put


def test_each_tag_is_written_once_and_the_rolling_ones_last(place: Place) -> None:
    candidate = place.candidate()
    assert write(place, candidate) == [IMMUTABLE, *BESIDE, RECORD, *TAGS]
    assert (place.record().state, place.rolling()) == (None, {candidate.digest})
    assert '"state"' not in place.record().text()
    assert [(moved.tag, moved.before) for moved in place.record().rolling] == [(tag, None) for tag in TAGS]


def test_a_release_that_keeps_rolling_tags_records_their_places(place: Place) -> None:
    candidate = place.candidate()
    assert write(place, candidate, keep=True) == [IMMUTABLE, *BESIDE, RECORD]
    assert place.rolling() == {None}
    assert {moved.tag: moved.after for moved in place.record().rolling} == dict.fromkeys(TAGS, candidate.digest)
    assert place.record().held_back == {}


def test_all_that_a_record_names_is_signed_before_its_tag(place: Place) -> None:
    candidate, signed = place.candidate(), list[set[str]]()

    def message(method: str, key: str) -> None:
        if (method, key) == ("PUT", RECORD):
            signed.append(place.signed())

    write(place, candidate, place.key, message=message)
    names = {place.store.tags[f"{IMMUTABLE}{part}"] for part in PARTS[:-1]}
    assert candidate.digest in names
    assert len(signed) == 1
    assert names | {place.store.tags[RECORD]} == signed[0]


def test_nothing_is_recorded_of_an_image_that_lost_its_tag(place: Place) -> None:
    theirs = place.candidate(build="theirs")

    def message(method: str, key: str) -> None:
        if (method, key) == ("PUT", BESIDE[-1]):
            place.plant(theirs)

    with pytest.raises(RegistryError, match=f"and now is {theirs.digest}"):
        write(place, place.candidate(), message=message)
    assert RECORD not in place.store.tags
    assert place.rolling() == {None}


def test_a_promotion_writes_rolling_tags_alone(place: Place) -> None:
    first, second, puts = place.candidate(), place.candidate("b"), list[str]()
    place.publish(first)
    place.publish(second, keep=True)
    record = place.record(1)
    place.store.tags["latest"] = second.digest  # a run that was killed has moved one
    registry = place.registry(message=lambda method, key: puts.append(key) if method == "PUT" else None)
    ReleaseWriter(registry, UNSIGNED).promote(Planner(place.registry()).decide(second), silent)
    assert (puts, place.rolling(), place.record(1)) == ([OURS, "2.7"], {second.digest}, record)


def test_a_corrected_record_keeps_its_release_time_and_moves(place: Place) -> None:
    candidate = place.candidate()
    write(place, candidate)
    before = place.record()
    place.store.tags[BESIDE[0]] = place.store.tags[RECORD]
    assert write(place, candidate, place.key) == [BESIDE[0]]
    assert place.record() == before
    assert {place.store.tags[f"{IMMUTABLE}{part}"] for part in PARTS} <= place.signed()


def test_a_record_that_may_be_anybodys_is_not_signed(place: Place) -> None:
    """One of the image at hand, with another verdict than its own: it is replaced."""
    candidate = place.candidate()
    place.plant_record(candidate, lies={"signature": UNSIGNED.how})
    planted = place.store.tags[RECORD]
    write(place, candidate, place.key)
    assert planted not in place.signed()
    assert place.record().verdict == candidate.verdict


def test_without_a_key_what_lies_right_is_not_recorded_anew(place: Place) -> None:
    candidate = place.candidate()
    write(place, candidate)
    holder = copy.deepcopy(place.store)
    assert write(place, candidate) == []
    assert place.store == holder
