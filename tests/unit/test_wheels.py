"""The programs of a build, on small trees: trimming, a folder for each wheel, constant times, CUDA_HOME."""

import base64
import compileall
import csv
import ensurepip
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.wheels import __main__ as wheels
from layers.wheels import install as installs
from layers.wheels.links import cuda_links
from layers.wheels.lock import split_lock
from layers.wheels.records import record_row, records
from layers.wheels.strip import strip
from layers.wheels.tree import EPOCH, normalise
from layers.wheels.trim import UV_CACHE, Drop, glob_pattern, read_trim, trim
from tests.images.checks import catalogue, smoke_checks
from tests.libraries import library
from tests.unit.conftest import cuda_pins, image, lock_for, pin
from tests.wheels import write_wheel
from torchbake.core.paths import TOOLKIT
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.lockfile import LAYERS, assign_layers, format_lock, parse_pins

RULES = tomllib.loads((TOOLKIT / "layers/trim.toml").read_text())["drop"]


def rule(*paths: str, to: str = "") -> Any:
    pattern = re.compile("|".join(glob_pattern(path) for path in paths))
    return Drop(name="a rule", pattern=pattern, to=to)


def installed(root: Path, name: str, *files: str) -> None:
    """A wheel below ``root``, as an installer leaves it: its files, and a RECORD of them."""
    info = f"{name}-1.0.dist-info"
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"content of {file}")
    (root / info).mkdir(parents=True, exist_ok=True)
    with (root / info / "RECORD").open("w", newline="") as record:
        csv.writer(record, lineterminator="\n").writerows(
            [*(record_row(root, file) for file in files), [f"{info}/RECORD", "", ""]]
        )


def tree(root: Path) -> set[str]:
    """The files below ``root``, and the folders with nothing in them."""
    paths = [path for path in root.rglob("*") if path.is_file() or not any(path.iterdir())]
    return {str(path.relative_to(root)) for path in paths if "dist-info" not in str(path)}


def recorded(root: Path) -> dict[str, list[str]]:
    return {row[0]: row[1:] for _, rows in records(root) for row in rows if "dist-info" not in row[0]}


def assert_records_are_true(root: Path) -> None:
    """Every RECORD names the files that are there, and no others, with their hashes and sizes."""
    assert recorded(root).keys() == tree(root)
    for name, (digest, size) in recorded(root).items():
        data = (root / name).read_bytes()
        assert size == str(len(data))
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("glob", "fits", "fits_not"),
    [
        ("torch/lib/*.a", ["torch/lib/x.a"], ["torch/lib/x/y.a", "torch/lib/x.so", "a/torch/lib/x.a"]),
        ("**/*.pyi", ["a.pyi", "x/a.pyi", "x/y/a.pyi"], ["a.py", "a.pyi.txt"]),
        ("nvidia/**/include/**", ["nvidia/include/a", "nvidia/x/include/b/c"], ["nvidia/x/includes/a"]),
        ("numpy/**/tests/**", ["numpy/tests/a", "numpy/core/tests/b/c"], ["numpy/tests", "scipy/tests/a"]),
        ("a?c", ["abc"], ["ac", "a/c", "abbc"]),
        ("lib+(x).so", ["lib+(x).so"], ["libb(x).so", "lib+x.so", "lib+(x)xso"]),
        ("a*", ["a", "ab"], ["a\n/b", "ab/c"]),
    ],
)
def test_what_a_glob_fits(glob: str, fits: list[str], fits_not: list[str]) -> None:
    pattern = re.compile(glob_pattern(glob))
    assert all(pattern.match(name) for name in fits)
    assert not any(pattern.match(name) for name in fits_not)


def reference(parts: Sequence[str], names: Sequence[str]) -> bool:
    """`**` as any number of whole folders, each other part in one folder: the meaning, spelt out."""
    if not parts:
        return not names
    if parts[0] == "**":
        if len(parts) == 1:
            return bool(names)
        return any(reference(parts[1:], names[skip:]) for skip in range(len(names)))
    return bool(names) and one(parts[0], names[0]) and reference(parts[1:], names[1:])


