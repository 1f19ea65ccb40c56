"""The packages that differ between two images, and the files that belong to none."""

from collections.abc import Sequence

from tests.unit.contents.inventories import entry, image, package
from torchbake.contents.file_changes import FileChange
from torchbake.contents.model import InstalledPackage, LayerFile
from torchbake.contents.package_changes import ContentChanges, PackageChange, content_changes

Side = tuple[Sequence[LayerFile], Sequence[InstalledPackage]]


def changes(before: Side, after: Side) -> ContentChanges:
    """Compare two images, and check that the parts add up to the whole."""
    value = content_changes(*(image(*files, packages=packages) for files, packages in (before, after)))
    parts: list[PackageChange | FileChange] = [*value.packages, *value.files, *value.bytecode]
    assert sum(each.size_after - each.size_before for each in parts) == value.size_after - value.size_before
    return value


def short(change: PackageChange) -> tuple[str, str, str, str, int, int, int]:
    return (
        change.state, change.name, change.before, change.after, change.size_before, change.size_after,
        len(change.files),
    )  # fmt: skip


def test_each_change_of_a_package_is_named_with_its_bytes() -> None:
    one, other = (
        [entry("s/p/a.py", "one"), entry("s/p/b.py", "b")],
        [entry("s/p/a.py", "other"), entry("s/p/b.py", "b")],
    )
    names = ("s/p/a.py", "s/p/b.py")
    old, new = package("p", "1", *names), package("p", "2", *names)
    for before, after, expected in (
        (([], []), (one, [old]), [("added", "p", "", "1", 0, 4, 2)]),
        ((one, [old]), ([], []), [("removed", "p", "1", "", 4, 0, 2)]),
        ((one, [old]), (other, [new]), [("changed", "p", "1", "2", 4, 6, 1)]),
        ((one, [old]), (other, [old]), [("rebuilt", "p", "1", "1", 4, 6, 1)]),
        ((one, [old]), (one, [old]), []),
        ((one, [old]), (one, [new]), [("changed", "p", "1", "2", 4, 4, 0)]),
        ((one, [old]), (one, []), [("removed", "p", "1", "", 4, 4, 0)]),  # its files are still there
    ):
        value = changes(before, after)
        assert [short(each) for each in value.packages] == expected, expected
        assert value.files == ()


def test_bytecode_is_compared_apart() -> None:
    pyc = ["s/p/__pycache__/a.cpython-311.pyc", "s/p/__pycache__/b.cpython-311.pyc"]
    own = package("p", "1", "s/p/a.py", pyc[0])
    value = changes(([entry("s/p/a.py"), *(entry(name, "old") for name in pyc)], [own]),
                    ([entry("s/p/a.py"), *(entry(name, "newer") for name in pyc)], [own]))  # fmt: skip
    assert (value.packages, value.files) == ((), ())
    assert [each.path for each in value.bytecode] == pyc
    newer = package("p", "2", "s/p/a.py", pyc[0])
    value = changes(([entry("s/p/a.py"), entry(pyc[0], "old")], [own]), ([entry("s/p/a.py")], [newer]))
    assert [short(each) for each in value.packages] == [("changed", "p", "1", "2", 1, 1, 0)]


def test_files_move_within_a_package_only() -> None:
    text = "uv"
    before = [entry("s/a-1.dist-info/INSTALLER", text), entry("s/b/x", "x")], [
        package("a", "1", "s/a-1.dist-info/INSTALLER"), package("b", "1", "s/b/x"),
    ]  # fmt: skip
    after = [entry("s/c-1.dist-info/INSTALLER", text), entry("s/b/y", "x")], [
        package("c", "1", "s/c-1.dist-info/INSTALLER"), package("b", "1", "s/b/y"),
    ]  # fmt: skip
    value = changes(before, after)
    assert [(each.state, each.name, [file.state for file in each.files]) for each in value.packages] == [
        ("removed", "a", ["removed"]),
        ("rebuilt", "b", ["moved"]),
        ("added", "c", ["added"]),
    ]


def test_a_package_in_another_owns_no_file() -> None:
    paths = ("s/setuptools/a.py", "s/setuptools/_vendor/six/b.py")
    before, after = (
        ([entry(paths[0]), entry(paths[1], text)], [package("setuptools", "1", *paths), package("six", six, paths[1])])
        for text, six in (("old", "1"), ("newer", "2"))
    )
    assert [short(each) for each in changes(before, after).packages] == [
        ("rebuilt", "setuptools", "1", "1", 4, 6, 1),
        ("changed", "six", "1", "2", 0, 0, 0),
    ]


def test_several_versions_of_a_package_are_listed() -> None:
    before = [package("libc6", "1", "lib/a", kind="debian")]
    value = changes(([], before), ([], [*before, package("libc6", "2", "lib/b", kind="debian")]))
    assert [(each.before, each.after) for each in value.packages] == [("1", "1, 2")]


def test_a_folder_of_several_packages_belongs_to_none() -> None:
    own = [package("a", "1", "usr", "usr/a", kind="debian")]
    before, after = (([entry("usr", "", kind="folder", mode=mode), entry("usr/a")], own) for mode in (0o755, 0o700))
    value = changes(before, after)
    assert value.packages == ()
    assert [(each.path, each.aspects) for each in value.files] == [("usr", ("mode",))]
