"""Rolling tags on a registry in memory: all of them or none, and never over what somebody else has set."""

from collections.abc import Callable

import pytest

from tests.small import Small
from tests.unit.registries import MemoryRegistry, Store
from torchbake.errors import RegistryError
from torchbake.oci.manifest import Manifest
from torchbake.release.decide import Move
from torchbake.release.rolling_tags import move_tags

TAGS = ("2.13.0-cpu", "2.13", "latest")


def make(name: str) -> Manifest:
    return Small().make({}, [name.encode()])


OLD, NEW, THEIRS = make("old"), make("new"), make("theirs")
MOVES = [Move(tag=tag, before=OLD.digest, after=NEW.digest) for tag in TAGS]


@pytest.fixture
def store() -> Store:
    """A repository with all tags at the old image."""
    manifests = {one.digest: one for one in (OLD, NEW, THEIRS)}
    return Store(tags=dict.fromkeys(TAGS, OLD.digest), manifests=manifests)


def ask(store: Store, what: str, key: str, then: Callable[[], object]) -> MemoryRegistry:
    """A registry at which something happens just before a question or a change."""

    def hear(*messages: str) -> None:
        if messages == (what, key):
            then()

    return MemoryRegistry(store, message=hear)


def unreachable() -> None:
    raise RegistryError("it does not answer")


def test_all_tags_move(store: Store) -> None:
    move_tags(MemoryRegistry(store), NEW, MOVES)
    assert store.tags == dict.fromkeys(TAGS, NEW.digest)


def test_what_is_there_already_is_left_alone(store: Store) -> None:
    store.tags["2.13"] = NEW.digest
    move_tags(MemoryRegistry(store), NEW, MOVES)
    assert store.tags == dict.fromkeys(TAGS, NEW.digest)


@pytest.mark.parametrize("tag", TAGS)
def test_where_one_cannot_be_set_all_are_where_they_were(store: Store, tag: str) -> None:
    with pytest.raises(RegistryError, match="does not answer"):
        move_tags(ask(store, "PUT", tag, unreachable), NEW, MOVES)
    assert store.tags == dict.fromkeys(TAGS, OLD.digest)


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_that_was_set_without_an_answer_goes_back_too(store: Store, tag: str) -> None:
    def lose() -> None:
        if store.tags[tag] == OLD.digest:
            store.tags[tag] = NEW.digest
            raise RegistryError("the connection was lost")

    with pytest.raises(RegistryError, match="was lost"):
        move_tags(ask(store, "PUT", tag, lose), NEW, MOVES)
    assert store.tags == dict.fromkeys(TAGS, OLD.digest)


@pytest.mark.parametrize("tag", TAGS)
def test_an_interrupt_leaves_no_half_of_a_release(store: Store, tag: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_tags(ask(store, "PUT", tag, interrupt), NEW, MOVES)
    assert store.tags == dict.fromkeys(TAGS, OLD.digest)


@pytest.mark.parametrize("tag", TAGS)
def test_a_foreign_tag_set_before_ours_stays_and_ours_go_back(store: Store, tag: str) -> None:
    registry = ask(store, "HEAD", tag, lambda: store.tags.update({tag: THEIRS.digest}))
    with pytest.raises(RegistryError, match=f"{tag} was {OLD.digest} just now, and is {THEIRS.digest}"):
        move_tags(registry, NEW, MOVES)
    assert store.tags == {**dict.fromkeys(TAGS, OLD.digest), tag: THEIRS.digest}


@pytest.mark.parametrize("tag", TAGS[:-1])
def test_a_foreign_tag_set_over_ours_stays_and_ours_go_back(store: Store, tag: str) -> None:
    """He comes when that tag is ours already, and the last one is not."""
    registry = ask(store, "PUT", TAGS[-1], lambda: store.tags.update({tag: THEIRS.digest}))
    with pytest.raises(RegistryError, match=f"{tag} was set to {NEW.digest}, and now is {THEIRS.digest}"):
        move_tags(registry, NEW, MOVES)
    assert store.tags == {**dict.fromkeys(TAGS, OLD.digest), tag: THEIRS.digest}


def test_the_first_error_is_the_one_that_is_told(store: Store) -> None:
    """A registry that is gone takes no tag back either."""
    is_gone = False

    def hear(what: str, key: str) -> None:
        nonlocal is_gone
        is_gone = is_gone or (what, key) == ("PUT", "2.13")
        if is_gone:
            raise RegistryError(f"no answer to {what} {key}")

    with pytest.raises(RegistryError, match=r"no answer to PUT 2\.13"):
        move_tags(MemoryRegistry(store, message=hear), NEW, MOVES)
    assert store.tags["latest"] == OLD.digest


def test_a_tag_that_was_not_there_can_be_set(store: Store) -> None:
    del store.tags["latest"]
    moves = [*MOVES[:-1], Move(tag="latest", before=None, after=NEW.digest)]
    move_tags(MemoryRegistry(store), NEW, moves)
    assert store.tags == dict.fromkeys(TAGS, NEW.digest)


def test_tags_of_a_parallel_release_of_the_same_image_stay(store: Store) -> None:
    def lose() -> None:
        store.tags[TAGS[-1]] = NEW.digest
        raise RegistryError("the connection was lost")

    with pytest.raises(RegistryError, match="was lost"):
        move_tags(ask(store, "PUT", TAGS[0], lose), NEW, MOVES)
    assert store.tags[TAGS[-1]] == NEW.digest
