"""Images that are due, by the tags of a registry in memory and the known bases."""

import tempfile
from pathlib import Path

import pytest

from tests.unit.registries import MemoryRegistry, Store
from tests.unit.release.test_publisher import OURS, Place
from torchbake.errors import LockError, RegistryError, RenderError
from torchbake.matrix.spec import AMD64, ARM64
from torchbake.oci.labels import BASE_DIGEST, ID, INPUTS
from torchbake.oci.tag_names import ImmutableTag
from torchbake.registry.transport import StatusError
from torchbake.release.decide import TagHolder
from torchbake.release.due import NewestRelease, Today, index_flaw, judge, newest_releases
from torchbake.release.platforms import joined_inputs

TAG = ImmutableTag(name=OURS, revision=3)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    return Place()


def today(*bases: str, files: str = "files", doubt: str = "", name: str = OURS) -> Today:
    return Today(id=name, base="debian12", inputs=lambda base: f"{files} on {base}", bases=bases, doubt=doubt)


def release(
    inputs: str = "files on old", base: str = "old", *, recorded: bool = True, name: str = OURS
) -> NewestRelease:
    labels = {ID: name, INPUTS: inputs, BASE_DIGEST: base}
    return NewestRelease(tag=TAG, image=TagHolder(digest="sha256:1", labels=labels), recorded=recorded)


@pytest.mark.parametrize(
    ("image", "there", "reason"),
    [
        (today("old"), None, "not released yet"),
        (today("old"), NewestRelease(tag=TAG, image=None, recorded=False), f"{TAG} is listed, but not served"),
        (today("old"), release(name="another"), f"{TAG} is not an image of this name"),
        (today("old"), release(recorded=False), f"the release of {TAG} was interrupted"),
        (today("old", files="others"), release(), f"its inputs changed since {TAG}"),
        (today("old"), release(inputs=""), f"its inputs changed since {TAG}"),
        (today("new"), release(), f"its base debian12 changed since {TAG}"),
        (today("new", files="others"), release(), f"its inputs changed since {TAG}"),
        (today(doubt="silent"), release(), f"unknown whether its base debian12 has changed since {TAG}: silent"),
        (today("old"), release(inputs="", base=""), f"its inputs, or its base debian12, changed since {TAG}"),
        (today("new"), release(base=""), f"its inputs, or its base debian12, changed since {TAG}"),
        (today(doubt="silent"), release(base=""), f"unknown whether its base debian12 has changed since {TAG}: silent"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_it_is_due_with_the_reason(image: Today, there: NewestRelease | None, reason: str) -> None:
    value = judge(image, there)
    assert (value.due, value.reason) == (True, reason)


@pytest.mark.parametrize(
    ("image", "there"),
    [(today("old"), release()), (today("new", "old"), release(base=""))],
    ids=["its own base", "an init image, on any base that may be meant"],
)
def test_what_is_released_with_the_same_inputs_is_not_due(image: Today, there: NewestRelease) -> None:
    value = judge(image, there)
    assert (value.due, value.reason) == (False, f"released as {TAG}")


@pytest.mark.parametrize("kind", [LockError, RenderError])
def test_what_cannot_be_built_is_due_and_says_why(kind: type[LockError | RenderError]) -> None:
    def inputs(base: str) -> str:
        raise kind(f"The lock is out of date.\n  on {base}")

    value = judge(Today(id=OURS, base="debian12", inputs=inputs, bases=("old",)), release())
    assert (value.due, value.reason) == (True, "The lock is out of date.")


def test_an_index_is_of_the_newest_images_of_its_platforms() -> None:
    amd, arm = release("a"), release("b")
    joined = joined_inputs({AMD64: "a", ARM64: "b"})
    earlier = f"the index {TAG} has an earlier image of a platform"
    for parts, index, flaw in (
        ((amd, arm), release(joined), ""),
        ((amd, arm), None, "the index of its platforms is not released"),
        ((amd, arm), release(joined, recorded=False), f"the release of the index {TAG} was interrupted"),
        ((amd, release("c")), release(joined), earlier),
        ((amd, None), release(joined), earlier),
        ((amd, None), release(""), earlier),  # no inputs equal no others
        ((amd, arm), NewestRelease(tag=TAG, image=None, recorded=True), earlier),
    ):
        assert index_flaw(dict(zip((AMD64, ARM64), parts, strict=True)), index) == flaw


@pytest.mark.parametrize("keep", [True, False], ids=["rolling tags left to promote", "whole"])
def test_the_newest_revision_is_read_with_its_record(place: Place, keep: bool) -> None:
    place.publish(place.candidate())
    place.publish(second := place.candidate("b"), keep=keep)
    releases, refused = newest_releases({"pytorch": place.registry()}, [("pytorch", OURS), ("pytorch", "another")])
    assert not refused
    assert set(releases) == {("pytorch", OURS)}
    one = releases["pytorch", OURS]
    assert one.image
    assert (one.tag.revision, one.image.digest, one.recorded) == (1, second.digest, True)


def test_a_release_without_a_record_was_interrupted(place: Place) -> None:
    place.publish(place.candidate())
    place.store.tags.pop(f"{OURS}-r0.release")
    releases, _ = newest_releases({"pytorch": place.registry()}, [("pytorch", OURS)])
    assert not releases["pytorch", OURS].recorded


def test_images_of_one_version_in_two_repositories_are_two(place: Place) -> None:
    place.publish(place.candidate())
    registries = {"pytorch": place.registry(), "another": MemoryRegistry(Store())}
    releases, _ = newest_releases(registries, [("another", OURS), ("pytorch", OURS)])
    assert set(releases) == {("pytorch", OURS)}


@pytest.mark.parametrize("status", [403, 401, 500])
def test_a_registry_may_forbid_a_missing_repository_alone(place: Place, status: int) -> None:
    def message(method: str, key: str) -> None:
        raise StatusError(f"{status} for {method} {key}", status=status)

    registries = {"pytorch": place.registry(message=message)}
    if status == 403:
        assert newest_releases(registries, [("pytorch", OURS)]) == ({}, {"pytorch": "403 for GET tags"})
    else:
        with pytest.raises(RegistryError, match=str(status)):
            newest_releases(registries, [("pytorch", OURS)])
