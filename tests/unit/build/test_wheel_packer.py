"""A wheel as a layer, from a folder of wheels: its files, its digests, and what decides them."""

import base64
import compileall
import contextlib
import hashlib
import io
import json
import marshal
import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
import zstandard

from tests.unit.layouts import damage
from tests.wheels import write_wheel
from torchbake.build import wheel_packer, wheel_stream
from torchbake.build.wheel_packer import Compiler, WheelPacker
from torchbake.build.wheel_records import WheelRecords
from torchbake.core.paths import TOOLKIT
from torchbake.core.processes import ProcessResult
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.store.layers import LayerStore, PackedLayer

NAME, VERSION = "nvidia-cublas-cu12", "12.8.4.1"
INFO = "nvidia_cublas_cu12-12.8.4.1.dist-info"
FILES = {
    "nvidia/__init__.py": b"",
    "nvidia/cublas/lib/libcublas.so.12": b"\x7fELF" + bytes(3_000_000),
    "nvidia/cublas/include/cublas.h": b"#define CUBLAS",
    "nvidia/cusolver/lib/libcusolverMg.so.11": b"dropped",
}

# Tests that start the processes of a packer. The others run the same code in this process, without 0.1 s of imports.
IN_PROCESSES = {
    "test_modules_and_programs_get_the_python_of_the_image",
    "test_a_wheel_that_cannot_be_laid_out_is_named_with_its_file",
    "test_a_folder_of_wheels_may_be_named_from_where_one_stands",
    "test_a_packer_that_is_to_stop_packs_nothing",
}

pytestmark = pytest.mark.usefixtures("own_processes")


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.originalname not in IN_PROCESSES:
        monkeypatch.setattr(wheel_packer, "run_to_end", run_here)


def run_here(
    words: Sequence[str], *, env: Mapping[str, str], limit: float, stopping: threading.Event, cwd: Path
) -> ProcessResult:
    """Run the code of a packer's process in its folder, and return its output. An error of the code is raised."""
    _, option, code, *arguments = words
    assert option in ("-m", "-c")
    assert not stopping.is_set()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(io.StringIO()) as output:
        if option == "-c":
            exec(code, {})
        else:
            assert code == wheel_stream.__name__
            wheel_stream.main(wheel_stream.WheelJob(**json.loads(arguments[0])))
    return ProcessResult(code=0, seconds=0.0, at=0.0, stdout=output.getvalue(), stderr="", late=False)


def wheel(folder: Path) -> Pin:
    """A wheel in a folder, and its pin."""
    return Pin(name=NAME, version=VERSION, hashes=(write_wheel(folder, NAME, VERSION, FILES),))


def torch(folder: Path, files: dict[str, bytes]) -> Pin:
    return Pin(name="torch", version="2.10.0", hashes=(write_wheel(folder, "torch", "2.10.0", files),))


def packer(folder: Path, name: str = "layers") -> WheelPacker:
    pip = PipConfig(find_links=(str(folder / "wheels"),), no_index=True)
    return WheelPacker(store=LayerStore(folder=folder / name), pip=pip, python="3.11", root="/nvidia", trim=True)


