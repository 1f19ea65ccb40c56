"""The paths that differ between two images, as a container sees them."""

from tests.unit.contents.inventories import entry, hard, image, link
from torchbake.contents.file_changes import FileChange, changed_files, container_files, with_moves
from torchbake.contents.model import LayerFile


def changes(before: list[LayerFile], after: list[LayerFile]) -> list[tuple[str, ...]]:
    """Each change as its state, its paths and its aspects."""
    value = with_moves(changed_files(container_files(image(*before)), container_files(image(*after))))
    return [_short(change) for change in value]


def _short(change: FileChange) -> tuple[str, ...]:
    origin = (change.before.path,) if change.before and change.state == "moved" else ()
    return (change.state, *origin, change.path, *change.aspects)


def test_each_kind_of_change_is_named() -> None:
    for before, after, expected in (
        ([], [entry("a")], [("added", "a")]),
        ([entry("a")], [], [("removed", "a")]),
        ([entry("a")], [entry("a")], []),
        ([entry("a")], [entry("a", layer=3)], []),
        ([entry("a")], [entry("a", "y")], [("changed", "a", "content")]),
        ([entry("a")], [entry("a", mode=0o755)], [("changed", "a", "mode")]),
        ([entry("a")], [entry("a", uid=1)], [("changed", "a", "owner")]),
        ([entry("a")], [entry("a", gid=1)], [("changed", "a", "owner")]),
        ([entry("a")], [entry("a", "y", mode=0o755, uid=1)], [("changed", "a", "content", "mode", "owner")]),
        ([entry("a")], [link("a", "b")], [("changed", "a", "kind")]),
        ([link("a", "b")], [link("a", "c")], [("changed", "a", "link")]),
        ([link("a", "b")], [entry("a", "b", kind="symlink", mode=0)], []),
        ([entry("a", "1:3", kind="device")], [entry("a", "1:5", kind="device")], [("changed", "a", "content")]),
    ):
        assert changes(before, after) == expected, (before, after)


def test_a_folder_counts_if_it_is_empty_or_differs_itself() -> None:
    folder = entry("f", "", kind="folder", mode=0o755)
    closed = entry("f", "", kind="folder", mode=0o700)
    for before, after, expected in (
        ([], [folder], [("added", "f")]),
        ([], [folder, entry("f/a")], [("added", "f/a")]),
        ([entry("f/a")], [folder, entry("f/a")], []),
        ([folder, entry("f/g/a")], [folder, entry("f/g/a"), entry("f/g", "", kind="folder")], []),
        ([folder, entry("f/a")], [closed, entry("f/a")], [("changed", "f", "mode")]),
        ([folder], [link("f", "g")], [("changed", "f", "kind")]),
        ([entry("f/a")], [link("f", "g")], [("changed", "f", "kind"), ("removed", "f/a")]),
        ([link("f", "g")], [entry("f/a")], [("changed", "f", "kind"), ("added", "f/a")]),
        ([entry("f/a")], [], [("removed", "f/a")]),
    ):
        assert changes(before, after) == expected, (before, after)


def test_a_renamed_file_is_moved_if_its_content_is_equal() -> None:
    for before, after, expected in (
        ([entry("a")], [entry("b")], [("moved", "a", "b")]),
        ([entry("a")], [entry("b", mode=0o755)], [("moved", "a", "b", "mode")]),
        ([entry("a")], [entry("a"), entry("b")], [("added", "b")]),
        ([entry("a", "")], [entry("b", "")], [("removed", "a"), ("added", "b")]),
        ([entry("a")], [entry("b"), entry("c")], [("moved", "a", "b"), ("added", "c")]),
        ([entry("x/a"), entry("x/b")], [entry("y/b")], [("removed", "x/a"), ("moved", "x/b", "y/b")]),
        ([link("a", "c")], [link("b", "c")], [("removed", "a"), ("added", "b")]),
    ):
        assert changes(before, after) == expected, (before, after)


def test_the_order_of_hard_links_in_a_layer_is_no_difference() -> None:
    assert changes([entry("a"), hard("b", "a")], [hard("a", "b"), entry("b")]) == []
    assert changes([entry("a"), hard("b", "a"), hard("c", "b")], [hard("a", "c"), hard("b", "c"), entry("c")]) == []


def test_a_changed_file_with_hard_links_counts_once() -> None:
    before, after = [hard("a", "b"), entry("b", "one")], [entry("a", "four"), hard("b", "a")]
    assert changes(before, after) == [("changed", "a", "content")]
    (change,) = changed_files(container_files(image(*before)), container_files(image(*after)))
    assert (change.size_before, change.size_after) == (3, 4)


def test_a_copy_in_place_of_a_hard_link_takes_its_bytes() -> None:
    old, new = (container_files(image(entry("a", "four"), second)) for second in (hard("b", "a"), entry("b", "four")))
    (change,) = changed_files(old, new)
    assert _short(change) == ("changed", "b", "kind")
    assert (change.size_before, change.size_after) == (0, 4)


def test_a_hard_link_keeps_a_file_that_a_later_layer_replaces() -> None:
    files = [
        entry("a", "old", hidden_by=1, replaced=True), hard("b", "a"), hard("c", "a"), entry("a", "newer", layer=1),
    ]  # fmt: skip
    visible = container_files(image(*files))
    assert [
        (file.path, file.kind, file.size, file.content) for file in sorted(visible.values(), key=lambda x: x.path)
    ] == [
        ("a", "file", 5, "newer"),
        ("b", "file", 3, "old"),
        ("c", "hardlink", 0, "b"),
    ]


def test_hard_links_without_a_file_are_kept_as_they_are() -> None:
    for files in ([hard("a", "b")], [hard("a", "b"), hard("b", "a")]):
        visible = container_files(image(*files))
        assert {file.kind for file in visible.values()} == {"hardlink"}


def test_a_merged_usr_moves_files() -> None:
    names = ["libc.so", "libm.so"]
    before = [entry("lib", "", kind="folder"), *(entry(f"lib/{name}", name) for name in names)]
    after = [link("lib", "usr/lib"), *(entry(f"usr/lib/{name}", name) for name in names)]
    assert changes(before, after) == [
        ("changed", "lib", "kind"),
        *(("moved", f"lib/{name}", f"usr/lib/{name}") for name in names),
    ]
