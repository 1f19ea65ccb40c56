"""Broken projects: an edit of the small project or of its row, and the place that the error names."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.wheels import write_wheel

Edit = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A broken project. ``place`` is in the message, ``spec`` are arguments of `trainer_image`."""

    name: str
    place: str
    edit: Edit = lambda root: None
    lock: str = "uv.lock"
    spec: dict[str, Any] = field(default_factory=dict)


def replaced(path: str, old: str, new: str) -> Edit:
    """Return an edit that replaces a passage, which must be in the file."""

    def edit(root: Path) -> None:
        text = (root / path).read_text()
        assert re.search(old, text), f"{old} is not in {path}"
        (root / path).write_text(re.sub(old, new, text))

    return edit


def content(path: str, text: str | bytes) -> Edit:
    data = text.encode() if isinstance(text, str) else text
    return lambda root: (root / path).write_bytes(data)


def added(path: str, line: str) -> Edit:
    return lambda root: (root / path).write_text((root / path).read_text() + line + "\n")


def _switch(*extras: str) -> dict[str, Any]:
    return {"folder": "switch", "extras": extras}


def _folder(root: Path) -> None:
    (root / UV).unlink()
    (root / UV).mkdir()


def _pipe(root: Path) -> None:
    (root / UV).unlink()
    os.mkfifo(root / UV)


def _link(root: Path) -> None:
    (root / UV).unlink()
    (root / UV).symlink_to("/etc/hostname")


def _moved(folder: str) -> Edit:
    """Return an edit that moves the workspace's member."""

    def edit(root: Path) -> None:
        (root / CORE).rename(root / "trainer" / folder)
        (root / UV).write_text((root / UV).read_text().replace("packages/core", folder))

    return edit


def _circle(root: Path) -> None:
    (root / UV).unlink()
    (root / UV).symlink_to("uv.lock")


def _conflict(path: str) -> Edit:
    return lambda root: (root / path).write_text("<<<<<<< HEAD\n" + (root / path).read_text())


def _builds_in_a_circle(root: Path) -> None:
    """The project is built with its member, and the member with the project."""
    replaced(PYPROJECT, r'\["hatchling"\]', '["hatchling", "core"]')(root)
    replaced(f"{CORE}/pyproject.toml", r'\["uv_build"\]', '["uv_build", "trainer"]')(root)


UV, PYLOCK, REQS = "trainer/uv.lock", "trainer/pylock.toml", "trainer/requirements.txt"
PYPROJECT, CORE = "trainer/pyproject.toml", "trainer/packages/core"
_NO_GROUPS = r"(?s)\A(.*)\[dependency-groups\].*?\n\n", r'dependency-groups = "a"\n\1'
_SHA = r"sha256:[0-9a-f]{64}"
_TORCH_FILES = r'(name = "torch"\nversion = "2.10.0"\n(?:.*\n)*?wheels = \[\n)((?:    .*\n)*)\]'