def members(packer: WheelPacker, digest: str) -> list[tarfile.TarInfo]:
    data = zstandard.ZstdDecompressor().decompressobj().decompress(packer.store.path(digest).read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getmembers()


def members_text(packer: WheelPacker, digest: str) -> dict[str, bytes]:
    """Return the contents of a layer's files, by their names."""
    data = zstandard.ZstdDecompressor().decompressobj().decompress(packer.store.path(digest).read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: file.read() for info in archive if (file := archive.extractfile(info))}


def names(packer: WheelPacker, layer: PackedLayer) -> set[str]:
    return {info.name for info in members(packer, layer.layer.blob.digest) if info.isfile()}


def test_a_layer_has_the_untrimmed_files_below_its_root(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    layer = packs.pack(pin)
    matches = names(packs, layer)
    assert {"nvidia/nvidia/__init__.py", "nvidia/nvidia/cublas/lib/libcublas.so.12"} < matches
    assert not [name for name in matches if "cusolverMg" in name or "include" in name or "uv_cache" in name]
    assert {f"nvidia/{name}" for name in layer.names} == matches


def test_the_record_of_a_wheel_with_nvidia_files_is_unchanged(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    packs.pack(pin)
    kept_items = WheelRecords(folder=packs.store.records).find(pin, "3.11")
    assert kept_items
    assert kept_items["nvidia/cusolver/lib/libcusolverMg.so.11"] == hashlib.sha256(b"dropped").hexdigest()
    other = torch(tmp_path / "wheels", {"torch/__init__.py": b""})
    replace(packs, root="/pytorch").pack(other)
    assert WheelRecords(folder=packs.store.records).find(other, "3.11") is None


def test_headers_are_kept_aside(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    aside = packs.pack(pin).headers
    assert aside
    files = [info.name for info in members(packs, aside.digest) if info.isfile()]
    assert files == ["headers/nvidia/cublas/include/cublas.h"]


def test_untrimmed_it_has_all_files_and_nothing_aside(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), replace(packer(tmp_path), trim=False)
    layer = packs.pack(pin)
    assert {f"nvidia/{name}" for name in FILES} < names(packs, layer)
    assert layer.headers is None


def test_every_member_is_roots_and_of_one_time_and_in_order(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    matches = members(packs, packs.pack(pin).layer.blob.digest)
    assert {(info.uid, info.gid, info.uname, info.gname, info.mtime) for info in matches} == {(0, 0, "", "", 315532800)}
    assert {(info.isdir(), info.mode) for info in matches} == {(True, 0o755), (False, 0o644)}
    assert matches[0].name == "nvidia"
    assert [info.name for info in matches] == sorted((info.name for info in matches), key=lambda name: name.split("/"))


def test_the_digests_are_those_of_the_blob_and_of_its_archive(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    layer = packs.pack(pin).layer
    blob = packs.store.path(layer.blob.digest).read_bytes()
    archive = zstandard.ZstdDecompressor().decompressobj().decompress(blob)
    assert layer.blob.digest == f"sha256:{hashlib.sha256(blob).hexdigest()}"
    assert layer.diff_id == f"sha256:{hashlib.sha256(archive).hexdigest()}"
    assert layer.blob.size == len(blob)


def test_the_same_wheel_is_the_same_layer_wherever_it_is_packed(tmp_path: Path) -> None:
    pin = wheel(tmp_path / "wheels")
    assert packer(tmp_path, "one").pack(pin) == packer(tmp_path, "other").pack(pin)


def compile_(sources: Path, final: str, folder: Path) -> None:
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    unchecked = PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, stripdir=str(folder), prependdir=final, quiet=2, invalidation_mode=unchecked)
    for source in folder.rglob("*.py"):
        source.unlink()


def test_a_folder_of_wheels_may_be_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = wheel(tmp_path / "wheels")
    monkeypatch.chdir(tmp_path)
    packs = replace(packer(tmp_path), pip=PipConfig(find_links=("wheels",), no_index=True))
    assert packs.pack(pin)


def test_each_python_gets_the_wheel_that_fits_it_best(tmp_path: Path) -> None:
    general = wheel(tmp_path / "wheels")
    files = {"nvidia/__init__.py": b"", "nvidia/own.py": b""}
    own = write_wheel(tmp_path / "wheels", NAME, VERSION, files, tag="cp313-cp313-manylinux2014_x86_64")
    pin, packs = replace(general, hashes=(*general.hashes, own)), packer(tmp_path)
    layers = {python: replace(packs, python=python).pack(pin) for python in ("3.11", "3.12", "3.13")}
    assert layers["3.11"] == layers["3.12"]
    assert "nvidia/own.py" in layers["3.13"].names
    assert "nvidia/own.py" not in layers["3.12"].names


def test_a_wheel_that_cannot_be_laid_out_is_named_with_its_file(tmp_path: Path) -> None:
    files, folder = {"nvidia/__init__.py": b"", "nvidia/more.py": b""}, tmp_path / "wheels"
    digest = write_wheel(folder, NAME, VERSION, files, unnamed=["nvidia/more.py"])
    pin, packs = Pin(name=NAME, version=VERSION, hashes=(digest,)), packer(tmp_path)
    (wheel,) = folder.iterdir()
    with pytest.raises(BuildError, match=f"{wheel.name} cannot be packed: nvidia/more.py"):
        packs.pack(pin)
    assert packs.store.find(packs.key(pin)) is None
    assert not list(packs.store.folder.glob(".packing-*"))


def test_what_is_kept_is_not_packed_again(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    layer = packs.pack(pin)
    for path in (tmp_path / "wheels").iterdir():
        path.unlink()
    assert packs.pack(pin) == layer


def test_another_hash_python_root_or_trimming_is_another_layer(tmp_path: Path) -> None:
    pin, packs = wheel(tmp_path / "wheels"), packer(tmp_path)
    others = [replace(packs, python="3.13"), replace(packs, root="/other"), replace(packs, trim=False)]
    keys = {packs.key(pin), packs.key(replace(pin, hashes=("sha256:" + "0" * 64,))), *(one.key(pin) for one in others)}
    assert len(keys) == 5


def test_modules_and_programs_get_the_python_of_the_image(tmp_path: Path) -> None:
    files = {
        "torch/__init__.py": b"x = 1\n",
        "torch/lib/libtorch.so": b"\x7fELF",
        "torch-2.10.0.dist-info/entry_points.txt": b"[console_scripts]\ntorchrun = torch:main\n",
    }
    pin = torch(tmp_path / "wheels", files)
    arguments = list[list[str]]()

    def compile_these(sources: Path, final: str, folder: Path) -> None:
        arguments.append(sorted(path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()))
        compile_(sources, final, folder)

    compiler = compiler_of("this one", compile_these)
    packs = replace(packer(tmp_path), root="/pytorch", modules=True)
    bytecode, blob = packs.compile(pin, compiler), packs.pack(pin).layer.blob.digest
    assert arguments == [["torch/__init__.py"]]
    ((name, data),) = members_text(packs, bytecode.layer.blob.digest).items()
    assert f"pytorch/{bytecode.names[0]}" == name
    assert marshal.loads(data[16:]).co_filename == "/pytorch/torch/__init__.py"
    matches = {info.name: info for info in members(packs, blob)}
    for info in members(packs, bytecode.layer.blob.digest):  # the same folders: either layer may come first
        assert not info.isdir() or info.name.endswith("__pycache__") or same(info, matches[info.name])
    script = members_text(packs, blob)["pytorch/bin/torchrun"]
    assert script.startswith(b"#!/opt/venv/bin/python\n")
    record = members_text(packs, blob)["pytorch/torch-2.10.0.dist-info/RECORD"].decode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(script).digest()).rstrip(b"=").decode()
    assert f"bin/torchrun,sha256={digest},{len(script)}" in record.splitlines()


def compiler_of(base: str, compile_: Callable[[Path, str, Path], None], *, python: str = "") -> Compiler:
    """Return a compiler on a base, with the base's Python unless ``python`` names another."""
    return Compiler(base_id=base, python_id=lambda: python or f"of {base}", compile=compile_)


def same(one: tarfile.TarInfo, other: tarfile.TarInfo) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("mode", "mtime", "uid", "gid", "type"))


def test_another_compiler_makes_another_layer_without_repacking(tmp_path: Path) -> None:
    files = {"torch/__init__.py": b"x = 1\n"}
    pin = torch(tmp_path / "wheels", files)
    packs = replace(packer(tmp_path), root="/pytorch", modules=True)
    packs.compile(pin, compiler_of("this one", compile_))
    shutil.rmtree(tmp_path / "wheels")
    calls = list[str]()

    def compile_otherwise(sources: Path, final: str, folder: Path) -> None:
        calls.append(final)
        compile_(sources, "/other", folder)

    other = compiler_of("another", compile_otherwise)
    assert packs.compile(pin, other) == packs.compile(pin, other)
    assert packs.compile(pin, other) != packs.compile(pin, compiler_of("this one", compile_otherwise))
    assert calls == ["/pytorch"]


def test_the_same_python_in_another_base_compiles_nothing_again(tmp_path: Path) -> None:
    pin = torch(tmp_path / "wheels", {"torch/__init__.py": b"x = 1\n"})
    packs, queries = replace(packer(tmp_path), root="/pytorch", modules=True), list[str]()

    def python() -> str:
        queries.append("cpython-311 3.11.2 (main, Apr 28 2025)")
        return queries[0]

    def fail(sources: Path, final: str, folder: Path) -> None:
        raise BuildError("compiled again")

    first = packs.compile(pin, compiler_of("a base", compile_, python="cpython-311 3.11.2 (main, Apr 28 2025)"))
    updated = Compiler(base_id="its next release", python_id=python, compile=fail)
    assert packs.compile(pin, updated) == packs.compile(pin, updated) == first
    assert len(queries) == 1
    with pytest.raises(BuildError, match="compiled again"):
        packs.compile(pin, compiler_of("another", fail, python="cpython-311 3.11.2 (main, Jun 30 2026)"))


def test_modules_are_hashed_before_they_are_compiled(tmp_path: Path) -> None:
    pin = torch(tmp_path / "wheels", {"torch/__init__.py": b"x = 1\n"})
    packs = replace(packer(tmp_path), root="/pytorch", modules=True)
    modules = packs.pack(pin).modules
    assert modules
    damage(packs.store.path(modules.digest), is_seen=False)
    with pytest.raises(BuildError, match="was removed"):
        packs.compile(pin, compiler_of("this one", compile_))
    assert packs.compile(pin, compiler_of("this one", compile_)), "it is packed again"


def test_a_wheel_without_modules_has_an_empty_bytecode_layer(tmp_path: Path) -> None:
    files = {"torch/lib/libtorch.so": b"\x7fELF"}
    pin = torch(tmp_path / "wheels", files)
    packs = replace(packer(tmp_path), root="/pytorch", modules=True)
    bytecode = packs.compile(pin, compiler_of("this one", compile_))
    assert [info.name for info in members(packs, bytecode.layer.blob.digest)] == ["pytorch"]


def test_a_compiler_that_fails_is_told_and_no_bytecode_is_kept(tmp_path: Path) -> None:
    files = {"torch/__init__.py": b"x = 1\n"}
    pin = torch(tmp_path / "wheels", files)

    def fail(sources: Path, final: str, folder: Path) -> None:
        raise BuildError("no builder")

    packs, compiler = replace(packer(tmp_path), root="/pytorch", modules=True), compiler_of("none", fail)
    with pytest.raises(BuildError, match="no builder"):
        packs.compile(pin, compiler)
    assert packs.store.find(packs.bytecode_key(pin, "none")) is None


@pytest.mark.parametrize("items", [(), ("triton/other.py",), ("torch/__init__.py", "triton/other.py")])
def test_bytecode_of_other_modules_is_refused_and_not_kept(tmp_path: Path, items: tuple[str, ...]) -> None:
    pin = torch(tmp_path / "wheels", {"torch/__init__.py": b"x = 1\n", "torch/a.py": b"syntax error"})

    def compile_others(sources: Path, final: str, folder: Path) -> None:
        for name in items:
            path = folder / cache_from_source(name)
            path.parent.mkdir(parents=True)
            path.write_bytes(b"")

    packs = replace(packer(tmp_path), root="/pytorch", modules=True)
    with pytest.raises(BuildError, match=r"the bytecode of torch is not its own: (there is none|triton/other\.py)"):
        packs.compile(pin, compiler_of("others", compile_others))
    assert packs.store.find(packs.bytecode_key(pin, "others")) is None


def test_a_wheel_of_another_hash_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    packs, pin = packer(tmp_path), Pin(name=NAME, version=VERSION, hashes=("sha256:" + "0" * 64,))
    with pytest.raises(BuildError, match=f"{NAME} {VERSION}: no folder and no index"):
        packs.pack(pin)
    assert packs.store.find(packs.key(pin)) is None
    assert not list(packs.store.folder.glob(".work-*"))


def test_a_packer_that_is_to_stop_packs_nothing(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    packs = replace(packer(tmp_path), stopping=stopping)
    pin = wheel(tmp_path / "wheels")
    with pytest.raises(KeyboardInterrupt):
        packs.pack(pin)
    assert packs.store.find(packs.key(pin)) is None


def test_a_layer_that_can_be_fetched_is_not_packed(tmp_path: Path) -> None:
    pin = wheel(tmp_path / "wheels")
    theirs, ours = packer(tmp_path, "theirs"), packer(tmp_path, "ours")
    expected, queries = theirs.pack(pin), list[str]()

    def fetch(key: str, folder: Path, go_on: Callable[[], object]) -> PackedLayer | None:
        queries.append(key)
        layer = theirs.store.find(key)
        for name, blob in layer.files.items() if layer else ():
            go_on()
            shutil.copy(theirs.store.path(blob.digest), folder / name)
        return layer

    shutil.rmtree(tmp_path / "wheels")  # to pack is not possible any more
    fetching = replace(ours, store=replace(ours.store, fetch=fetch))
    assert fetching.pack(pin) == fetching.pack(pin) == expected
    assert queries == [fetching.key(pin)]
    assert ours.store.find(ours.key(pin)) == expected
    fetching.stopping.set()
    shutil.rmtree(ours.store.folder)
    with pytest.raises(KeyboardInterrupt):
        fetching.pack(pin)


def test_a_layer_that_cannot_be_fetched_is_packed(tmp_path: Path) -> None:
    pin = wheel(tmp_path / "wheels")
    ours, queries = packer(tmp_path), list[str]()
    store = replace(ours.store, fetch=lambda key, folder, go_on: queries.append(key))
    assert replace(ours, store=store).pack(pin) == packer(tmp_path, "other").pack(pin)
    assert queries


def test_a_layer_is_packed_again_when_its_program_changes() -> None:
    """The modules of layers/wheels that the packing process imports, directly or through others."""
    waiting = re.findall(r"^from layers\.wheels\.(\w+)", Path(wheel_stream.__file__).read_text(), flags=re.MULTILINE)
    modules = set[str]()
    while waiting:
        name = waiting.pop()
        if name not in modules:
            modules.add(name)
            text = (TOOLKIT / f"layers/wheels/{name}.py").read_text()
            waiting += re.findall(r"^from \.(\w+) import", text, flags=re.MULTILINE)
    assert modules == set(wheel_packer._MODULES)