def one(part: str, name: str) -> bool:
    if not part:
        return not name
    if part[0] == "*":
        return any(one(part[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and part[0] in ("?", name[0]) and one(part[1:], name[1:])


folders = st.text("ab.", min_size=1, max_size=3)
globs = st.lists(st.one_of(folders, st.just("**"), st.text("ab*?", min_size=1, max_size=3)), min_size=1, max_size=4)


@given(
    globs.map(lambda parts: [part if "**" not in part else "**" for part in parts]),
    st.lists(folders, min_size=1, max_size=4),
)
def test_globs_mean_what_the_reference_says(parts: list[str], names: list[str]) -> None:
    pattern = re.compile(glob_pattern("/".join(parts)))
    assert bool(pattern.match("/".join(names))) == reference(parts, names)


def test_a_lock_is_split_into_its_layers_without_comments() -> None:
    layers = assign_layers([*cuda_pins(), pin("scipy")], heavy={"scipy"})
    lock = replace(lock_for(image(), cuda_pins()), layers=layers, packages=(".",), build=(pin("hatchling"),))
    parts = split_lock(format_lock(lock))
    assert tuple(parts) == (*LAYERS, "build")
    for name, expected in (*lock.layers.items(), ("build", lock.build)):
        pins = parse_pins(parts[name])
        assert [(pin.name, pin.version, pin.hashes) for pin in pins] == [
            (pin.name, pin.version, pin.hashes) for pin in expected
        ]
    assert "#" not in "".join(parts.values())


def test_what_torch_needs_is_a_part_of_its_own() -> None:
    pins = [*cuda_pins(), pin("numpydoc"), pin("torchvision")]
    text = format_lock(lock_for(image(), pins))
    whole, parts = split_lock(text), split_lock(text, ["numpy"])
    assert [pin.name for pin in parse_pins(parts["needs"])] == ["numpy"]
    assert sorted(parts["needs"].splitlines() + parts["site"].splitlines()) == sorted(whole["site"].splitlines())
    assert {name: parts[name] for name in ("nvidia", "torch", "devel")} == {
        name: whole[name] for name in ("nvidia", "torch", "devel")
    }


def test_a_reworded_comment_changes_no_part() -> None:
    text = format_lock(lock_for(image(), cuda_pins()))
    assert split_lock(text.replace("# via torch", "# via another")) == split_lock(text)


def test_the_split_command_writes_a_list_for_each_layer(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(format_lock(lock_for(image(), cuda_pins())))
    wheels.main(["split", str(tmp_path / "lock"), str(tmp_path / "locks"), "--needs", "filelock", "numpy"])
    assert {path.stem for path in (tmp_path / "locks").iterdir()} == {*LAYERS, "needs"} - {"heavy"}
    assert "torch==2.10.0" in (tmp_path / "locks/torch.lock").read_text()


def test_trimming_drops_files_and_keeps_the_record_true(tmp_path: Path) -> None:
    installed(tmp_path / "root", "thing", "thing/a.py", "thing/a.pyi", "thing/sub/b.pyi", "thing/sub/c.py")
    trim(tmp_path / "root", (rule("**/*.pyi"),), tmp_path / "aside")
    assert tree(tmp_path / "root") == {"thing/a.py", "thing/sub/c.py"}
    assert_records_are_true(tmp_path / "root")
    assert not (tmp_path / "aside").exists()


def test_trimming_leaves_no_empty_folder(tmp_path: Path) -> None:
    installed(tmp_path, "thing", "thing/a.py", "thing/deep/er/b.h", "thing/deep/er/c.h", "other/d.h")
    trim(tmp_path, (rule("**/*.h"),), tmp_path / "aside")
    assert tree(tmp_path) == {"thing/a.py"}
    assert not (tmp_path / "other").exists()


def test_headers_are_kept_aside(tmp_path: Path) -> None:
    installed(tmp_path / "root", "thing", "thing/a.py", "thing/include/sub/b.h")
    trim(tmp_path / "root", (rule("**/include/**", to="headers"),), tmp_path / "aside")
    assert tree(tmp_path / "root") == {"thing/a.py"}
    assert tree(tmp_path / "aside") == {"thing/include/sub/b.h"}
    assert (tmp_path / "aside/thing/include/sub/b.h").read_text() == "content of thing/include/sub/b.h"
    assert_records_are_true(tmp_path / "root")


def test_a_stripped_library_has_its_new_hash_and_size_recorded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    installed(root, "thing", "thing/a.py", "thing/lib.so")
    path = root / "thing/lib.so"
    path.write_bytes(library())
    path.chmod(0o755)
    (tmp_path / "cached").hardlink_to(path)
    trim(root, (rule("**/*.so", to="strip"),), tmp_path / "aside")
    assert path.read_bytes() == strip(library())
    assert path.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "cached").read_bytes() == library()
    assert_records_are_true(root)


def test_the_first_rule_that_fits_decides(tmp_path: Path) -> None:
    installed(tmp_path / "root", "thing", "thing/a.h", "thing/a.py")
    rules = (rule("thing/*.h", to="headers"), rule("**/*.h"))
    trim(tmp_path / "root", rules, tmp_path / "aside")
    assert tree(tmp_path / "aside") == {"thing/a.h"}


def test_a_file_of_two_wheels_is_dropped_once(tmp_path: Path) -> None:
    installed(tmp_path, "one", "shared/a.pyi", "shared/a.py")
    installed(tmp_path, "two", "shared/a.pyi", "shared/b.py")
    trim(tmp_path, (rule("**/*.pyi"),), tmp_path / "aside")
    assert_records_are_true(tmp_path)


@pytest.mark.parametrize("to", ["", "headers"])
def test_a_file_that_a_record_names_twice_is_dropped_once(tmp_path: Path, to: str) -> None:
    installed(tmp_path, "one", "one/a.pyi", "one/a.py")
    record = tmp_path / "one-1.0.dist-info/RECORD"
    record.write_text(record.read_text() + record.read_text().splitlines()[0] + "\n")
    trim(tmp_path, (rule("**/*.pyi", to=to),), tmp_path / "aside")
    assert tree(tmp_path) - {"aside/one/a.pyi"} == {"one/a.py"}


def test_without_rules_nothing_changes(tmp_path: Path) -> None:
    installed(tmp_path, "thing", "thing/a.py", "thing/a.pyi")
    before = (tmp_path / "thing-1.0.dist-info/RECORD").read_bytes()
    trim(tmp_path, read_trim(None), tmp_path / "aside")
    assert tree(tmp_path) == {"thing/a.py", "thing/a.pyi"}
    assert (tmp_path / "thing-1.0.dist-info/RECORD").read_bytes() == before


def test_what_uv_remembers_of_a_wheels_file_is_always_dropped(tmp_path: Path) -> None:
    cache = "thing-1.0.dist-info/uv_cache.json"
    installed(tmp_path, "thing", "thing/a.py", cache)
    trim(tmp_path, read_trim(None), tmp_path / "aside")
    assert not (tmp_path / cache).exists()
    names = {row[0] for _, rows in records(tmp_path) for row in rows}
    assert names == {"thing/a.py", "thing-1.0.dist-info/RECORD"}


def test_times_and_modes_are_constant(tmp_path: Path) -> None:
    (tmp_path / "root/sub").mkdir(parents=True, mode=0o700)
    for name, mode in (("plain", 0o600), ("sub/program", 0o711), ("sub/open", 0o666)):
        (tmp_path / "root" / name).touch()
        (tmp_path / "root" / name).chmod(mode)
    (tmp_path / "root/link").symlink_to("/nowhere")
    normalise(tmp_path / "root")
    paths = [tmp_path / "root", *(tmp_path / "root").rglob("*")]
    assert {os.lstat(path).st_mtime for path in paths} == {EPOCH}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths if not path.is_symlink()}
    assert modes == {"root": 0o755, "sub": 0o755, "plain": 0o644, "program": 0o755, "open": 0o644}


CUDA_12 = ("nvidia/cuda_runtime/include/sub/cuda.h", "nvidia/cuda_nvcc/bin/ptxas", "nvidia/cublas/lib/libcublas.so.12")
CUDA_13 = ("nvidia/cu13/include/sub/cuda.h", "nvidia/cu13/bin/ptxas", "nvidia/cu13/lib/libcublas.so.12")


@pytest.mark.parametrize("files", [CUDA_12, CUDA_13], ids=["cuda12", "cuda13"])
def test_cuda_home_looks_like_an_installed_toolkit(files: tuple[str, ...]) -> None:
    home = "/usr/local/cuda"
    assert cuda_links((*files, "one-1.0.dist-info/RECORD"), "/nvidia", home) == {
        f"{home}/include/sub/cuda.h": f"/nvidia/{files[0]}",
        f"{home}/bin/ptxas": f"/nvidia/{files[1]}",
        f"{home}/lib64/libcublas.so.12": f"/nvidia/{files[2]}",
        f"{home}/lib64/libcublas.so": f"/nvidia/{files[2]}",  # what a linker asks for
    }


def test_a_library_that_has_its_plain_name_keeps_it() -> None:
    links = cuda_links(["nvidia/x/lib/libx.so.1", "nvidia/x/lib/libx.so", "nvidia/x/share/doc"], "/nvidia", "/home")
    assert links["/home/lib64/libx.so"] == "/nvidia/nvidia/x/lib/libx.so"
    assert not [where for where in links if "share" in where]


def test_the_cuda_home_command_makes_links(tmp_path: Path) -> None:
    installed(tmp_path / "one", "one", *CUDA_12)
    installed(tmp_path / "two", "two", "nvidia/cuda_nvcc/nvvm/libdevice/x.bc")
    home = tmp_path / "cuda"
    wheels.main(["cuda-home", str(home), "/nvidia", str(tmp_path / "one"), str(tmp_path / "two")])
    assert (home / "bin/ptxas").readlink() == Path("/nvidia/nvidia/cuda_nvcc/bin/ptxas")
    assert (home / "nvvm/libdevice/x.bc").readlink() == Path("/nvidia/nvidia/cuda_nvcc/nvvm/libdevice/x.bc")


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a build's file system: two wheels that were fetched, and a uv that installs one, each with a stub, a
    module and a header.
    """

    def uv(_: list[str], **__: Any) -> SimpleNamespace:
        installed(site_of(tmp_path), "thing", "thing/__init__.py", "thing/__init__.pyi", "thing/include/a.h")
        (site_of(tmp_path) / "thing/__init__.py").write_text("x = 1\n")
        return SimpleNamespace(returncode=0)

    module, header = b"x = 1\n", b"#pragma once\n"
    nvidia = {"nvidia/__init__.py": module, "nvidia/thing/lib/libthing.so": b"", "nvidia/thing/include/thing.h": header}
    write_wheel(tmp_path / "fetched", "nvidia_Thing", "1.0", nvidia)
    thing = {"thing/__init__.py": module, "thing/__init__.pyi": b"", "thing/include/a.h": header}
    write_wheel(tmp_path / "fetched", "thing", "1.0", thing)
    compile_dir: Any = compileall.compile_dir

    def alone(*folder: Path, **options: Any) -> bool:
        """In this process: several are for a build."""
        return bool(compile_dir(*folder, **{**options, "workers": 1}))

    monkeypatch.setattr(wheels, "download", lambda *_: sorted((tmp_path / "fetched").iterdir()))
    monkeypatch.setattr(wheels, "LAYERS", tmp_path / "layers")
    monkeypatch.setattr(wheels, "HEADERS", tmp_path / "headers")
    monkeypatch.setattr(subprocess, "run", uv)
    monkeypatch.setattr(compileall, "compile_dir", alone)
    (tmp_path / "list.lock").write_text("thing==1.0\n")
    (tmp_path / "trim.toml").write_text(
        '[[drop]]\nname = "stubs"\npaths = ["**/*.pyi"]\n'
        '[[drop]]\nname = "headers"\npaths = ["**/include/**"]\nto = "headers"\n'
    )
    return tmp_path


def site_of(root: Path) -> Path:
    return root / "venv/lib/python3.11/site-packages"


def words_of(builder: Path, *, trim: bool) -> list[str]:
    return ["--trim", str(builder / "trim.toml")] if trim else []


@pytest.mark.parametrize("trim", [True, False])
def test_the_layers_of_a_build_are_trimmed_as_it_is_told(builder: Path, trim: bool) -> None:
    wheels.main(["layers", str(builder / "list.lock"), "/pytorch", *words_of(builder, trim=trim)])
    matches = {path for path in tree(builder / "layers") if "__pycache__" not in path}
    dropped = {"thing/thing/__init__.pyi", "thing/thing/include/a.h", "nvidia-thing/nvidia/thing/include/thing.h"}
    nvidia = {f"nvidia-thing/nvidia/{name}" for name in ("__init__.py", "thing/lib/libthing.so")}
    always = {"thing/thing/__init__.py", *nvidia}
    assert matches == (always if trim else always | dropped)
    assert tree(builder / "headers") == ({"thing/include/a.h", "nvidia/thing/include/thing.h"} if trim else set())


def test_layers_have_pythons_bytecode_and_constant_times(builder: Path) -> None:
    wheels.main(["layers", str(builder / "list.lock"), "/pytorch", *words_of(builder, trim=True)])
    compiled = {path.relative_to(builder / "layers").parts[0]: path for path in (builder / "layers").rglob("*.pyc")}
    assert compiled.keys() == {"thing", "nvidia-thing"}
    assert b"/pytorch/thing/__init__.py" in compiled["thing"].read_bytes()
    paths = [*(builder / "layers").rglob("*"), *(builder / "headers").rglob("*")]
    assert {path.stat().st_mtime for path in paths} == {EPOCH}


def test_layers_of_cudas_libraries_have_no_bytecode(builder: Path) -> None:
    wheels.main(["layers", str(builder / "list.lock"), "/nvidia", *words_of(builder, trim=True)])
    assert not [*(builder / "layers").rglob("*.pyc")]


@pytest.mark.parametrize("trim", [True, False])
def test_a_site_is_trimmed_by_rules_and_finds_the_other_layers(builder: Path, trim: bool) -> None:
    site = site_of(builder)
    site.mkdir(parents=True)
    paths = ["--path", "/pytorch", "--path", "/nvidia"]
    words = ["site", str(builder / "list.lock"), str(builder / "venv"), *paths, "--start", "/opt/start.py"]
    wheels.main([*words, *words_of(builder, trim=trim)])
    assert (site / "thing/__init__.py").exists()
    assert (site / "thing/__init__.pyi").exists() != trim
    assert (site / "thing/include/a.h").exists() != trim
    assert (site / "torchbake.pth").read_text().splitlines() == [
        "import site; site.addsitedir('/pytorch')",
        "import site; site.addsitedir('/nvidia')",
        "import torchbake_start",
        "import os; 'LOGNAME' in os.environ or __import__('runpy').run_path('/opt/start.py')",
        "import torchbake_user_site; torchbake_user_site.enable()",
    ]
    for module in ("torchbake_start", "torchbake_user_site"):
        assert (site / f"{module}.py").exists()
        assert list(site.glob(f"__pycache__/{module}.*.pyc")), "each start of Python imports it"
    assert {path.stat().st_mtime for path in (builder / "venv").rglob("*")} == {EPOCH}
    rows = {row[0] for _, rows in records(site) for row in rows}
    assert ("thing/__init__.pyi" in rows) != trim


def test_a_part_of_a_site_leads_python_nowhere(builder: Path) -> None:
    site = site_of(builder)
    site.mkdir(parents=True)
    wheels.main(["site", str(builder / "list.lock"), str(builder / "venv"), *words_of(builder, trim=True)])
    assert (site / "thing/__init__.py").exists()
    assert not list(site.glob("*.pth"))


def test_beside_links_packages_without_metadata_or_programs(tmp_path: Path) -> None:
    installed(tmp_path / "one", "one", "nvidia/cublas/lib/libcublas.so.12", "bin/tool")
    installed(tmp_path / "two", "two", "nvidia/cudnn/lib/libcudnn.so.9", "cuda/x.py")
    wheels.main(["beside", str(tmp_path / "links"), "/nvidia", str(tmp_path / "one"), str(tmp_path / "two")])
    links = {path.name: str(path.readlink()) for path in (tmp_path / "links").iterdir()}
    assert links == {"cuda": "/nvidia/cuda", "nvidia": "/nvidia/nvidia"}


def test_wheels_outside_of_the_environment_are_listed_in_it(tmp_path: Path) -> None:
    venv, site = tmp_path / "venv", "lib/python3.11/site-packages"
    (venv / site).mkdir(parents=True)
    (tmp_path / "torch.lock").write_text(f"torch==2.13.0+cpu \\\n    --hash=sha256:{'0' * 64}\n")
    (tmp_path / "nvidia.lock").write_text("nvidia-cublas-cu12==12.8.4.1 \\\n")
    lists = (f"/nvidia={tmp_path / 'nvidia.lock'}", f"/pytorch={tmp_path / 'torch.lock'}")
    wheels.main(["entries", str(venv), str(tmp_path / "entries"), *lists])
    info = tmp_path / "entries" / site / "torch-2.13.0+cpu.dist-info"
    assert (info / "METADATA").readlink() == Path("/pytorch/torch-2.13.0+cpu.dist-info/METADATA")
    assert (info / "INSTALLER").read_text() == "torchbake"
    rows = {row[0] for _, rows in records(info.parent) for row in rows}
    files = {str(path.relative_to(info.parent)) for path in info.parent.rglob("*") if not path.is_dir()}
    assert rows == files
    nvidia = info.parent / "nvidia_cublas_cu12-12.8.4.1.dist-info"
    assert {path.name for path in info.iterdir()} - {path.name for path in nvidia.iterdir()} == {"entry_points.txt"}
    assert {path.lstat().st_mtime for path in (tmp_path / "entries").rglob("*")} == {EPOCH}


def test_every_trim_rule_says_what_it_saves_and_why_that_is_safe() -> None:
    for entry in RULES:
        assert entry.keys() <= {"name", "paths", "to", "saves", "why", "checks"}, entry
        assert entry["paths"], entry
        assert entry["name"], entry
        assert re.search(r"\d", entry["saves"]), "saves must be measured"
        assert len(entry["why"]) >= 20, entry
        assert entry.get("to", "headers") in ("headers", "strip"), entry


def test_every_trim_rule_names_checks_of_what_it_could_break() -> None:
    for entry in RULES:
        assert entry["checks"], entry
        assert set(entry["checks"]) <= {one.id for one in (*catalogue(), *smoke_checks())}, entry


def test_the_trim_rules_names_are_unique_and_patterns_compile() -> None:
    always, *rules = read_trim(TOOLKIT / "layers/trim.toml")
    assert always == UV_CACHE
    assert len({rule.name for rule in rules}) == len(RULES)
    assert all(rule.pattern.match("no/such/file.py") is None for rule in rules)


def test_only_tritons_own_libraries_are_altered() -> None:
    """NVIDIA's licenses allow to leave out whole files, and nothing less."""
    altered = [path for entry in RULES if entry.get("to") == "strip" for path in entry["paths"]]
    assert altered == ["triton/_C/libtriton.so", "triton/_C/libproton.so"]


def test_the_page_on_licenses_names_each_rule_for_nvidia_files() -> None:
    table = (TOOLKIT / "docs/how-to/sbom.md").read_text().partition("| rule of `trim.toml` |")[2].partition("\n\n")[0]
    names = re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE)[1:]
    theirs = re.compile(r"(nvidia|cuda|triton/backends/nvidia)/")
    assert sorted(names) == sorted(rule["name"] for rule in RULES if any(map(theirs.match, rule["paths"])))


@pytest.mark.parametrize("name", ["License.txt", "LICENSE", "licenses/License.txt", "licenses/third_party/NOTICE"])
def test_a_license_text_is_never_dropped(name: str) -> None:
    path = f"nvidia_cublas_cu12-12.8.4.1.dist-info/{name}"
    assert [rule.name for rule in read_trim(TOOLKIT / "layers/trim.toml") if rule.pattern.match(path)] == []


def test_what_torch_needs_at_run_time_is_never_dropped() -> None:
    for name in (
        "torch/__init__.py",
        "torch/lib/libtorch_cpu.so",
        "torch/bin/torch_shm_manager",
        # Of the headers that code of torch.compile includes.
        "torch/include/ATen/Context.h",
        "torch/include/ATen/accelerator/Graph.h",
        "torch/include/ATen/cpu/vec/vec.h",
        "torch/include/ATen/detail/CUDAHooksInterface.h",
        "torch/include/ATen/native/CPUBlas.h",
        "torch/include/c10/util/irange.h",
        "torch/include/sleef.h",
        "torch/include/torch/csrc/inductor/cpp_prefix.h",
        "torch/include/torch/csrc/inductor/aoti_torch/c/shim.h",
        "torch/include/torch/headeronly/util/Half.h",
        "triton/backends/nvidia/driver.c",
        "triton/backends/nvidia/include/cuda.h",
        "triton/backends/nvidia/bin/ptxas",
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "nvidia/cusolver/lib/libcusolver.so.11",
        "nvidia/nvshmem/lib/libnvshmem_host.so.3",
        "nvidia/nvshmem/lib/nvshmem_bootstrap_uid.so.3",
        "nvidia/nvshmem/lib/nvshmem_transport_ibgda.so.3",
        "triton/_C/libproton.so",
        "triton/backends/nvidia/lib/cupti/libcupti.so",
        "triton/profiler/__init__.py",
        "numpy/testing/__init__.py",
        "torch/testing/__init__.py",
        "setuptools/__init__.py",
        "torch-2.10.0.dist-info/METADATA",
        "torch-2.10.0.dist-info/licenses/LICENSE",
        "nvidia_cublas_cu12-12.8.4.1.dist-info/RECORD",
    ):
        rules = read_trim(TOOLKIT / "layers/trim.toml")
        assert [rule.name for rule in rules if rule.to != "strip" and rule.pattern.match(name)] == [], name


def test_what_becomes_of_a_file() -> None:
    for name, to in (
        ("torch/test/op_registration_test", ""),
        ("torch/include/ATen/ops/add.h", "headers"),
        ("torch/include/torch/csrc/api/include/torch/all.h", "headers"),
        ("nvidia/nvshmem/lib/libnvshmem_device.bc", "headers"),
        ("nvidia/nvshmem/lib/libnvshmem_device_sm_90.bc", "headers"),
        ("triton/backends/nvidia/bin/nvdisasm", "headers"),
        ("triton/_C/libtriton.so", "strip"),
        ("torch/lib/libtorch_cpu.so", None),
        ("nvidia/nccl/lib/libnccl.so.2", None),
        ("librosa/core/__init__.pyi", None),  # the package lazy-loader reads the modules' names from this file
        ("skimage/filters/__init__.pyi", None),
    ):
        rules = read_trim(TOOLKIT / "layers/trim.toml")
        assert next((rule.to for rule in rules if rule.pattern.match(name)), None) == to, (name, to)


def test_the_hosts_indexes_come_before_the_accelerators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installs, "UV_TOML", tmp_path / "uv.toml")
    assert installs.asked_last(["https://a", "https://b"])["UV_INDEX"] == "https://pypi.org/simple https://a"
    (tmp_path / "uv.toml").write_text(uv_toml(PipConfig(index_url="https://main", extra_index_urls=("https://more",))))
    matches = installs.asked_last(["https://b"])
    assert (matches["UV_INDEX"], matches["UV_DEFAULT_INDEX"]) == ("https://more https://main", "https://b")


