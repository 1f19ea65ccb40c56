"""`diff` of images with one known difference each, found to the byte: image layouts, an engine and a registry."""

import itertools
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, Completed, ref_of, torchbake
from tests.e2e.registries import registry
from tests.unit.contents.test_read import write_index
from tests.unit.documents import commands
from tests.unit.layouts import Entry, archive, file, put
from tests.wheels import write_wheel
from torchbake.store.layout import Layout

pytestmark = pytest.mark.contents

SITE = "opt/venv/lib/python3.11/site-packages"
DPKG = "var/lib/dpkg"
TOOLS = ROOT / ".torchbake/tools"
DOCS = ROOT / "docs/how-to/diff.md"
WIDTHS = (360, 768, 1280)


class Image(NamedTuple):
    """The layers, packing and settings of an image in a layout of its own."""

    layers: Sequence[Sequence[Entry]]
    packing: str = "gzip"
    settings: Mapping[str, Any] | None = None

    def write(self, folder: Path) -> None:
        layout = Layout(folder=folder)
        config = {"architecture": "amd64", "os": "linux", "config": {**(self.settings or {})}}
        layers = (archive(*entries) for entries in self.layers)
        write_index(layout, put(layout, *layers, packing=self.packing, config=config))


def wheel(name: str, version: str, files: Mapping[str, bytes]) -> list[Entry]:
    """The files of an installed distribution."""
    info = f"{name}-{version}.dist-info"
    own = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()}
    record = "".join(f"{path},,\n" for path in (*own, f"{info}/RECORD"))
    return [file(f"{SITE}/{path}", data) for path, data in (own | {f"{info}/RECORD": record.encode()}).items()]


def debs(*packages: tuple[str, str, Mapping[str, bytes]]) -> list[Entry]:
    """The files of Debian packages, and those of dpkg."""
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
        for name, version, _ in packages
    )
    entries = [file(f"{DPKG}/status", status.encode())]
    for name, _, files in packages:
        listed = "".join(f"/{path}\n" for path in files)
        entries.append(file(f"{DPKG}/info/{name}.list", listed.encode()))
        entries += [file(path, data) for path, data in files.items()]
    return entries


BASE = [
    *debs(("libc6", "2.36", {"usr/lib/libc.so.6": b"c" * 500}), ("zlib1g", "1.2", {"usr/lib/libz.so.1": b"z" * 300})),
    file("etc/motd", b"hello\n"),
    file("srv/model/weights", b"w" * 1000),
    *wheel("numpy", "2.0", {"numpy/__init__.py": b"n" * 100}),
]
SETTINGS = {"Env": ["PATH=/usr/bin", "HF_TOKEN=secret-1"], "User": "1001"}
A = Image([BASE], settings=SETTINGS)


def bytes_in(entries: Sequence[Entry]) -> int:
    return sum(len(data) for _, data in entries)


def instead(*entries: Entry) -> list[Entry]:
    """The base with these entries in place of those of the same paths."""
    names = {info.name: (info, data) for info, data in (*BASE, *entries)}
    return [*names.values()]


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    """A function that writes two images, and returns the JSON of their comparison."""

    def compare(before: Image, after: Image, *words: str) -> dict[str, Any]:
        for name, one in (("a", before), ("b", after)):
            one.write(tmp_path / name)
        return diff(str(tmp_path / "a"), str(tmp_path / "b"), *words)

    return compare


def run(*words: str, code: int = 0) -> Completed:
    process = torchbake("diff", *words)
    assert process.returncode == code, process.stderr
    return process


