"""Layers on each other: what is visible, what hides what, and links to folders."""

import io
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.contents.layers import image_of
from tests.unit.layouts import Entry, archive, file
from torchbake.contents.model import Inventory
from torchbake.contents.overlay import FolderLinks
from torchbake.oci.layer_tree import read_changes
from torchbake.oci.tree import FileNode, apply


def folder(name: str) -> Entry:
    return file(name, type=tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str) -> Entry:
    return file(name, type=tarfile.SYMTYPE, linkname=target)


def hard(name: str, target: str) -> Entry:
    return file(name, type=tarfile.LNKTYPE, linkname=target)


def states(image: Inventory) -> dict[tuple[int, str], tuple[int | None, bool]]:
    return {(entry.layer, entry.path): (entry.hidden_by, entry.replaced) for entry in image.files}


def test_a_later_layer_replaces_removes_and_keeps() -> None:
    image = image_of(
        [folder("d"), file("d/kept", b"1"), file("d/gone", b"22"), file("d/new", b"333")],
        [folder("d"), file("d/new", b"4444"), file("d/.wh.gone")],
        [file("d/gone", b"5")],
    )
    assert states(image) == {
        (0, "d"): (1, True),
        (0, "d/gone"): (1, False),
        (0, "d/kept"): (None, False),
        (0, "d/new"): (1, True),
        (1, "d"): (None, False),
        (1, "d/new"): (None, False),
        (2, "d/gone"): (None, False),
    }
    assert [layer.size for layer in image.layers] == [6, 4, 1]
    assert image.size == 11
    assert sorted(image.visible) == ["d", "d/gone", "d/kept", "d/new"]


def test_an_opaque_folder_hides_lower_layers_and_not_its_own() -> None:
    image = image_of(
        [folder("d"), file("d/a", b"1"), folder("d/e"), file("d/e/b", b"1"), file("other")],
        [file("d/e/c")],
        [folder("d"), file("d/.wh..wh..opq"), file("d/a", b"2"), file("d/z")],
    )
    hidden = {key: state for key, state in states(image).items() if state[0] is not None}
    assert hidden == {
        (0, "d"): (2, True), (0, "d/a"): (2, True), (0, "d/e"): (2, False), (0, "d/e/b"): (2, False),
        (1, "d/e/c"): (2, False),
    }  # fmt: skip
    assert sorted(image.visible) == ["d", "d/a", "d/z", "other"]


def test_an_opaque_root_hides_everything_below() -> None:
    image = image_of([folder("d"), file("d/a"), file("top")], [file(".wh..wh..opq"), file("new")])
    assert sorted(image.visible) == ["new"]
    image = image_of([folder("d"), file("d/a")], [file(".wh..wh..opq"), file("d")], [file("d/x")])
    assert sorted(image.visible) == ["d/x"]


def test_a_file_in_place_of_a_folder_and_back() -> None:
    image = image_of([folder("d"), file("d/a"), file("d/e/b")], [file("d", b"1")], [file("d/x", b"2")])
    assert states(image) == {
        (0, "d"): (1, True), (0, "d/a"): (1, False), (0, "d/e/b"): (1, False), (1, "d"): (2, False),
        (2, "d/x"): (None, False),
    }  # fmt: skip


def test_a_whiteout_of_a_folder_hides_all_below_it() -> None:
    image = image_of([file("c/pip/a"), file("c/pip/b/c"), file("c/pipx")], [file("c/.wh.pip")], [file("c/pip/a")])
    hidden = {key for key, (layer, _) in states(image).items() if layer == 1}
    assert hidden == {(0, "c/pip/a"), (0, "c/pip/b/c")}
    assert sorted(image.visible) == ["c/pip/a", "c/pipx"]


def test_paths_below_a_link_to_a_folder_are_real_ones() -> None:
    image = image_of(
        [folder("usr/lib"), link("lib", "usr/lib"), file("usr/lib/a", b"1"), link("abs", "/usr/lib"), link("me", "me")],
        [file("lib/a", b"2"), file("abs/b", b"3"), hard("lib/c", "lib/a"), file("me/x")],
        [file("lib/.wh.b"), folder("lib"), file("lib/own", b"4")],
    )
    assert image.visible["usr/lib/a"].layer == 1
    assert image.visible["usr/lib/c"].content == "usr/lib/a"
    assert states(image)[0, "usr/lib/a"] == (1, True)
    assert states(image)[0, "lib"] == (2, True)
    assert sorted(path for path in image.visible if path.startswith("lib")) == ["lib", "lib/own"]


def test_a_relative_link_begins_at_its_own_folder() -> None:
    image = image_of([folder("usr/lib"), link("usr/lib64", "lib"), link("lib", "../usr/lib64")], [file("lib/a")])
    assert "usr/lib/a" in image.visible


def test_a_path_leads_over_as_many_links_as_linux_follows() -> None:
    for count, end in ((40, "40"), (41, "40")):
        folders = FolderLinks(links={f"{number}": f"{number + 1}" for number in range(count)})
        assert folders.followed("0") == end, count


def test_a_removed_link_to_a_folder_is_not_followed() -> None:
    lower = [folder("usr/lib"), link("lib", "usr/lib")]
    for layers in ([[file(".wh.lib"), file("lib/x")]], [[file(".wh.lib")], [file("lib/x")]]):
        assert sorted(image_of(lower, *layers).visible) == ["lib/x", "usr/lib"]


def test_a_hard_link_to_a_lower_layer_stays_when_its_target_goes() -> None:
    image = image_of([file("a", b"123")], [hard("b", "a")], [file(".wh.a")])
    assert states(image) == {(0, "a"): (2, False), (1, "b"): (None, False)}
    assert (image.visible["b"].kind, image.visible["b"].size, image.visible["b"].content) == ("hardlink", 0, "a")


def test_a_history_of_other_length_names_no_steps() -> None:
    assert [layer.step for layer in image_of([file("a")], [file("b")]).layers] == ["", ""]


NAMES = st.sampled_from(["a", "b", "a/b", "a/c", "a/b/c", "b/a", "b/c/a"])
ENTRIES = st.one_of(
    NAMES.map(lambda name: file(name, name.encode())),
    NAMES.map(folder),
    NAMES.map(lambda name: file("/".join([*name.split("/")[:-1], f".wh.{name.split('/')[-1]}"]))),
    NAMES.map(lambda name: file(f"{name}/.wh..wh..opq")),
)
LAYERS = st.lists(ENTRIES, max_size=5, unique_by=lambda entry: entry[0].name)


def is_sound(entries: list[Entry]) -> bool:
    """Return whether no entry is below a file of the same layer, which no engine unpacks."""
    files = {info.name for info, _ in entries if info.isreg()}
    return not any(info.name.startswith(f"{name}/") for name in files for info, _ in entries)


@given(st.lists(LAYERS.filter(is_sound), min_size=1, max_size=4))
def test_the_visible_files_are_those_of_the_tree(layers: list[list[Entry]]) -> None:
    """Compare with the rules of `torchbake/oci/tree.py`, except for folders that no layer has an entry for."""
    tree = dict[str, FileNode]()
    for entries in layers:
        with tarfile.open(fileobj=io.BytesIO(archive(*entries))) as packed:
            tree = apply(tree, read_changes(packed))
    visible = image_of(*layers).visible
    assert {path for path, node in tree.items() if not node.is_folder} == {
        path for path, entry in visible.items() if entry.kind != "folder"
    }
    assert {path for path, entry in visible.items() if entry.kind == "folder"} <= {*tree}