class Installer:
    """In place of uv: ends with each of ``codes`` in turn, and remembers what it was asked."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.queries: list[tuple[list[str], dict[str, str]]] = []
        self.lines: list[str] = []

    def __call__(self, command: list[str], *, env: dict[str, str], input: str = "", **_: Any) -> SimpleNamespace:
        self.queries.append((command, env))
        self.lines.append(input)
        return SimpleNamespace(returncode=self.codes.pop(0), stderr="torch was not found")


@pytest.fixture
def installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Installer]:
    """Install a list by an installer that ends as given."""
    lock = tmp_path / "torch.lock"
    lock.write_text("torch==2.13.0+cpu\n")

    def install(*codes: int, index: Sequence[str], secret: str = "") -> Installer:
        installer = Installer(*codes)
        monkeypatch.setattr(subprocess, "run", installer)
        monkeypatch.setattr(installs, "INDEXES_SECRET", tmp_path / "indexes")
        if secret:
            (tmp_path / "indexes").write_text(secret)
        installs.install(lock, index, "--target", "/staging")
        return installer

    return install


RENDERED = ("TORCHBAKE_INDEX_CPU", "https://download.example/cpu")


def test_what_the_host_has_needs_no_other_index(installing: Callable[..., Installer]) -> None:
    (queries,) = installing(0, index=RENDERED).queries
    assert "UV_DEFAULT_INDEX" not in queries[1]


def test_what_the_host_lacks_comes_from_the_accelerators_index(installing: Callable[..., Installer]) -> None:
    first, second = installing(1, 0, index=RENDERED).queries
    assert second[1]["UV_DEFAULT_INDEX"] == RENDERED[1]
    assert second[0] == first[0]
    assert "--require-hashes" in second[0]


def test_the_hosts_index_replaces_the_rendered_one(installing: Callable[..., Installer]) -> None:
    _, second = installing(1, 0, index=RENDERED, secret="https://me:secret@mirror.example/cpu\n").queries
    assert second[1]["UV_DEFAULT_INDEX"] == "https://me:secret@mirror.example/cpu"
    assert RENDERED[1] not in str(second)
    assert "secret" not in str(second[0])


def test_wheels_that_are_nowhere_name_the_index_and_what_to_set(installing: Callable[..., Installer]) -> None:
    with pytest.raises(SystemExit) as end:
        installing(1, 2, index=RENDERED, secret="https://me:se@cret@mirror.example/cpu")
    output = str(end.value)
    assert "https://mirror.example/cpu" in output
    assert "set TORCHBAKE_INDEX_CPU" in output
    assert "torch was not found" in output
    assert "cret" not in output


class Pip:
    """A pip in place of the builder's: it finds wheels in a folder of the host, and asks no index."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "pip.whl").mkdir()
        installed = Path(sysconfig.get_path("purelib"), "pip")
        if installed.is_dir():  # its bytecode is there already
            (folder / "pip.whl/pip").symlink_to(installed)
        else:  # Debian's Python keeps its wheels in another folder.
            path = Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).with_name("_bundled"))
            (wheel,) = path.glob("pip-*.whl")
            shutil.unpack_archive(wheel, folder / "pip.whl", "zip")
        self.lock, self.wheels, self.cache = folder / "torch.lock", folder / "wheels", folder / "cache"
        monkeypatch.setattr(installs, "PIP", folder / "pip.whl")
        monkeypatch.setattr(installs, "WHEELS", self.wheels)
        for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}.items():
            monkeypatch.setenv(name, value)

    def locked(self, *hashes: str) -> "Pip":
        self.lock.write_text("".join(["torch==2.13.0", *(f" --hash={digest}" for digest in hashes), "\n"]))
        return self

    def download(self) -> list[str]:
        return [path.name for path in installs.download(self.lock, (), self.cache)]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_processes: None) -> Pip:
    return Pip(tmp_path, monkeypatch)


