"""The init image's program against `chown -R`, on a temporary file system."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torchbake.core.paths import TOOLKIT
from torchbake.ui import console

_SOURCE = TOOLKIT / "entrypoints/init/volume-permissions.c"
_LEVELS = 30_000
_INODES = 1_200_000
_HEAD = ("tree", "state", "chown -R", "volume-permissions", "of chown -R")


def volumes(args: argparse.Namespace) -> None:
    """Print medians of rounds with both programs in turn; each changes to a new owner."""
    expected = args.selectors or list(_TREES)
    if unknown := set(expected) - set(_TREES):
        sys.exit(f"{', '.join(sorted(unknown))}: no such tree; there are {', '.join(_TREES)}")
    if os.geteuid() != 0:
        sys.exit("Run it as root: it mounts a file system and gives files away.")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        binary = _compile(Path(folder))
        for name in expected:
            with _file_system(Path(folder)) as volume:
                _TREES[name](volume / "tree", args.files)
                rows += _compare(name, binary, volume, args.rounds)
    console.show_table(_HEAD, rows)


def _compile(folder: Path) -> Path:
    compiler = shutil.which("musl-gcc") or shutil.which("gcc") or sys.exit("no C compiler; install musl-tools")
    binary = folder / "volume-permissions"
    _run(compiler, "-std=c11", "-O2", "-s", "-static", "-o", binary, _SOURCE)
    return binary


@contextmanager
def _file_system(folder: Path) -> Iterator[Path]:
    """Mount ext4 in a file: unmounting it drops its caches, and no others."""
    image, volume = folder / "image", folder / "volume"
    with image.open("wb") as file:
        file.truncate(4 << 30)
    _run("mkfs.ext4", "-q", "-N", str(_INODES), image)
    volume.mkdir(exist_ok=True)
    _run("mount", "-o", "loop", image, volume)
    try:
        (volume / "tree").mkdir()
        yield volume
    finally:
        _run("umount", volume)
        image.unlink()


def _files(directory: Path, count: int) -> None:
    directory.mkdir(exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    for number in range(count):
        os.close(os.open(f"file-{number}.bin", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=handle))
    os.close(handle)


def _many(tree: Path, files: int) -> None:
    for number in range(1000):
        _files(tree / f"folder-{number}", files // 1000)


def _deep(tree: Path, files: int) -> None:
    del files
    here = os.open(tree, os.O_RDONLY)
    for _ in range(_LEVELS):
        os.mkdir("directory", dir_fd=here)
        above, here = here, os.open("directory", os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)


_TREES: dict[str, Callable[[Path, int], None]] = {"many": _many, "flat": _files, "deep": _deep}


def _compare(name: str, binary: Path, volume: Path, rounds: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    owner, tree = 2000, volume / "tree"
    ways: dict[str, tuple[str | Path, ...]] = {"chown": ("chown", "-R"), "ours": (binary, "--quiet", "--owner")}
    for state in ("changed, warm", "changed, cold", "already right, warm", "already right, cold"):
        times: dict[str, list[float]] = {"chown": [], "ours": []}
        for number in range(rounds):
            for way in sorted(ways, reverse=number % 2 == 1):
                owner += state.startswith("changed")
                _prepare(tree, volume, cold=state.endswith("cold"))
                times[way].append(_timed(*ways[way], f"{owner}:{owner}", tree))
        theirs, ours = statistics.median(times["chown"]), statistics.median(times["ours"])
        rows.append((name, state, f"{theirs:.2f} s", f"{ours:.2f} s", f"{ours / theirs:.2f}"))
        console.say(" ".join(rows[-1]))
    return rows


def _prepare(tree: Path, volume: Path, *, cold: bool) -> None:
    """Write all data to the disk, and load all files into the cache, or none."""
    _run("sync", "-f", volume)
    if cold:
        _run("umount", volume)
        _run("mount", "-o", "loop", volume.with_name("image"), volume)
    else:
        _run("find", tree, "-uid", "4294967293")


def _timed(*words: str | Path) -> float:
    start = time.perf_counter()
    _run(*words)
    return time.perf_counter() - start


def _run(*words: str | Path) -> str:
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{words[0]} ended with {process.returncode}: {process.stderr}")
    return process.stdout
