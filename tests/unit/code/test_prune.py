"""The removal of old images with code: never an image that another tag needs."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.unit.code.folders import image, layer_of, stored, write
from tests.unit.registries import MemoryRegistry, Store
from torchbake.code.prune import list_code, prune_code
from torchbake.code.push import push_code
from torchbake.errors import RegistryError
from torchbake.oci.reference import Reference
from torchbake.registry.transport import StatusError

TODAY = date(2026, 11, 28)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An image with code of 20, 8, 7 and 0 days ago."""
    store = Store()
    for age in (20, 8, 7, 0):
        push(store, tmp_path, f"{age}", age)
    return store


def push(store: Store, work: Path, text: str, age: int) -> Reference:
    folder = write(work / "code", {"train.py": text})
    base = stored(store, *image())
    return push_code(
        MemoryRegistry(store), base, lambda compression: layer_of(folder, work, compression), at="/job", work=work,
        today=TODAY - timedelta(days=age),
    ).reference  # fmt: skip


def ages(store: Store) -> list[int]:
    return [(TODAY - each.tag.day).days for each in list_code(MemoryRegistry(store))]


def prune(store: Store, days: int = 7, *, dry_run: bool = False, registry: MemoryRegistry | None = None) -> list[str]:
    results = prune_code(registry or MemoryRegistry(store), days=days, today=TODAY, dry_run=dry_run)
    return [each.outcome for each in results]


def test_images_with_code_are_listed_oldest_first(store: Store) -> None:
    assert ages(store) == [20, 8, 7, 0]
    first = list_code(MemoryRegistry(store))[0]
    assert first.base == f"one.example.com/team/pytorch@{store.tags['cpu']}"
    manifest = store.manifests[first.digest]
    assert first.size == manifest.layers[-1].size != manifest.layers[0].size


def test_old_images_are_deleted(store: Store) -> None:
    assert prune(store, dry_run=True) == ["old", "old"]
    assert len(store.manifests) == 5
    assert prune(store) == ["deleted", "deleted"]
    assert ages(store) == [7, 0]
    assert len(store.manifests) == 3
    assert prune(store) == []


def test_an_image_that_was_pushed_again_stays(store: Store, tmp_path: Path) -> None:
    again = push(store, tmp_path, "20", 1)
    assert prune(store) == ["deleted", "deleted"]
    assert ages(store) == [7, 1, 0]
    assert again.digest in store.manifests


def test_an_image_with_two_old_tags_is_deleted_once(store: Store, tmp_path: Path) -> None:
    push(store, tmp_path, "20", 10)
    assert prune(store, dry_run=True) == ["old"] * 3
    assert prune(store) == ["deleted"] * 3
    assert ages(store) == [7, 0]


def test_a_registry_that_deletes_no_tag_alone_keeps_it(store: Store, tmp_path: Path) -> None:
    push(store, tmp_path, "20", 1)
    store.untags = False
    assert prune(store) == ["kept", "deleted"]
    assert ages(store) == [20, 7, 1, 0]


def test_a_refused_login_is_no_kept_tag(store: Store, tmp_path: Path) -> None:
    push(store, tmp_path, "20", 1)
    for status, codes, is_kept in (
        (400, (), True), (404, (), True), (403, ("UNSUPPORTED",), True),
        (401, ("UNAUTHORIZED",), False), (403, ("DENIED",), False), (500, (), False),
    ):  # fmt: skip

        class Refusing(MemoryRegistry):
            error = StatusError("no", status=status, codes=codes)

            def delete(self, key: str) -> bool:
                raise self.error

        old = prune_code(Refusing(store), days=19, today=TODAY, dry_run=False) if is_kept else ()
        assert [each.outcome for each in old] == ["kept"] * is_kept, status
        if not is_kept:
            with pytest.raises(RegistryError) as caught:
                prune_code(Refusing(store), days=19, today=TODAY, dry_run=False)
            assert caught.value.hint, status


def test_an_image_deleted_with_a_tag_is_written_again(store: Store, tmp_path: Path) -> None:
    again = push(store, tmp_path, "20", 1)

    class Whole(MemoryRegistry):
        def delete(self, key: str) -> bool:
            return super().delete(self.store.tags.get(key, key))

    assert prune(store, registry=Whole(store)) == ["deleted", "deleted"]
    assert store.tags[again.tag] == again.digest
    assert again.digest in store.manifests


def test_an_image_that_is_pushed_again_meanwhile_stays(store: Store, tmp_path: Path) -> None:
    pushed: list[Reference] = []

    def message(method: str, key: str) -> None:
        if method == "HEAD" and not pushed:
            pushed.append(push(store, tmp_path, "20", 0))

    prune(store, registry=MemoryRegistry(store, message=message))
    assert store.tags[pushed[0].tag] == pushed[0].digest
    assert pushed[0].digest in store.manifests


@pytest.mark.parametrize("untags", [True, False])
def test_signatures_go_with_their_image(store: Store, untags: bool) -> None:
    store.untags = untags
    registry = MemoryRegistry(store)
    old, new = (each.digest for each in (list_code(registry)[0], list_code(registry)[-1]))
    for number, digest in enumerate((old, new)):
        registry.put(image(4 + number)[0], f"{digest.replace(':', '-')}.sig")
    prune(store)
    assert [tag for tag in store.tags if tag.endswith(".sig")] == [f"{new.replace(':', '-')}.sig"]


def test_releases_are_never_deleted(store: Store, tmp_path: Path) -> None:
    registry = MemoryRegistry(store)
    for number, tag in enumerate(("2.10.0-cpu-r0", "code", "code-20260101", "code-20261301-0123456789ab", "latest")):
        registry.put(image(6 + number)[0], tag)
    before = {tag for tag in store.tags if not tag.startswith("code-2026")} | {"code-20260101"}
    prune(store, 0)
    assert before <= set(store.tags)


def test_a_registry_that_deletes_nothing_says_how_to_allow_it(store: Store) -> None:
    store.deletes = False
    before = dict(store.tags)
    with pytest.raises(RegistryError) as error:
        prune(store)
    assert "storage.delete.enabled" in error.value.sentence
    assert store.tags == before