def test_a_build_fetches_locked_wheels_alone_and_keeps_them(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = write_wheel(pip.wheels, "torch", "2.13.0", {"torch/__init__.py": b""})
    other = write_wheel(pip.wheels, "torch", "2.13.0", {}, tag="py3-none-manylinux_2_28_aarch64")
    write_wheel(pip.wheels, "torch", "2.13.0+cpu", {"torch/__init__.py": b""})  # sorts above it
    assert pip.locked(digest, other).download() == ["torch-2.13.0-py3-none-manylinux2014_x86_64.whl"]
    (path,) = pip.cache.rglob("*.whl")
    os.utime(path, (EPOCH, EPOCH))
    assert pip.download() == [path.name]
    assert path.stat().st_mtime == EPOCH
    shutil.copy(path, path.with_name("torch-2.13.0-py3-none-any.whl"))  # pip's choice of another day

    def fetch(words: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        folder = Path(words[words.index("--dest") + 1])
        folder.mkdir(exist_ok=True)
        shutil.copy(pip.wheels / path.name, folder)
        return subprocess.CompletedProcess([*words], 0)

    monkeypatch.setattr(subprocess, "run", fetch)
    assert pip.download() == [path.name]


def test_a_build_fetches_wheels_of_another_platform(pip: Pip) -> None:
    digests = [
        write_wheel(pip.wheels, "torch", "2.13.0", {}, tag=f"py3-none-{name}")
        for name in ("manylinux2014_x86_64", "manylinux_2_28_aarch64", "manylinux_2_38_aarch64")
    ]
    (path,) = installs.download(pip.locked(*digests).lock, (), pip.cache, "aarch64-manylinux_2_36")
    assert path.name.endswith("manylinux_2_28_aarch64.whl")


def test_an_index_of_the_host_is_no_argument_of_pip(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    installer, secret = Installer(1, 0), "https://me:secret@mirror.example/cpu"
    monkeypatch.setattr(subprocess, "run", installer)
    monkeypatch.setattr(installs, "INDEXES_SECRET", pip.lock.with_name("indexes"))
    installs.INDEXES_SECRET.write_text(secret)
    text = pip.locked("sha256:" + "0" * 64).lock.read_text().replace("==", "===")
    assert installs.download(pip.lock, RENDERED, pip.cache) == []
    assert installer.lines == [text, f"--extra-index-url {secret}\n{text}"]
    assert "secret" not in str(installer.queries)
    assert {"--require-hashes", "--no-deps"} <= {*installer.queries[0][0]}


def test_a_python_without_pip_is_told_what_to_install(pip: Pip) -> None:
    installs.PIP.rename(installs.PIP.with_name("elsewhere"))
    with pytest.raises(SystemExit) as end:
        pip.locked("sha256:" + "0" * 64).download()
    assert "has no pip" in str(end.value)


@pytest.mark.parametrize("line", ["--index-url http://evil", "x @ https://evil/x.whl", "x==1 --hash=y", "-r y", "x"])
def test_a_build_obeys_no_option_in_a_lock(line: str) -> None:
    text = format_lock(lock_for(image(), cuda_pins())).replace("# --- layer site\n", f"# --- layer site\n{line}\n")
    with pytest.raises(ValueError, match="no such line"):
        split_lock(text)
