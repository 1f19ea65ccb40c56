"""Packages of images whose layers are made here."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from torchbake.errors import EngineError
from torchbake.sbom.layer_scan import Findings, read_layer
from torchbake.sbom.package_metadata import read_debs
from torchbake.sbom.packages import CompressedLayer, ImagePackages, Package, contents_of, packages_in

SITE = "opt/venv/lib/python3.11/site-packages"
STATUS = "var/lib/dpkg/status"
BASH = "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nSource: bash-src (5.2-1)\nVersion: 5.2-1+b1\n"
ZLIB = "Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:1.2\n"
DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
PACKERS: dict[str, Callable[[bytes], bytes]] = {"tar": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


@dataclass(frozen=True)
class Entry:
    """An archive member that is not a plain file: a folder, or a link of the kind to a target."""

    kind: bytes = tarfile.DIRTYPE
    target: str = ""


Tree = dict[str, str | bytes | Entry]


def symlink(target: str) -> Entry:
    return Entry(tarfile.SYMTYPE, target)


def tar(entries: Sequence[tuple[str, str | bytes | Entry]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if isinstance(content, Entry):
                member.type, member.linkname = content.kind, content.target
                archive.addfile(member)
                continue
            data = content.encode() if isinstance(content, str) else content
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def stored(folder: Path, data: bytes) -> CompressedLayer:
    digest = hashlib.sha256(data).hexdigest()
    (folder / digest).write_bytes(data)
    return CompressedLayer(digest=f"sha256:{digest}", path=folder / digest)


def image(folder: Path, *layers: Tree, packer: str = "tar") -> list[CompressedLayer]:
    return [stored(folder, PACKERS[packer](tar(list(layer.items())))) for layer in layers]


def scan(folder: Path, *layers: Tree) -> ImagePackages:
    return packages_in(image(folder, *layers))


def names(contents: ImagePackages) -> list[str]:
    return [f"{package.name} {package.version}" for package in contents.packages]


def wheel(name: str = "numpy", version: str = "2.4.6", *, root: str = SITE, more: str = "") -> Tree:
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{more}\nThe text, Name: no\n"
    return {f"{root}/{name}-{version}.dist-info/METADATA": text}


@pytest.mark.parametrize("packer", PACKERS)
def test_a_layer_is_read_however_it_is_packed(tmp_path: Path, packer: str) -> None:
    layers = image(tmp_path, wheel(more="License-Expression: MIT\n"), {STATUS: BASH}, packer=packer)
    assert packages_in(layers).packages == (
        Package(
            kind="debian", name="bash", version="5.2-1+b1", architecture="amd64", source="bash-src",
            source_version="5.2-1",
        ),
        Package(kind="python", name="numpy", version="2.4.6", licenses=("MIT",), locations=(f"/{SITE}",)),
    )  # fmt: skip


def test_a_zstd_layer_may_have_several_and_skippable_frames(tmp_path: Path) -> None:
    data = tar(list(wheel().items()))
    skipped = b"\x51\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    packed = skipped + zstandard.compress(data[:700]) + skipped + zstandard.compress(data[700:])
    assert names(packages_in([stored(tmp_path, packed)])) == ["numpy 2.4.6"]


@pytest.mark.parametrize("prefix", ["", "./", "/"])
def test_a_path_is_the_same_however_it_is_written(tmp_path: Path, prefix: str) -> None:
    layer: Tree = {f"{prefix}{path}": text for path, text in (wheel() | {STATUS: ZLIB}).items()}
    missing: Tree = {f"{prefix}{SITE}/.wh.numpy-2.4.6.dist-info": ""}
    assert names(scan(tmp_path, layer)) == ["zlib1g 1:1.2", "numpy 2.4.6"]
    assert names(scan(tmp_path, layer, missing)) == ["zlib1g 1:1.2"]


@pytest.mark.parametrize(
    "upper",
    [
        {f"{SITE}/numpy-2.4.6.dist-info/.wh.METADATA": ""},
        {f"{SITE}/.wh.numpy-2.4.6.dist-info": ""},
        {"opt/.wh.venv": ""},
        {".wh.opt": ""},
        {f"{SITE}/numpy-2.4.6.dist-info/.wh..wh..opq": ""},
        {"opt/venv/.wh..wh..opq": ""},
        {".wh..wh..opq": ""},
        {"opt/venv": symlink("/elsewhere")},
        {"opt/venv": "a file"},
        {f"{SITE}/numpy-2.4.6.dist-info/METADATA": Entry()},
    ],
    ids=str,
)
def test_what_an_upper_layer_hides_is_not_there(tmp_path: Path, upper: Tree) -> None:
    lower = wheel() | wheel("jinja2", "3.1", root="pytorch")
    expected = [] if not {".wh..wh..opq"}.isdisjoint(upper) else ["jinja2 3.1"]
    assert names(scan(tmp_path, lower, upper)) == expected


@pytest.mark.parametrize(
    "upper",
    [
        {f"{SITE}/.wh.numpy": ""},
        {f"{SITE}/numpy-2.4.6.dist-info/.wh.RECORD": ""},
        {f"{SITE}/numpy/.wh..wh..opq": ""},
        {SITE: Entry()},
        {f"{SITE}/numpy-2.4.6.dist-info": Entry()},
        {"opt/venv2": "a file"},
    ],
    ids=str,
)
def test_what_an_upper_layer_leaves_stays(tmp_path: Path, upper: Tree) -> None:
    assert names(scan(tmp_path, wheel(), upper)) == ["numpy 2.4.6"]


@pytest.mark.parametrize("whiteout_first", [True, False])
def test_a_whiteout_hides_nothing_of_its_own_layer(tmp_path: Path, whiteout_first: bool) -> None:
    """An upgrade by one command: the old folder goes and the new one comes, in any order within the tar."""
    marks: Tree = {f"{SITE}/.wh..wh..opq": "", f"{SITE}/.wh.numpy-2.5.dist-info": ""}
    new = wheel(version="2.5")
    assert names(scan(tmp_path, wheel(), marks | new if whiteout_first else new | marks)) == ["numpy 2.5"]


def test_what_was_taken_away_can_come_back(tmp_path: Path) -> None:
    assert names(scan(tmp_path, wheel(), {"opt/.wh.venv": ""}, wheel(version="2.5"))) == ["numpy 2.5"]


def test_the_last_status_is_the_one_that_counts(tmp_path: Path) -> None:
    newer = BASH.replace("5.2-1+b1", "5.3")
    assert names(scan(tmp_path, {STATUS: f"{BASH}\n{ZLIB}"}, {STATUS: newer})) == ["bash 5.3"]


def test_the_last_entry_of_a_path_in_a_layer_counts(tmp_path: Path) -> None:
    newer = BASH.replace("5.2-1+b1", "5.3")
    assert names(packages_in([stored(tmp_path, tar([(STATUS, BASH), (STATUS, newer)]))])) == ["bash 5.3"]
    reason = tar([(STATUS, BASH), (STATUS, Entry())])
    assert names(packages_in([stored(tmp_path, reason)])) == []


def test_images_without_dpkg_have_packages_in_their_own_folder(tmp_path: Path) -> None:
    layer: Tree = {
        "var/lib/dpkg/status.d/base": BASH.replace("Status: install ok installed\n", ""),
        "var/lib/dpkg/status.d/zlib1g": ZLIB,
        "var/lib/dpkg/status.d/base.md5sums": "Package: no\nVersion: 1\n",
    }
    assert names(scan(tmp_path, layer)) == ["bash 5.2-1+b1", "zlib1g 1:1.2"]


def test_packages_without_files_are_none() -> None:
    states = ["deinstall ok config-files", "unknown ok not-installed", "install ok half-installed", "hold ok installed"]
    text = "\n".join(ZLIB.replace("install ok installed", state).replace("1:1.2", state[-9:]) for state in states)
    assert [deb.version for deb in read_debs(text).packages] == ["installed", "installed"]


def test_two_versions_of_one_distribution_are_two(tmp_path: Path) -> None:
    contents = scan(tmp_path, wheel(version="2.4"), wheel(version="2.5", root="pytorch"))
    assert [(p.version, p.locations) for p in contents.packages] == [("2.4", (f"/{SITE}",)), ("2.5", ("/pytorch",))]
    assert contents.bundled == ()


def test_one_version_in_two_places_is_one_with_both(tmp_path: Path) -> None:
    contents = scan(tmp_path, wheel(), wheel(root="pytorch", more="License-Expression: MIT\n"))
    assert [(p.locations, p.licenses) for p in contents.packages] == [((f"/{SITE}", "/pytorch"), ("MIT",))]


def test_packages_inside_a_distributions_folder_are_bundled(tmp_path: Path) -> None:
    own = wheel("setuptools", "84") | wheel("wheel", "0.46", root=f"{SITE}/setuptools/_vendor")
    both = own | wheel("zipp", "3.23", root=f"{SITE}/setuptools/_vendor") | wheel("zipp", "3.23", root="nvidia")
    assert [package.name for package in scan(tmp_path, own).bundled] == ["wheel"]
    assert [package.name for package in scan(tmp_path, both).bundled] == ["wheel"]


def test_a_folder_whose_name_only_begins_alike_is_not_inside(tmp_path: Path) -> None:
    assert scan(tmp_path, wheel(root="opt/a") | wheel("zipp", "1", root="opt/ab")).bundled == ()


def test_licenses_are_found_through_linked_folders_and_files(tmp_path: Path) -> None:
    doc = "usr/share/doc"
    layer: Tree = {
        STATUS: "\n".join(ZLIB.replace("zlib1g", name) for name in ("real", "folder", "file", "hard", "circle")),
        f"{doc}/real/copyright": f"{DEP5}Files: *\nLicense: Zlib\n",
        f"{doc}/folder": symlink("real"),
        f"{doc}/file/copyright": symlink("../real/copyright"),
        f"{doc}/hard/copyright": Entry(tarfile.LNKTYPE, f"./{doc}/real/copyright"),
        f"{doc}/circle": symlink("../doc/circle"),
    }
    matches = {package.name: package.licenses for package in scan(tmp_path, layer).packages}
    assert matches == dict.fromkeys(("real", "folder", "file", "hard"), ("Zlib",)) | {"circle": ()}
    folder: Tree = {f"{doc}/folder": Entry(), f"{doc}/folder/copyright": f"{DEP5}Files: *\nLicense: Expat\n"}
    matches = {package.name: package.licenses for package in scan(tmp_path, layer, folder).packages}
    assert (matches["real"], matches["folder"]) == (("Zlib",), ("MIT",))


def test_metadata_linked_elsewhere_is_named_by_its_folder(tmp_path: Path) -> None:
    path = f"{SITE}/Foo.Bar-1.0.dist-info/METADATA"
    assert names(scan(tmp_path, {path: symlink("/store/METADATA")})) == ["foo-bar 1.0"]


def test_the_system_is_what_its_release_file_says(tmp_path: Path) -> None:
    layer: Tree = {
        "etc/os-release": symlink("../usr/lib/os-release"),
        "usr/lib/os-release": 'ID=debian\nVERSION_ID="12"\n',
    }
    system = scan(tmp_path, layer).system
    assert (system.id, system.version) == ("debian", "12")
    assert scan(tmp_path, {}).system.id == ""


def test_a_remembered_layer_is_not_read_again(tmp_path: Path) -> None:
    cache = tmp_path / "state/packages"
    layers = image(tmp_path, wheel(), {STATUS: BASH, "opt/venv": symlink("/elsewhere")}, packer="zstd")
    first = packages_in(layers, cache)
    for layer in layers:
        layer.path.unlink()
    assert packages_in(layers, cache) == first
    assert names(first) == ["bash 5.2-1+b1"]
    with pytest.raises(EngineError, match="not at hand"):
        packages_in(layers)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"reader": "older", "found": {}}'], ids=repr)
def test_a_broken_cache_entry_is_read_anew(tmp_path: Path, damage: bytes) -> None:
    cache = tmp_path / "packages"
    layers = image(tmp_path, wheel())
    packages_in(layers, cache)
    (note,) = cache.iterdir()
    whole = note.read_bytes()
    note.write_bytes(damage)
    assert names(packages_in(layers, cache)) == ["numpy 2.4.6"]
    assert note.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert names(packages_in(image(tmp_path, wheel()), tmp_path / "file/packages")) == ["numpy 2.4.6"]


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("cut", [0.0, 0.3, 0.9, 0.999])
def test_a_layer_that_was_cut_off_is_an_error_and_not_remembered(tmp_path: Path, packer: str, cut: float) -> None:
    cache = tmp_path / "packages"
    (layer,) = image(tmp_path, {f"{n}": str(n) * 900 for n in range(9)} | wheel(), packer=packer)
    data = layer.path.read_bytes()
    layer.path.write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(EngineError, match=layer.digest):
        packages_in([layer], cache)
    assert not cache.exists()


@pytest.mark.parametrize("data", [b"", b"no tar", b"\x1f\x8bno gzip", b"\x28\xb5\x2f\xfdno zstd", b"x" * 2000])
def test_what_is_no_layer_is_an_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    layer = stored(tmp_path, data)
    with pytest.raises(EngineError, match=f"{layer.digest} cannot be read"):
        packages_in([layer])


def test_an_empty_layer_and_no_layers_hold_nothing(tmp_path: Path) -> None:
    assert packages_in(image(tmp_path, {}, packer="zstd")) == packages_in([]) == ImagePackages()


def test_what_a_layer_keeps_is_small(tmp_path: Path) -> None:
    layer: Tree = {f"torch/lib/{n}.so": b"x" * 100_000 for n in range(20)} | wheel()
    packages_in(image(tmp_path, layer), tmp_path / "packages")
    (note,) = (tmp_path / "packages").iterdir()
    assert note.stat().st_size < 2000


PATHS = [
    "a/x-1.dist-info/METADATA", "a/b/y-1.dist-info/METADATA", "a/b/.wh.y-1.dist-info", "a/.wh.b", "a/.wh..wh..opq",
    "a/b", "a", "a/b/.wh..wh..opq", ".wh.a",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PATHS), unique=True, max_size=4), max_size=4), st.data())
def test_layers_read_alone_are_what_unpacking_them_in_turn_gives(stack: list[list[str]], data: st.DataObject) -> None:
    """Against a small model of a file system; the order of entries within a layer has no say."""
    matches = []
    for layer in stack:
        entries = [path for path in layer if not any(other.startswith(f"{path}/") for other in layer)]
        matches.append((entries, data.draw(st.permutations(entries))))
    tree: dict[str, int] = {}
    for number, (entries, _) in enumerate(matches):
        tree = _unpacked(tree, entries, number)
    expected = sorted({Path(path).parent.name[0] for path in tree if path.endswith("METADATA")})
    read = contents_of(_findings(shuffled) for _, shuffled in matches)
    assert sorted(package.name for package in read.packages) == expected
    assert read == contents_of(_findings(entries) for entries, _ in matches)


def _unpacked(tree: dict[str, int], entries: Sequence[str], number: int) -> dict[str, int]:
    """The files of a tree, and the layer of each, after one more layer."""
    for path in entries:
        folder, _, name = path.rpartition("/")
        if name == ".wh..wh..opq":
            tree = {old: layer for old, layer in tree.items() if not old.startswith(f"{folder}/")}
        elif name.startswith(".wh."):
            hidden = f"{folder}/{name[4:]}".lstrip("/")
            tree = {old: layer for old, layer in tree.items() if old != hidden and not old.startswith(f"{hidden}/")}
    for path in entries:
        if not path.rpartition("/")[2].startswith(".wh."):
            parents = {str(parent) for parent in Path(path).parents}
            tree = {old: n for old, n in tree.items() if old not in parents and not old.startswith(f"{path}/")}
            tree[path] = number
    return tree


def _findings(paths: Sequence[str]) -> Findings:
    data = tar([(path, "") for path in paths])
    return read_layer(io.BytesIO(data), f"sha256:{hashlib.sha256(data).hexdigest()}")


def test_a_damaged_header_is_an_error_and_never_the_end(tmp_path: Path) -> None:
    data = bytearray(tar([("etc/os-release", "ID=debian\n"), (STATUS, BASH)]))
    data[2 * tarfile.BLOCKSIZE + 148] ^= 1  # the checksum of the second header
    layer = stored(tmp_path, bytes(data))
    with layer.path.open("rb") as file, pytest.raises(EngineError, match="header is damaged"):
        read_layer(file, layer.digest)


def test_an_opaque_root_hides_the_packages_below(tmp_path: Path) -> None:
    layers = [tar([(STATUS, BASH)]), tar([(".wh..wh..opq", ""), ("etc/os-release", "ID=debian\n")])]
    findings = []
    for data in layers:
        layer = stored(tmp_path, data)
        with layer.path.open("rb") as file:
            findings.append(read_layer(file, layer.digest))
    assert [package.name for package in contents_of(findings[:1]).packages] == ["bash"]
    assert contents_of(findings).packages == ()
