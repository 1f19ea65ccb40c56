"""Reading the images and tags of a registry in memory."""

import tempfile
from pathlib import Path

import pytest

from tests.unit.release.test_publisher import OURS, TAGS, Place
from torchbake.errors import RegistryError
from torchbake.oci.manifest import INDEX, Manifest
from torchbake.release import repository_view
from torchbake.release.repository_view import Holdings


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    return Place()


def test_of_an_image_that_was_never_released_there_is_nothing(place: Place) -> None:
    standing = Holdings(place.registry()).standing(OURS, TAGS)
    assert (standing.newest_tag, standing.newest, standing.recorded, standing.last_revision) == (None, None, False, -1)
    assert standing.rolling == dict.fromkeys(TAGS)


def test_the_newest_revision_counts_and_its_record(place: Place) -> None:
    first, second = place.candidate(), place.candidate("b")
    place.publish(first)
    place.publish(second, keep=True)
    standing = Holdings(place.registry()).standing(OURS, TAGS)
    assert standing.newest
    assert (str(standing.newest_tag), standing.newest.digest) == (f"{OURS}-r1", second.digest)
    assert standing.newest.labels == second.labels
    assert (standing.recorded, standing.last_revision, standing.went_back) == (True, 1, False)
    assert {holder.digest for holder in standing.rolling.values() if holder} == {first.digest}
    place.store.tags.pop(f"{OURS}-r1.release")
    assert not Holdings(place.registry()).standing(OURS, TAGS).recorded


def test_a_revision_of_which_only_the_record_is_left_is_taken(place: Place) -> None:
    place.publish(place.candidate())
    place.publish(place.candidate("b"))
    place.store.tags.pop(f"{OURS}-r1")
    standing = Holdings(place.registry()).standing(OURS, TAGS)
    assert (str(standing.newest_tag), standing.last_revision) == (f"{OURS}-r0", 1)


def test_that_somebody_went_back_is_seen(place: Place) -> None:
    place.publish(place.candidate())
    place.publish(place.candidate("b"))
    assert not Holdings(place.registry()).standing(OURS, TAGS).went_back
    place.back()
    assert Holdings(place.registry()).standing(OURS, TAGS).went_back


def test_what_is_no_image_has_no_labels(place: Place) -> None:
    index = Manifest(data=b'{"manifests": []}', media_type=INDEX)
    registry = place.registry()
    registry.put(index, "latest")
    holder = Holdings(registry).look("latest")
    assert holder
    assert (holder.digest, holder.labels) == (index.digest, {})
    assert Holdings(registry).look("nothing") is None
    with pytest.raises(RegistryError, match="does not hold sha256:0"):
        Holdings(registry).manifest("sha256:0")


@pytest.mark.parametrize("looks", [2, 99])
def test_a_tag_listed_but_not_served_yet_is_requested_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Somebody sets it just now: it is served at the second question, or never."""
    monkeypatch.setattr(repository_view, "_BETWEEN_LOOKS", 0)
    candidate, count = place.candidate(), 0
    place.plant(candidate)

    def message(method: str, key: str) -> None:
        nonlocal count
        count += (method, key) == ("HEAD", "latest")
        if count == looks:
            place.store.tags["latest"] = candidate.digest

    holdings = Holdings(place.registry(message=message))
    if looks == 2:
        holder = holdings.rolling(["latest"], ["latest"])["latest"]
        assert holder
        assert holder.digest == candidate.digest
    else:
        with pytest.raises(RegistryError, match="lists the tag latest, but does not serve it"):
            holdings.rolling(["latest"], ["latest"])
