"""Plans of releases to a registry in memory: planning changes nothing, and refuses images that are not ours."""

import copy
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.unit.release.test_publisher import OURS, TAGS, UNSIGNED, Place
from torchbake.errors import PublishError
from torchbake.oci.manifest import Manifest
from torchbake.release.planner import Planner

STATES: Mapping[str, tuple[Callable[[Place], object], str, bool]] = {
    "nothing": (lambda place: None, "release", True),
    "begun": (lambda place: place.publish(place.candidate(), keep=True), "finish", True),
    "released": (lambda place: place.publish(place.candidate()), "nothing", False),
    "other inputs": (lambda place: place.publish(place.candidate("z")), "release", True),
    "rolled back": (
        lambda place: (place.publish(place.candidate("z")), place.publish(place.candidate()), place.back()),
        "held",
        False,
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    return Place()


@pytest.mark.parametrize("state", STATES)
def test_what_is_due_is_found_without_a_change(place: Place, state: str) -> None:
    before, action, due = STATES[state]
    before(place)
    holder, queries = copy.deepcopy(place.store), set[str]()
    planner = Planner(place.registry(message=lambda method, _: queries.add(method)))
    decision = planner.plan(place.candidate())
    assert (decision.action, planner.is_due(place.candidate(), decision)) == (action, due)
    planner.started_record(decision)
    planner.unfinished(TAGS)
    assert place.store == holder
    assert queries <= {"GET", "HEAD"}


def test_rolling_tags_that_are_held_back_cause_no_work(place: Place) -> None:
    place.publish(place.candidate(), keep=True)
    assert Planner(place.registry(), immutable_only=True).plan(place.candidate()).action == "nothing"
    assert Planner(place.registry()).plan(place.candidate()).action == "finish"


def test_another_build_is_shown_by_list_and_refused_by_publish(place: Place) -> None:
    there, here = place.candidate(build="theirs"), place.candidate()
    place.publish(there, keep=True)
    planner = Planner(place.registry())
    assert planner.decide(here).digest == there.digest
    with pytest.raises(PublishError, match=f"holds {there.digest}"):
        planner.plan(here)


def test_with_a_key_another_build_must_be_signed_by_it(place: Place) -> None:
    there, here = place.candidate(build="another machine"), place.candidate()
    place.publish(there, keep=True)
    with pytest.raises(PublishError, match=f"holds {there.digest}, and its image .* is not signed"):
        Planner(place.registry(), place.key).plan(here)
    place.publish(there, place.key)
    assert Planner(place.registry(), place.key).plan(here).digest == there.digest


@pytest.mark.parametrize("part", ["sbom", "provenance"])
def test_overwritten_attachments_are_due_unless_of_others(place: Place, part: str) -> None:
    ours, other = place.candidate(), place.candidate(build="another machine")
    place.publish(ours)
    place.store.tags[f"{OURS}-r0.{part}"] = place.store.tags[f"{OURS}-r0.release"]
    planner = Planner(place.registry())
    decision = planner.plan(ours)
    assert decision.action == "nothing"
    assert planner.is_due(ours, decision)
    assert not planner.is_due(other, decision)


def test_what_is_not_signed_is_due_where_there_is_a_key(place: Place) -> None:
    ours = place.candidate()
    place.publish(ours)
    for signer, due in ((UNSIGNED, False), (place.key, True)):
        planner = Planner(place.registry(), signer)
        assert planner.is_due(ours, planner.plan(ours)) == due
    place.key.sign(place.registry().repository, list(place.store.manifests))
    planner = Planner(place.registry(), place.key)
    assert not planner.is_due(ours, planner.plan(ours))


def test_a_release_to_finish_comes_with_its_record(place: Place) -> None:
    planner = Planner(place.registry(), place.key)
    assert planner.unfinished(TAGS) is None
    place.publish(place.candidate(), place.key, keep=True)
    records = planner.unfinished(TAGS)
    assert records
    assert (records[0].action, records[1]) == ("finish", place.record())
    place.finish(place.key)
    records = planner.unfinished(TAGS)
    assert records
    assert (records[0].action, records[1]) == ("nothing", None)


def test_a_signed_record_is_refused_to_who_has_no_key(place: Place) -> None:
    place.publish(place.candidate(), place.key, keep=True)
    planner = Planner(place.registry())
    decision = planner.decide(place.candidate())
    with pytest.raises(PublishError, match="its record is signed"):
        planner.started_record(decision)
    with pytest.raises(PublishError, match="its record is signed"):
        planner.unfinished(TAGS)
    Planner(place.registry(), place.key).started_record(decision)


def test_an_image_that_says_no_inputs_is_not_finished(place: Place) -> None:
    manifest: Manifest = place.small.make({"org.torchbake.id": OURS}, [b"a layer"])
    place.store.blobs |= place.small.images[manifest.digest][1]
    place.registry().put(manifest, f"{OURS}-r0")
    with pytest.raises(PublishError, match="it does not say its inputs"):
        Planner(place.registry()).unfinished(TAGS)
