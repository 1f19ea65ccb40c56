"""Trees of files, the changes between two of them, and what a layer does to one."""

import tarfile
from random import Random

from tests.unit.conftest import NIGHTLY
from torchbake.oci.tree import (
    ROOT,
    FileNode,
    apply,
    clean_path,
    difference,
    linked_once,
    parents,
    restore,
    whiteout,
    with_time,
)

FOLDER = FileNode(kind=tarfile.DIRTYPE, mode=0o755)
NAMES = ("a", "b", "a.b", "ä")
OTHERS = (
    FileNode(kind=tarfile.DIRTYPE, mode=0o1777, uid=1),
    *(FileNode(kind=tarfile.REGTYPE, mode=mode, content=content) for mode in (0o644, 0o755) for content in ("1", "2")),
    FileNode(kind=tarfile.REGTYPE, mode=0o755, content="1", attributes=(("capability", "x"),)),
    *(FileNode(kind=tarfile.SYMTYPE, mode=0o777, content=target) for target in ("a", "b")),
    FileNode(kind=tarfile.CHRTYPE, mode=0o666, content="1:3"),
)


def a_file(content: str = "1", time: int = 0) -> FileNode:
    return FileNode(kind=tarfile.REGTYPE, mode=0o644, content=content, time=time)


def random_tree(random: Random, root: FileNode = FOLDER) -> dict[str, FileNode]:
    """A tree in which each path is below folders."""
    tree = {ROOT: root}
    for _ in range(random.randrange(12)):
        path = "/".join(random.choices(NAMES, k=random.randint(1, 4)))
        if all(tree.setdefault(folder, FOLDER).is_folder for folder in [*parents(path)][::-1]):
            tree.setdefault(path, random.choice((FOLDER, *OTHERS)))
    return {path: node for path, node in tree.items() if all(tree[folder].is_folder for folder in parents(path))}


def test_the_changes_between_two_trees_make_one_of_the_other() -> None:
    random, replaced = Random(7), 0
    for _ in range(3000 if NIGHTLY else 600):
        before, after = (random_tree(random, random.choice((FOLDER, OTHERS[0]))) for _ in range(2))
        changes = difference(before, after)
        assert apply(before, changes) == after
        assert apply(before, changes[::-1]) == after  # in any order
        assert [path for path, _ in changes] == sorted(dict(changes), key=lambda path: path.split("/"))
        both = before.keys() & after.keys()
        replaced += any(before[path].is_folder != after[path].is_folder for path in both)
        assert difference(after, after) == []
        # The fewest changes: without one of them, but for a folder above another, the tree is another one.
        above = {folder for path, _ in changes for folder in parents(path)}
        for change in changes:
            if change[0] not in above:
                assert apply(before, [other for other in changes if other is not change]) != after
    assert replaced > 40


def test_each_change_has_the_folders_above_it() -> None:
    before = {"a": OTHERS[0], "a/b": FOLDER, "a/b/c": a_file(), "a/d": a_file(), "e": FOLDER}
    after = {"a": OTHERS[0], "a/b": FOLDER, "a/d": a_file(), "e": FOLDER}
    assert difference(before, after) == [("a", OTHERS[0]), ("a/b", FOLDER), ("a/b/.wh.c", None)]
    assert difference(after, before) == [("a", OTHERS[0]), ("a/b", FOLDER), ("a/b/c", a_file())]


def test_a_layer_hides_what_is_below_it_and_nothing_of_its_own() -> None:
    before = {"a": FOLDER, "a/b": FOLDER, "a/b/c": a_file(), "d": a_file()}
    new, link = a_file("2"), OTHERS[-2]
    for layer, left in (
        ([(whiteout("a/b"), None)], {"a": FOLDER, "d": a_file()}),
        ([(whiteout("d"), None)], {"a": FOLDER, "a/b": FOLDER, "a/b/c": a_file()}),
        ([("a/.wh..wh..opq", None)], {"a": FOLDER, "d": a_file()}),
        ([("a/n", new), ("a/.wh..wh..opq", None)], {"a": FOLDER, "a/n": new, "d": a_file()}),
        ([(".wh..wh..opq", None), ("n", new)], {"n": new}),
        ([("a/b/n", new), ("a/.wh.b", None)], {"a": FOLDER, "a/b": FOLDER, "a/b/n": new, "d": a_file()}),
        ([("a/b/c", new), ("a/b/.wh.c", None)], {**before, "a/b/c": new}),
        ([("a", link)], {"a": link, "d": a_file()}),
        ([("d", OTHERS[0]), ("d/n", new)], {**before, "d": OTHERS[0], "d/n": new}),
        ([("d/n", new)], {**before, "d": FOLDER, "d/n": new}),
        ([("x/y/n", new)], {**before, "x": FOLDER, "x/y": FOLDER, "x/y/n": new}),
        ([(".wh.nothing", None), ("nothing/.wh.here", None)], before),
    ):
        assert apply(before, layer) == left
        assert apply(before, layer[::-1]) == left


def test_a_file_that_is_equal_keeps_its_time() -> None:
    tree = apply({"a": a_file(time=1), "b": a_file(time=1)}, [("a", a_file(time=2)), ("b", a_file("2", time=2))])
    assert {path: node.time for path, node in tree.items()} == {"a": 1, "b": 2}


def test_restored_paths_change_back_and_no_others_change() -> None:
    random = Random(8)
    for _ in range(500):
        before, after = random_tree(random), random_tree(random)
        roots = {"/".join(random.choices(NAMES, k=random.randint(1, 2))) for _ in range(2)}
        tree = restore(before, after, roots)
        for path in before.keys() | after.keys():
            is_meant = any(path == root or path.startswith(f"{root}/") for root in roots)
            assert tree.get(path) == (before if is_meant else after).get(path)
        assert tree.keys() <= before.keys() | after.keys()


def test_the_first_name_of_a_file_has_its_content() -> None:
    one, other = (FileNode(kind=tarfile.REGTYPE, mode=0o644, content="1", file=name) for name in ("x", "y"))
    changes = [("a", FOLDER), ("a/b", one), ("c", other), ("d", one), ("e", None), ("f", one), ("g", OTHERS[-2])]
    assert [target for *_, target in linked_once(changes)] == ["", "", "", "a/b", "", "a/b", ""]


def test_no_time_is_after_the_latest_or_before_1970() -> None:
    times = [with_time(a_file(time=time), 100).time for time in (-1, 0, 99, 101)]
    assert times == [0, 0, 99, 100]
    assert with_time(FOLDER, 100).time == 100


def test_a_name_of_an_entry_is_a_path_within_the_tree() -> None:
    for name, path in (
        ("a/b", "a/b"), ("./a//b/", "a/b"), ("/a", "a"), ("../../a", "a"), ("a/../b", "b"), (".", ROOT), ("/", ROOT),
        ("", ROOT), ("a/..", ROOT),
    ):  # fmt: skip
        assert clean_path(name) == path, name