FILES = [
    Broken(name="a uv.lock below the folder", place=UV, lock="trainer/uv.lock", spec={"folder": "."}),
    Broken(
        name="a pyproject.toml below the folder", place=PYPROJECT, lock="trainer/pyproject.toml", spec={"folder": "."}
    ),
    Broken(name="no lock", place=UV, edit=lambda root: (root / UV).unlink()),
    Broken(name="no project", place=UV, edit=lambda root: shutil.rmtree(root / "trainer")),
    Broken(name="an empty lock", place=f"{UV}:1", edit=content(UV, "")),
    Broken(name="not UTF-8", place=UV, edit=content(UV, b"version = 1\n\xff\xfe\n")),
    Broken(name="a folder", place=UV, edit=_folder),
    Broken(name="a pipe", place=UV, edit=_pipe),
    Broken(name="a link out of the matrix's folder", place=UV, edit=_link),
    Broken(name="a link to itself", place=UV, edit=_circle),
    Broken(name="damaged TOML", place=f"{UV}:5", edit=replaced(UV, r"\[manifest\]", "manifest]")),
    Broken(name="the lock of another tool", place=f"{UV}:1", edit=content(UV, '[[package]]\nname = "torch"\n')),
    Broken(name="a later version", place=f"{UV}:1", edit=replaced(UV, "^version = 1", "version = 99")),
    Broken(name="an earlier version", place=f"{UV}:1", edit=replaced(UV, "^version = 1", "version = 0")),
    Broken(name="a version that is a text", place=f"{UV}:1", edit=replaced(UV, "^version = 1", 'version = "1"')),
    Broken(name="a conflict of git", place=f"{UV}:1", edit=_conflict(UV)),
    Broken(name="half a lock", place=UV, edit=lambda root: (root / UV).write_bytes((root / UV).read_bytes()[:3000])),
]
ROWS = [
    Broken(name="another torch", place="trainer/uv.lock:109", spec={"spec_torch": "2.9.1"}),
    Broken(name="another accelerator", place="matrix.yaml:1", spec={"accelerator": "cuda12.6"}),
    Broken(name="a CPU row", place="trainer/uv.lock:109", spec={"accelerator": "cpu", "spec_cudnn": None}),
    Broken(name="another cuDNN", place="trainer/uv.lock:80", spec={"spec_cudnn": "8"}),
    Broken(
        name="a torch of another accelerator",
        place="trainer/uv.lock:109",
        edit=replaced(UV, r'(name = "torch"\nversion = "|torch-)2.10.0', r"\g<1>2.10.0+cu126"),
    ),
    Broken(name="another CUDA", place="uv.lock:72", edit=replaced(UV, r"12\.8\.90", "12.6.77")),
    Broken(name="a package that is not locked", place="trainer/uv.lock", spec={"pip": ("einops",)}),
    Broken(name="a package in another version", place="trainer/uv.lock:61", spec={"pip": ("numpy>=2.3",)}),
    Broken(name="an unknown group", place=UV, spec={"groups": ("training",)}),
    Broken(name="an unknown package", place=UV, spec={"package": "cora"}),
    Broken(name="a package without torch", place=UV, spec={"package": "core"}),
    Broken(name="a package of a pylock", place=PYLOCK, lock="pylock.toml", spec={"package": "core"}),
    Broken(name="an unknown extra", place=UV, spec={"extras": ("cu999",)}),
    Broken(name="another Python", place="uv.lock:3", edit=replaced(UV, 'python = ">=3.11"', 'python = ">=3.12"')),
]
PACKAGES = [
    Broken(name="extras that exclude each other", place="switch/uv.lock", spec=_switch("cpu", "cu128")),
    Broken(name="no torch without an extra", place="switch/uv.lock", spec=_switch()),
    Broken(name="the extra of another accelerator", place="switch/uv.lock:66", spec=_switch("cpu")),
    Broken(
        name="wheels of another Python",
        place="uv.lock:109",
        edit=replaced(UV, r"(torch-2.10.0-)cp311-cp311", r"\1cp39-cp39"),
    ),
    Broken(
        name="wheels of macOS alone",
        place="uv.lock:61",
        edit=replaced(UV, r"(numpy-2.2.0-cp31\d-cp31\d-)manylinux_2_28_x86_64", r"\1macosx_11_0_arm64"),
    ),
    Broken(
        name="a newer C library than the base's",
        place="uv.lock:190",
        edit=replaced(UV, "(vision_kernels.*)manylinux_2_28", r"\1manylinux_2_39"),
    ),
    Broken(
        name="wheels of a Python without the GIL",
        place="uv.lock:109",
        edit=replaced(UV, "(torch-2.10.0-cp311-)cp311", r"\1cp311t"),
    ),
    Broken(name="half a hash", place="uv.lock:16", edit=replaced(UV, _SHA, "sha256:0123")),
    Broken(name="a wheel without a name", place="uv.lock:15", edit=replaced(UV, r"certifi-2026.*?\.whl", "certifi")),
    Broken(name="a version that is none", place="uv.lock:48", edit=replaced(UV, '"0.28.1"', '"zero"')),
    Broken(name="an unknown requirement", place=UV, edit=replaced(UV, '{ name = "certifi" }', '{ name = "certify" }')),
    Broken(
        name="an older Python", place="uv.lock:3", edit=replaced(UV, 'python = ">=3.11"', 'python = ">=3.9, <3.11"')
    ),
    Broken(
        name="a member with the project's name",
        place="uv.lock:29",
        edit=replaced(f"{CORE}/pyproject.toml", 'name = "core"', 'name = "trainer"'),
    ),
    Broken(name="builds in a circle", place=f"{CORE}/pyproject.toml", edit=_builds_in_a_circle),
    Broken(name="no torch", place=UV, edit=replaced(UV, r'name = "torch"', 'name = "torcs"')),
    Broken(name="files without a hash", place="trainer/uv.lock:", edit=replaced(UV, rf', hash = "{_SHA}"', "")),
    Broken(name="MD5 alone", place=UV, edit=replaced(UV, _SHA, "md5:0123456789abcdef0123456789abcdef")),
    Broken(name="no file of a package", place=UV, edit=replaced(UV, _TORCH_FILES, "")),
    Broken(name="a missing member", place="core", edit=lambda root: shutil.rmtree(root / CORE)),
    Broken(
        name="a member that is no package", place="core", edit=lambda root: (root / CORE / "pyproject.toml").unlink()
    ),
    Broken(name="a folder with a space", place="not a path", edit=_moved("packages/my core")),
    Broken(name="a command as a folder", place="not a path", edit=_moved("packages/$(reboot)")),
    Broken(name="a new requirement", place="einops", edit=replaced(PYPROJECT, '"numpy<3"', '"numpy<3", "einops"')),
    Broken(name="a changed requirement", place="numpy", edit=replaced(PYPROJECT, '"numpy<3"', '"numpy<2"')),
    Broken(
        name="a changed requirement of a member",
        place="uv.lock:29",
        edit=replaced(f"{CORE}/pyproject.toml", '"six"', '"tqdm"'),
    ),
    Broken(name="a lock with other tables", place=UV, edit=replaced(UV, r'{ editable = "\." }', "1")),
    Broken(name="a name that is no text", place=UV, edit=replaced(UV, 'name = "trainer"', "name = [1]")),
    Broken(name="packages that are no tables", place=UV, edit=replaced(UV, r"(?s)\[\[package\]\].*", "package = [1]")),
    Broken(
        name="requirements that are no list",
        place=PYPROJECT,
        edit=replaced(PYPROJECT, r"\ndependencies = \[.*\]", "\ndependencies = 1"),
    ),
    Broken(
        name="dynamic is no list", place=PYPROJECT, edit=replaced(PYPROJECT, r"\[project\]\n", r"\g<0>dynamic = 3\n")
    ),
    Broken(name="groups in no table", place=PYPROJECT, edit=replaced(PYPROJECT, *_NO_GROUPS)),
    Broken(name="a removed requirement", place="numpy", edit=replaced(PYPROJECT, '"numpy<3", ', "")),
    Broken(name="a changed group", place="requirement tqdm in group", edit=replaced(PYPROJECT, '"tqdm"', '"tqdm>=5"')),
    Broken(name="a changed extra", place="extra serve", edit=replaced(PYPROJECT, r"serve = \[.*\]", "serve = []")),
    Broken(name="another project", place=UV, edit=replaced(PYPROJECT, 'name = "trainer"', 'name = "other"')),
    Broken(name="no requirement", place=PYPROJECT, edit=replaced(PYPROJECT, '"numpy<3"', '"numpy<<3"')),
    Broken(name="a cycle of groups", place=PYPROJECT, edit=replaced(PYPROJECT, '"tqdm"', '{ include-group = "all" }')),
    Broken(name="a damaged pyproject.toml", place=PYPROJECT, edit=added(PYPROJECT, "[[[")),
    Broken(
        name="indexes that are no list",
        place=PYPROJECT,
        edit=added(PYPROJECT, "[tool.uv]\nindex = 3"),
        lock="pyproject.toml",
    ),
    Broken(
        name="a date that excludes all wheels",
        place=PYPROJECT,
        edit=added(PYPROJECT, "[tool.uv]\nexclude-newer = 2001-01-01"),
        lock="pyproject.toml",
    ),
    Broken(name="no pyproject.toml", place=PYPROJECT, edit=lambda root: (root / PYPROJECT).unlink()),
]


