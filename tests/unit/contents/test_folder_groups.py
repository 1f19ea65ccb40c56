"""Many paths that differ as a few folders."""

from tests.unit.contents.inventories import entry
from torchbake.contents.file_changes import FileChange
from torchbake.contents.folder_groups import by_folder


def added(*paths: str, size: int = 1) -> list[FileChange]:
    return [FileChange(before=None, after=entry(path, size=size)) for path in paths]


def moved(*pairs: tuple[str, str]) -> list[FileChange]:
    return [FileChange(before=entry(old), after=entry(new)) for old, new in pairs]


def groups(changes: list[FileChange], rows: int) -> list[tuple[str, int]]:
    return [(group.path, len(group.changes)) for group in by_folder(changes, rows)]


def test_few_changes_are_listed_and_many_are_folders() -> None:
    many = [f"usr/lib/x/{number}" for number in range(50)]
    for changes, rows, expected in (
        ([], 5, []),
        (added("a", "b/c"), 5, [("a", 1), ("b/c", 1)]),
        (added("a", *many), 5, [("a", 1), ("usr/lib/x/", 50)]),
        (added("etc/a", "etc/b", *many), 3, [("etc/a", 1), ("etc/b", 1), ("usr/lib/x/", 50)]),
        (added("etc/a", "etc/b", *many), 2, [("etc/", 2), ("usr/lib/x/", 50)]),
        (added("bin/a", "etc/a", "usr/a", "usr/b"), 2, [("bin/a", 1), ("etc/a", 1), ("usr/", 2)]),
        (added(*many), 50, [(path, 1) for path in sorted(many)]),
    ):
        assert groups(changes, rows) == expected


def test_the_folder_with_most_bytes_is_split_first() -> None:
    changes = [*added("a/1", "a/2"), *added("b/1", "b/2", size=1000)]
    assert groups(changes, 3) == [("a/", 2), ("b/1", 1), ("b/2", 1)]


def test_every_change_is_in_one_group() -> None:
    changes = added("a", "a/b", "a/b/c", "a/d", "e/f/g", "e/f/h/i")
    for rows in range(1, 9):
        sizes = [len(group.changes) for group in by_folder(changes, rows)]
        assert sum(sizes) == len(changes)
        assert len(sizes) <= max(rows, 3)  # a, a/ and e/ are below the root


def test_a_moved_folder_has_its_origin() -> None:
    for changes, origin in (
        (moved(("lib/a", "usr/lib/a"), ("lib/b/c", "usr/lib/b/c")), "lib/"),
        (moved(("lib/a", "usr/lib/a"), ("opt/b", "usr/lib/b")), ""),
        ([*moved(("lib/a", "usr/lib/a")), *added("usr/lib/x")], ""),
    ):
        (group,) = by_folder(changes, 1)
        assert group.path == "usr/lib/"
        assert group.origin == origin