def diff(*words: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(run(*words, "--format", "json").stdout)
    return value


def parts(value: Mapping[str, Any]) -> set[str]:
    """The parts in which two images differ, without layers, which differ if any file does."""
    return {
        *(name for name in ("packages", "files", "config") if value[name]),
        *(["bytecode"] if value["bytecode"]["changed_files"] else []),
    }


def growth(value: Mapping[str, Any]) -> int:
    """The bytes by which the second container is larger, which all its changes together make."""
    changes = [*value["packages"], *value["files"], value["bytecode"]]
    total: int = value["second"]["visible_bytes"] - value["first"]["visible_bytes"]
    assert sum(after - before for before, after in (change["bytes"] for change in changes)) == total
    return total


def test_one_more_wheel(compared: Any) -> None:
    new = wheel("einops", "0.8", {"einops/__init__.py": b"e" * 77, "einops/layers.py": b"l" * 1234})
    value = compared(A, Image([BASE, new], settings=SETTINGS))
    assert parts(value) == {"packages"}
    (change,) = value["packages"]
    assert (change["kind"], change["name"], change["change"], change["second"]) == ("python", "einops", "added", "0.8")
    assert (change["bytes"], change["changed_files"]) == ([0, bytes_in(new)], 4)
    assert growth(value) == bytes_in(new)
    assert (len(value["layers"]["shared"]), len(value["layers"]["added"]), value["layers"]["removed"]) == (1, 1, [])
    assert value["pull"] == value["layers"]["added"][0]["compressed"]


def test_a_newer_debian_package(compared: Any) -> None:
    newer = debs(
        ("libc6", "2.36", {"usr/lib/libc.so.6": b"c" * 500}), ("zlib1g", "1.3", {"usr/lib/libz.so.1": b"Z" * 345})
    )
    value = compared(A, Image([instead(*newer)], settings=SETTINGS))
    assert parts(value) == {"packages", "files"}
    (change,) = value["packages"]
    assert (change["name"], change["change"], change["first"], change["second"]) == ("zlib1g", "changed", "1.2", "1.3")
    assert change["bytes"][1] - change["bytes"][0] == growth(value) == 45
    assert [each["path"] for each in value["files"]] == [f"/{DPKG}/status"]


def test_a_wheel_of_the_same_version_with_another_file(compared: Any) -> None:
    value = compared(A, Image([instead(file(f"{SITE}/numpy/__init__.py", b"N" * 110))], settings=SETTINGS), "--files")
    assert parts(value) == {"packages"}
    (change,) = value["packages"]
    assert (change["change"], change["changed_files"], growth(value)) == ("rebuilt", 1, 10)
    assert [each["path"] for each in change["files"]] == [f"/{SITE}/numpy/__init__.py"]


def test_one_file_that_differs(compared: Any) -> None:
    """Each aspect alone: nothing else differs, whether the file is in the same layer or in one above."""
    weights, motd = file("srv/model/weights", b"w" * 1000), "etc/motd"
    for entry, expected, size in (
        (file(motd, b"hello\n", mode=0o755), ("changed", ["mode"]), 0),
        (file(motd, b"hello\n", uid=1001), ("changed", ["owner"]), 0),
        (file(motd, b"hallo\n"), ("changed", ["content"]), 0),
        (file(motd, b"hello, all\n"), ("changed", ["content"]), 5),
        (file(motd, type=tarfile.SYMTYPE, linkname="issue"), ("changed", ["kind"]), -6),
        (file("srv/notes", b"123"), ("added", []), 3),
        (file("srv/link", type=tarfile.SYMTYPE, linkname="model"), ("added", []), 0),
        (file("srv/weights", type=tarfile.LNKTYPE, linkname=weights[0].name), ("added", []), 0),
    ):
        for layers in ([instead(entry)], [BASE, [entry]]):
            if entry[0].islnk() and len(layers) > 1:
                continue  # a hard link is in the layer of its file
            value = compared(A, Image(layers, settings=SETTINGS))
            assert parts(value) == {"files"}, entry
            (change,) = value["files"]
            assert (change["path"], change["change"], change["differs"]) == (f"/{entry[0].name}", *expected)
            assert growth(value) == size


def test_a_file_that_was_moved_or_removed(compared: Any) -> None:
    rest = [entry for entry in BASE if entry[0].name != "srv/model/weights"]
    whiteout = file("srv/model/.wh.weights")
    for layers, state in (
        ([[*rest, file("opt/weights", b"w" * 1000)]], "moved"),
        ([BASE, [whiteout, file("opt/weights", b"w" * 1000)]], "moved"),
        ([rest], "removed"),
        ([BASE, [whiteout]], "removed"),
    ):
        value = compared(A, Image(layers, settings=SETTINGS))
        (change,) = value["files"]
        assert (change["change"], change["first"]["path"]) == (state, "/srv/model/weights")
        assert growth(value) == (0 if state == "moved" else -1000)


def test_a_merged_usr_is_one_moved_folder(tmp_path: Path) -> None:
    libraries = [file(f"lib/x{number}.so", b"%d" % number * 50) for number in range(40)]
    moved = [file(f"usr/{info.name}", data) for info, data in libraries]
    Image([libraries]).write(tmp_path / "a")
    Image([[file("lib", type=tarfile.SYMTYPE, linkname="usr/lib"), *moved]]).write(tmp_path / "b")
    lines = run(str(tmp_path / "a"), str(tmp_path / "b"), "--only", "files").stdout.splitlines()
    assert [line.split() for line in lines[1:] if line.startswith("/")] == [
        ["/lib", "kind", "folder", "→", "symlink"],
        ["/usr/lib/", "40", "moved", "from", "/lib/"],
    ]


def test_other_settings_alone(compared: Any) -> None:
    other = {"Env": ["PATH=/opt/bin", "HF_TOKEN=secret-2"], "User": "1001", "Cmd": ["bash"]}
    value = compared(A, Image([BASE], settings=other))
    assert (parts(value), growth(value), value["pull"]) == ({"config"}, 0, 0)
    assert [tuple(each.values()) for each in value["config"]] == [
        ("Cmd", None, '["bash"]'),
        ("Env.HF_TOKEN", "***", "***"),
        ("Env.PATH", "/usr/bin", "/opt/bin"),
    ]


def test_a_squashed_image_has_other_layers_and_nothing_else(compared: Any) -> None:
    upper = [file("etc/motd", b"second"), file("srv/model/.wh.weights")]
    squashed = [entry for entry in instead(upper[0]) if entry[0].name != "srv/model/weights"]
    value = compared(Image([BASE, upper], settings=SETTINGS), Image([squashed], settings=SETTINGS))
    assert (parts(value), growth(value)) == (set(), 0)
    assert [len(value["layers"][name]) for name in ("shared", "added", "removed")] == [0, 1, 2]
    assert value["first"]["bytes"] - value["second"]["bytes"] == len(b"hello\n") + 1000


def test_another_compression_is_only_pulled_again(compared: Any) -> None:
    value = compared(A, A._replace(packing="zstd"))
    assert (parts(value), growth(value)) == (set(), 0)
    (layer,) = value["layers"]["repacked"]
    assert value["pull"] == layer["compressed"]
    assert value["layers"]["added"] == value["layers"]["removed"] == []


def test_the_exit_code_says_whether_images_differ(tmp_path: Path) -> None:
    for name, one in (("a", A), ("copy", A), ("b", Image([BASE, [file("x", b"x")]], settings=SETTINGS))):
        one.write(tmp_path / name)
    a, copy, b = (str(tmp_path / name) for name in ("a", "copy", "b"))
    run(a, b)
    run(a, b, "--exit-code", code=1)
    run(a, b, "--exit-code", "--only", "config")
    assert len(run(a, copy, "--exit-code").stdout.splitlines()) == 1


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    Image([BASE], settings=SETTINGS).write(tmp_path / "a")
    Image([BASE, [file("x", b"x")]], settings={}).write(tmp_path / "b")
    names = {"cpu": "a", "ghcr.io/acme/pytorch:cpu": "b", "diff.html": "diff.html"}
    lines = [command.words for command in commands("docs/how-to/diff.md", DOCS.read_text())]
    assert len(lines) > 4
    for words in lines:
        mine = [str(tmp_path / names[word]) if word in names else word for word in words]
        run(*mine, code=1 if "--exit-code" in words else 0)
    assert (tmp_path / "diff.html").exists()


@pytest.mark.long  # tests/e2e/test_report.py has a page in the same style
def test_the_page_fits_every_screen(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser to look with")
    from tests.e2e.browser import NoBrowserError, Scheme, chromium, faults_of_page  # noqa: PLC0415 - it needs playwright

    new = wheel("einops-of-a-long-name", "0.8.20261128+local", {f"einops/{number}.py": b"e" for number in range(50)})
    A.write(tmp_path / "a")
    Image([BASE, new, [file("etc/motd")]], settings={"Env": [f"PATH={'/usr/bin:' * 30}"]}).write(tmp_path / "b")
    page = tmp_path / "diff.html"
    run(str(tmp_path / "a"), str(tmp_path / "b"), "--page", str(page))
    try:
        with chromium(TOOLS / "chromium") as browser:
            schemes: list[Scheme] = ["light", "dark"]
            for width, scheme in itertools.product(WIDTHS, schemes):
                picture = tmp_path / f"{width}-{scheme}.png"
                assert faults_of_page(browser, page, (width, 900), scheme, picture) == [], (width, scheme)
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")


OLDER = """\
FROM {ref} AS older
USER 0
RUN --mount=type=bind,target=/context dpkg -i /context/tool-1.0.deb
USER 1001
"""
NEWER = "\n".join(
    (
        "FROM older AS newer",
        "USER 0",
        "RUN --mount=type=bind,target=/context dpkg -i /context/tool-1.1.deb",
        "RUN --mount=type=bind,target=/context pip install --no-index --no-compile /context/*.whl",
        "RUN head -c 4096 /dev/zero >/srv/zeros && chmod 600 /etc/os-release",
        "USER 1001",
        "ENV MODE=derived",
    )
)


def write_deb(folder: Path, name: str, version: str, data: bytes) -> None:
    """Write a Debian package with one file."""
    root = folder / f"{name}-{version}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin" / name).write_bytes(data)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: a tool\n"
    )
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, f"{root}.deb"], check=True, capture_output=True)
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def derived(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Images on our image for the CPU, by their targets in the Dockerfile; the end of the run removes them."""
    folder = tmp_path_factory.mktemp("derived")
    write_deb(folder, "tool", "1.0", b"1" * 100)
    write_deb(folder, "tool", "1.1", b"2" * 150)
    write_wheel(folder, "einops", "0.8", {"einops/__init__.py": b"#" * 700}, tag="py3-none-any")
    (folder / "Dockerfile").write_text(OLDER.format(ref=ref_of(CPU)) + NEWER)
    tags = {target: f"torchbake-test/diff:{target}" for target in ("older", "newer")}
    for target, tag in tags.items():
        command = ["docker", "buildx", "build", "-q", "--target", target, "-t", tag, str(folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
    return tags


def test_real_packages_and_files_on_our_own_image(derived: Mapping[str, str]) -> None:
    value = diff(derived["older"], derived["newer"], "--files")
    packages = {change["name"]: change for change in value["packages"]}
    assert {name: (each["kind"], each["change"]) for name, each in packages.items()} == {
        "base-files": ("debian", "rebuilt"),
        "tool": ("debian", "changed"),
        "einops": ("python", "added"),
    }
    (release,) = packages["base-files"]["files"]
    assert (release["path"], release["differs"], release["bytes"][0]) == (
        "/usr/lib/os-release", ["mode"], release["bytes"][1],
    )  # fmt: skip
    assert (packages["tool"]["first"], packages["tool"]["second"]) == ("1.0", "1.1")
    tool = {each["path"]: each["bytes"] for each in packages["tool"]["files"]}
    assert tool["/usr/bin/tool"] == [100, 150]
    assert [each["path"].rpartition("/")[2] for each in packages["einops"]["files"] if each["bytes"] == [0, 700]] == [
        "__init__.py"
    ]
    files = {change["path"]: change for change in value["files"]}
    assert files["/srv/zeros"]["bytes"] == [0, 4096]
    others = {path for path in files if not path.startswith((f"/{DPKG}/", "/var/log/", "/var/cache/"))}
    assert others == {"/srv/zeros"}
    assert growth(value) > 4096 + 700 + 50
    assert [tuple(each.values()) for each in value["config"]] == [("Env.MODE", None, "derived")]
    assert (value["layers"]["removed"], len(value["layers"]["added"])) == ([], 3)


def test_our_own_image_and_the_image_derived_from_it(derived: Mapping[str, str]) -> None:
    value = diff(CPU, derived["newer"])
    assert {each["name"] for each in value["packages"]} == {"base-files", "tool", "einops"}
    growth(value)
    assert value["bytecode"]["changed_files"] == 0
    assert (value["layers"]["removed"], len(value["layers"]["added"])) == ([], 4)


def test_an_image_is_equal_to_its_copy_in_a_registry(
    derived: Mapping[str, str], engine: docker.DockerClient, tmp_path: Path
) -> None:
    """Both by one digest, and by an archive, which has none before it is read."""
    image = derived["newer"]
    with registry(TOOLS, tmp_path / "registry") as running:
        copy = f"{running.host}/team/pytorch:copy"
        push(engine, image, copy)
        assert run(image, copy, "--exit-code").stdout.startswith(f"{image} and {copy} are one image: sha256:")
        archived = tmp_path / "image.tar"
        subprocess.run(["docker", "save", "-o", archived, image], check=True)
        assert diff(copy, str(archived), "--exit-code")["equal"] is True


def push(engine: docker.DockerClient, image: str, copy: str) -> None:
    """Push an image under another name, which the engine then forgets."""
    engine.api.tag(image, copy)
    try:
        subprocess.run(["docker", "push", "-q", copy], check=True, capture_output=True)
    finally:
        engine.images.remove(copy)
