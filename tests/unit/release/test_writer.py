"""What is written of a release, and in which order; on a registry in memory."""

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.registries import Heard
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
    """What is told is for people."""


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
    how: str = "release",
    heard: Heard = lambda *_: None,
) -> list[str]:
    """Write a candidate whose content is there; the tags that were set, in order."""
    parcel = Delivery(place.registry(), ()).send(candidate, place.small.supply, silent, lambda *_: None)
    decision, put = Planner(place.registry()).decide(candidate), list[str]()

    def hear(method: str, key: str) -> None:
        heard(method, key)
        put.extend([key] if method == "PUT" and not key.startswith("sha256:") else [])

    writer = ReleaseWriter(place.registry(heard=hear), signer, keep_rolling=keep)
    work: Callable[..., None] = getattr(writer, how)
    begun = record_of(place.registry(), str(decision.tag), decision.digest)
    work(candidate, decision, parcel, begun, silent)
    return put


def test_the_record_is_written_before_rolling_tags_move_and_after(place: Place) -> None:
    candidate = place.candidate()
    assert write(place, candidate) == [*BESIDE, IMMUTABLE, RECORD, *TAGS, RECORD]
    assert (place.record().state, place.rolling()) == ("released", {candidate.digest})
    assert [(moved.tag, moved.before) for moved in place.record().rolling] == [(tag, None) for tag in TAGS]


def test_a_release_that_keeps_rolling_tags_is_only_begun(place: Place) -> None:
    assert write(place, place.candidate(), keep=True) == [*BESIDE, IMMUTABLE, RECORD]
    assert (place.record().state, place.rolling()) == ("begun", {None})


def test_all_that_a_record_names_is_signed_before_its_tag_shows_it(place: Place) -> None:
    candidate, signed = place.candidate(), list[set[str]]()

    def heard(method: str, key: str) -> None:
        if (method, key) == ("PUT", RECORD):
            signed.append(place.signed())

    write(place, candidate, place.key, heard=heard)
    named = {place.store.tags[f"{IMMUTABLE}{part}"] for part in PARTS[:-1]}
    assert candidate.digest in named
    assert len(signed) == 2
    assert all(named < digests for digests in signed)
    assert place.store.tags[RECORD] in signed[-1]


def test_nothing_is_recorded_of_an_image_that_is_no_more_under_its_tag(place: Place) -> None:
    theirs = place.candidate(build="theirs")

    def heard(method: str, key: str) -> None:
        if (method, key) == ("GET", RECORD):
            place.plant(theirs)

    with pytest.raises(RegistryError, match=f"and now is {theirs.digest}"):
        write(place, place.candidate(), heard=heard)
    assert RECORD not in place.store.tags
    assert place.rolling() == {None}


def test_a_promotion_keeps_what_was_recorded_and_where_tags_were_before(place: Place) -> None:
    first, second = place.candidate(), place.candidate("b")
    place.publish(first)
    place.publish(second, keep=True)
    begun = place.record(1)
    place.store.tags["latest"] = second.digest  # a run that was killed has moved one
    decision = Planner(place.registry()).decide(second)
    ReleaseWriter(place.registry(), UNSIGNED).promote(decision, begun.model_copy(update={"rolling": ()}), silent)
    assert place.rolling() == {second.digest}
    assert {moved.tag: moved.before for moved in place.record(1).rolling} == {
        OURS: first.digest, "2.7": first.digest, "latest": second.digest,
    }  # fmt: skip
    same = {"rolling": (), "state": "", "held_back": {}}
    assert place.record(1).model_copy(update=same) == begun.model_copy(update=same)
    assert place.record(1).state == "released"


def test_what_is_mended_keeps_when_it_was_released_and_what_it_moved(place: Place) -> None:
    candidate = place.candidate()
    write(place, candidate)
    before = place.record()
    place.store.tags[BESIDE[0]] = place.store.tags[RECORD]
    put = write(place, candidate, place.key, how="mend")
    assert put == [*BESIDE, RECORD]
    after = place.record()
    assert after == before.model_copy(update={"signature": place.key.how})
    assert {place.store.tags[f"{IMMUTABLE}{part}"] for part in PARTS} <= place.signed()


def test_without_a_key_what_lies_right_is_not_recorded_anew(place: Place) -> None:
    candidate = place.candidate()
    write(place, candidate)
    held = copy.deepcopy(place.store)
    assert RECORD not in write(place, candidate, how="mend")
    assert place.store == held