def _line(name: str, line: str, **changes: Any) -> Broken:
    """Return a requirements file with one more line, its last."""
    return Broken(name=name, place=f"{REQS}:{_COUNT + 1}", edit=added(REQS, line), lock="requirements.txt", **changes)


def _wheel(line: str) -> Edit:
    """Return an edit to pins with comments, and one more line, the sixth; with a wheel in the folder libs."""

    def edit(root: Path) -> None:
        write_wheel(root / "trainer/libs", "einops", "0.8", {"einops.py": b""}, tag="py3-none-any")
        pins = ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cudnn-cu12==9.10.2.21", "torch==2.10.0", "triton==3.6.0")
        lines = (f"{pin}  # via {'torch' if pin[:5] != 'torch' else '-r in.txt'}" for pin in pins)
        (root / REQS).write_text("\n".join((*lines, "", line, "")))

    return edit


_COUNT = len((Path(__file__).parent / "trainer/requirements.txt").read_text().splitlines())
REQUIREMENTS = [
    _line("an unpinned line", "einops>=0.8"),
    _line("a name alone", "einops"),
    _line("a pin of a series", "einops==0.8.*"),
    _line("another file", "-r base.txt"),
    _line("constraints", "-c constraints.txt"),
    _line("an option that changes wheels", "--no-binary :all:"),
    _line("no requirement", "einops = 0.8"),
    _line("an open quote", "einops=='0.8"),
    _line("a branch of git", "einops @ git+https://example.com/einops@main"),
    _line("git without a revision", "einops @ git+https://example.com/einops"),
    _line("Mercurial", "einops @ hg+https://example.com/einops@0123"),
    _line("an address without a name", "https://example.com/einops/archive/main.zip"),
    _line("an address without a version", "https://example.com/einops-py3-none-any.whl"),
    _line("a wheel of another package", "einops @ https://example.com/einopts-0.8-py3-none-any.whl"),
    _line("an index with a variable that is not set", "--index-url https://${NOT_SET_1}@example.com/simple"),
    _line("an address with a variable that is not set", "einops @ https://${NOT_SET_1}@example.com/einops-0.8.zip"),
    _line("MD5 alone", "einops==0.8 --hash=md5:0123456789abcdef0123456789abcdef"),
    _line("a damaged hash", "einops==0.8 --hash=sha256:0123"),
    _line("two versions", "numpy==2.1.0"),
    _line("a path out of the project", "-e ../other"),
    _line("no such folder", "-e ./packages/nothing"),
    _line("a damaged marker", "-e ./packages/core ; python_version <"),
    _line("another torch", "torch==2.9.1"),
    Broken(name="a conflict of git", place=f"{REQS}:1", edit=_conflict(REQS), lock="requirements.txt"),
    Broken(name="no package", place=REQS, edit=content(REQS, "# nothing\n"), lock="requirements.txt"),
    Broken(name="extras of a requirements file", place=REQS, lock="requirements.txt", spec={"extras": ("serve",)}),
    Broken(name="hashes of no file of the index", place=f"{REQS}:4", lock="requirements.txt"),
    Broken(
        name="a wheel by its path without a hash",
        place=f"{REQS}:6",
        edit=_wheel("./libs/einops-0.8-py3-none-any.whl"),
        lock="requirements.txt",
    ),
    Broken(
        name="a wheel by its path with another hash",
        place=f"{REQS}:6",
        edit=_wheel(f"./libs/einops-0.8-py3-none-any.whl --hash=sha256:{'0' * 64}"),
        lock="requirements.txt",
    ),
    Broken(
        name="no wheel at a path",
        place=f"{REQS}:6",
        edit=_wheel(f"file:libs/other-1-py3-none-any.whl --hash=sha256:{'0' * 64}"),
        lock="requirements.txt",
    ),
    Broken(
        name="a torch for Windows by its address",
        place=f"{REQS}:6",
        edit=_wheel(f"https://x.example/einops-0.8-py3-none-win_amd64.whl --hash=sha256:{'0' * 64}"),
        lock="requirements.txt",
    ),
    Broken(
        name="a version that no index has",
        place="filelock",
        edit=content(REQS, "torch==2.10.0\nfilelock==99\n"),
        lock="requirements.txt",
    ),
    Broken(
        name="a lock of macOS",
        place="nvidia-cuda-runtime-cu12",
        edit=content(REQS, "torch==2.10.0\nfilelock==3.20.0\n"),
        lock="requirements.txt",
    ),
]
PYLOCKS = [
    Broken(name="a later version", place=PYLOCK, edit=replaced(PYLOCK, '"1.0"', '"2.0"'), lock="pylock.toml"),
    Broken(name="an empty lock", place=PYLOCK, edit=content(PYLOCK, ""), lock="pylock.toml"),
    Broken(
        name="damaged TOML",
        place=f"{PYLOCK}:2",
        edit=replaced(PYLOCK, "created-by = ", "created-by "),
        lock="pylock.toml",
    ),
    Broken(
        name="a package without a name",
        place=f"{PYLOCK}:5",
        edit=replaced(PYLOCK, 'name = "filelock"\n', ""),
        lock="pylock.toml",
    ),
    Broken(
        name="no hashes",
        place=f"{PYLOCK}:5",
        edit=replaced(PYLOCK, "hashes = {[^}]*}", "hashes = {}"),
        lock="pylock.toml",
    ),
    Broken(name="MD5 alone", place=f"{PYLOCK}:6", edit=replaced(PYLOCK, "sha256 =", "md5 ="), lock="pylock.toml"),
    Broken(
        name="two torches",
        place=PYLOCK,
        edit=added(
            PYLOCK,
            '[[packages]]\nname = "torch"\nversion = "2.9.1"\n'
            'sdist = { url = "https://files.example/torch-2.9.1.tar.gz", hashes = { sha256 = "a" } }',
        ),
        lock="pylock.toml",
    ),
    Broken(name="a conflict of git", place=f"{PYLOCK}:1", edit=_conflict(PYLOCK), lock="pylock.toml"),
    Broken(
        name="wheels of another Python",
        place=f"{PYLOCK}:45",
        edit=replaced(PYLOCK, "cp311-cp311", "cp39-cp39"),
        lock="pylock.toml",
    ),
    Broken(name="no file", place=f"{PYLOCK}:23", edit=replaced(PYLOCK, "wheels = ", "wheals = "), lock="pylock.toml"),
    Broken(
        name="a damaged marker",
        place=f"{PYLOCK}:5",
        edit=replaced(PYLOCK, 'name = "filelock"\n', 'name = "filelock"\nmarker = "python_version <"\n'),
        lock="pylock.toml",
    ),
    Broken(name="an undeclared extra", place=PYLOCK, lock="pylock.toml", spec={"extras": ("serve",)}),
    Broken(name="an undeclared group", place=PYLOCK, lock="pylock.toml", spec={"groups": ("track",)}),
    Broken(
        name="wheels of macOS alone",
        place=PYLOCK,
        edit=replaced(PYLOCK, "manylinux_2_28_x86_64", "macosx_11_0_arm64"),
        lock="pylock.toml",
    ),
    Broken(name="another Python", place=f"{PYLOCK}:3", edit=replaced(PYLOCK, ">=3.11", ">=3.14"), lock="pylock.toml"),
]
UNLOCKED = [
    Broken(name="no project", place=PYPROJECT, edit=content(PYPROJECT, "[tool]\n"), lock="pyproject.toml"),
    Broken(
        name="versions that exclude each other",
        place="numpy",
        edit=replaced(PYPROJECT, "numpy<3", "numpy<2"),
        lock="pyproject.toml",
    ),
    Broken(name="an unknown group", place="training", lock="pyproject.toml", spec={"groups": ("training",)}),
]
ALL = [*FILES, *ROWS, *PACKAGES, *REQUIREMENTS, *PYLOCKS, *UNLOCKED]
