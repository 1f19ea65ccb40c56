"""What an engine started by hand shows of itself, and leaves if it dies: processes, mounts, files."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchbake.setup.paths import EnginePaths

# Kinds of mounts that an engine makes below its data; a disk that a person mounted there is none of them.
_ENGINE_MOUNTS = ("overlay", "tmpfs", "nsfs", "mqueue")


def daemon(paths: EnginePaths) -> int | None:
    """The pid of the running dockerd that setup started.

    A pid file outlives a crash and its number may be another process's by now, so the process itself must
    name our pid file on its command line.
    """
    try:
        pid = int(paths.pidfile.read_text())
    except (OSError, ValueError):
        return None
    return pid if is_our_daemon(pid, paths) else None


def is_our_daemon(pid: int, paths: EnginePaths) -> bool:
    words = _command_line(pid)
    return bool(words) and Path(words[0]).name == "dockerd" and f"--pidfile={paths.pidfile}" in _joined(words)


def _joined(words: list[str]) -> set[str]:
    """`--option value` counts as `--option=value`."""
    return {*words, *(f"{name}={value}" for name, value in itertools.pairwise(words))}


def _command_line(pid: int) -> list[str]:
    """Empty for a process that is gone, or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.split(b"\0")[:-1]]


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        words = _command_line(int(folder.name))
        if words:
            yield int(folder.name), words


def helpers(paths: EnginePaths) -> frozenset[int]:
    """The engine's own containerd, its shims and its runc: they name its exec-root."""
    inside = f"{paths.exec_root}/"
    return frozenset(
        pid
        for pid, words in _processes()
        if Path(words[0]).name.startswith(("containerd", "runc")) and any(word.startswith(inside) for word in words)
    )


def build_steps(paths: EnginePaths) -> frozenset[int]:
    """The processes of `RUN` lines: they outlive an engine that is stopped amid a build.

    BuildKit gives a step's folder and its control group one random name, and leaves that folder.
    """
    folder = paths.data_root / "buildkit" / "executor"
    names = [entry.name for entry in folder.glob("*/") if len(entry.name) > 20]
    return frozenset(pid for pid, _ in _processes() if names and _in_groups(pid, names))


def _in_groups(pid: int, names: list[str]) -> bool:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
    return any(name in groups for name in names)


def users_of(data_root: Path) -> list[int]:
    """Every dockerd that stores in a folder, whoever started it."""
    return [
        pid
        for pid, words in _processes()
        if Path(words[0]).name == "dockerd" and f"--data-root={data_root}" in _joined(words)
    ]


def _end_helpers(paths: EnginePaths) -> None:
    """End what survives its dockerd. Containers first: without their shim they would live on under init."""
    _signal(build_steps(paths), signal.SIGKILL)
    for pid in helpers(paths):
        _signal(_children(pid), signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 5
        _signal(helpers(paths), number)
        while helpers(paths) and time.monotonic() < deadline:
            time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def mounts(paths: EnginePaths) -> list[str]:
    """The engine's mounts that still stand, the innermost first."""
    data, inside_exec = str(paths.data_root.resolve()), f"{paths.exec_root.resolve()}/"
    every = all_mounts()
    itself = {source for point, source, _ in every if point == data and _is_itself(data, source)}
    # A build mounts parts of the data folder elsewhere in it.
    parts = tuple(f"{source}/" for source in itself)
    found = [
        point
        for point, source, kind in every
        if point.startswith(inside_exec)
        or (point.startswith(f"{data}/") and (kind in _ENGINE_MOUNTS or source.startswith(parts)))
        or (point == data and source in itself)
    ]
    return sorted(found, key=len, reverse=True)


def _is_itself(folder: str, source: str) -> bool:
    """dockerd mounts its data folder on itself; a disk mounted there would show its own top, `/`."""
    return source != "/" and (folder.endswith(source) or source.endswith(folder))


def all_mounts() -> list[tuple[str, str, str]]:
    """Every mount point, the folder of its file system that it shows, and the file system's type."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    words = [(line.split(), line.split(" - ", 1)[1].split()) for line in lines]
    return [(_unescaped(mount[4]), _unescaped(mount[3]), system[0]) for mount, system in words]


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


def any_left(paths: EnginePaths) -> bool:
    """Whether setup started an engine here that teardown has not cleared away."""
    return paths.units.exists() or paths.exec_root.exists() or daemon(paths) is not None or bool(helpers(paths))


def clear(paths: EnginePaths) -> None:
    """Remove what a stopped engine left: files after a clean end, processes and mounts after a crash."""
    _end_helpers(paths)
    for point in mounts(paths):
        subprocess.run(["umount", "--lazy", "--", point], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not mounts(paths):
        shutil.rmtree(paths.exec_root, ignore_errors=True)
    for file in (paths.pidfile, paths.config, paths.units):
        file.unlink(missing_ok=True)
