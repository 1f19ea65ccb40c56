"""Changes in words and as JSON."""

import json

from tests.unit.contents.inventories import entry, image, link, package
from torchbake.contents.change_text import as_json, describe_file, describe_folder, describe_package, signed, tally
from torchbake.contents.compare import compare_images
from torchbake.contents.file_changes import changed_files, with_moves
from torchbake.contents.folder_groups import FolderChanges
from torchbake.contents.model import LayerFile


def described(before: LayerFile | None, after: LayerFile | None) -> str:
    one, other = ({file.path: file} if file else {} for file in (before, after))
    (change,) = with_moves(changed_files(one, other))
    return describe_file(change)


def test_a_change_is_described_with_both_values() -> None:
    for before, after, words in (
        (None, entry("a"), "added"),
        (entry("a"), None, "removed"),
        (entry("a", mode=0o644), entry("a", mode=0o4755), "mode 644 → 4755"),
        (entry("a"), entry("a", uid=1001), "owner 0:0 → 1001:0"),
        (link("a", "b"), link("a", "c"), "link b → c"),
        (entry("a"), link("a", "c"), "kind file → symlink"),
        (entry("a", "1" * 64), entry("a", "2" * 64), f"content {'1' * 12} → {'2' * 12}"),
        (entry("a"), entry("b", mode=0o600), "moved from /a, mode 644 → 600"),
    ):
        assert described(before, after) == words


def test_a_group_is_counted_and_a_package_says_if_it_was_rebuilt() -> None:
    files = [image(entry("lib/a"), entry("lib/b")), image(entry("usr/lib/a"), entry("usr/lib/b"))]
    moved = compare_images(*files).files
    assert tally(moved) == "2 moved"
    assert describe_folder(FolderChanges(path="usr/lib/", changes=moved)) == "2 moved from /lib/"
    assert describe_folder(FolderChanges(path="usr/lib/a", changes=moved[:1])) == "moved from /lib/a"
    before, after = (image(entry("p", text), packages=[package("p", "1", "p")]) for text in "xy")
    (change,) = compare_images(before, after).packages
    assert describe_package(change) == "1, rebuilt: 1 changed"


def test_bytes_have_a_sign() -> None:
    assert [signed(size) for size in (1200, 0, -1200)] == ["+1.2 kB", "", "−1.2 kB"]


def test_the_json_has_every_part_and_lists_all_files_on_request() -> None:
    before = image(entry("p/x"), entry("f"), packages=[package("p", "1", "p/x")])
    after = image(
        entry("p/x", "xyz"), entry("g", "new"), entry("c.pyc", "1234"), name="b", settings={"User": "1"},
        packages=[package("p", "2", "p/x")],
    )  # fmt: skip
    comparison = compare_images(before, after)
    short, full = (json.loads(json.dumps(as_json(comparison, files=files))) for files in (False, True))
    assert short["equal"] is False
    assert (short["first"]["visible_bytes"], short["second"]["visible_bytes"], short["pull"]) == (2, 10, 10)
    assert [(each["path"], each["change"], each["bytes"]) for each in short["files"]] == [
        ("/f", "removed", [1, 0]),
        ("/g", "added", [0, 3]),
    ]
    assert short["bytecode"] == {"changed_files": 1, "bytes": [0, 4]}
    assert short["config"] == [{"key": "User", "first": None, "second": "1"}]
    assert short["packages"] == [
        {"kind": "python", "name": "p", "change": "changed", "first": "1", "second": "2", "bytes": [1, 3],
         "changed_files": 1},
    ]  # fmt: skip
    assert [each["path"] for each in full["packages"][0]["files"]] == ["/p/x"]
    assert [each["path"] for each in full["bytecode"]["list"]] == ["/c.pyc"]
