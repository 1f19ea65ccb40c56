"""Processes, mounts and files of an engine that was started by hand, also after its death."""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchbake.setup.paths import EnginePaths

# File systems that an engine mounts below its data, in contrast to a person's disk.
_ENGINE_MOUNTS = ("overlay", "tmpfs", "nsfs", "mqueue")


def daemon(paths: EnginePaths) -> int | None:
    """Return the pid of the running dockerd that setup started; None if there is none.

    A pid file outlives a crash, and another process may get its number. So the process must have our pid file on its
    command line.
    """
    try:
        pid = int(paths.pidfile.read_text())
    except (OSError, ValueError):
        return None
    return pid if is_our_daemon(pid, paths) else None


def is_our_daemon(pid: int, paths: EnginePaths) -> bool:
    words = _command_line(pid)
    return bool(words) and Path(words[0]).name == "dockerd" and f"--pidfile={paths.pidfile}" in _join(words)


def _join(words: list[str]) -> set[str]:
    """Return words with `--option value` also as `--option=value`."""
    return {*words, *(f"{name}={value}" for name, value in itertools.pairwise(words))}


def _command_line(pid: int) -> list[str]:
    """Return the words of a process; none for a zombie or a process that is gone."""
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
    """Return the pids of the engine's containerd, shims and runc: their words name its exec-root."""
    inside = f"{paths.exec_root}/"
    return frozenset(
        pid
        for pid, words in _processes()
        if Path(words[0]).name.startswith(("containerd", "runc")) and any(word.startswith(inside) for word in words)
    )


def build_steps(paths: EnginePaths) -> frozenset[int]:
    """Return the pids of `RUN` lines: they outlive an engine that is stopped during a build.

    BuildKit gives a step's folder and its control group one random name, and leaves that folder.
    """
    folder = paths.data_root / "buildkit" / "executor"
    names = [entry.name for entry in folder.glob("*/") if len(entry.name) > 20]
    matches = set()
    for pid, _ in _processes() if names else ():
        with contextlib.suppress(OSError):
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            if any(name in groups for name in names):
                matches.add(pid)
    return frozenset(matches)


def users_of(data_root: Path) -> list[int]:
    """Return the pids of all dockerd processes that store in a folder."""
    option = f"--data-root={data_root}"
    return [pid for pid, words in _processes() if Path(words[0]).name == "dockerd" and option in _join(words)]


def _end_helpers(paths: EnginePaths) -> None:
    """End the processes that survive dockerd; containers first, as without their shims they would run on under init."""
    _signal(build_steps(paths), signal.SIGKILL)
    for pid in helpers(paths):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                _signal(map(int, file.read_text().split()), signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 5
        _signal(helpers(paths), number)
        while helpers(paths) and time.monotonic() < deadline:
            time.sleep(0.05)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def mounts(paths: EnginePaths) -> list[str]:
    """Return the engine's mount points that are still mounted, the innermost first."""
    data, inside_exec = str(paths.data_root.resolve()), f"{paths.exec_root.resolve()}/"
    every = all_mounts()
    # dockerd mounts its data folder on itself; a person's disk there would have its own top, `/`, as source.
    itself = {
        source
        for point, source, _ in every
        if point == data and source != "/" and (data.endswith(source) or source.endswith(data))
    }
    # A build mounts parts of the data folder at other places in it.
    parts = tuple(f"{source}/" for source in itself)
    matches = [
        point
        for point, source, kind in every
        if point.startswith(inside_exec)
        or (point.startswith(f"{data}/") and (kind in _ENGINE_MOUNTS or source.startswith(parts)))
        or (point == data and source in itself)
    ]
    return sorted(matches, key=len, reverse=True)


def all_mounts() -> list[tuple[str, str, str]]:
    """Return each mount point, its source folder in the mounted file system, and the file system's type."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    words = [(line.split(), line.split(" - ", 1)[1].split()) for line in lines]
    return [(_unescape(mount[4]), _unescape(mount[3]), system[0]) for mount, system in words]


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def any_left(paths: EnginePaths) -> bool:
    """Check if setup started an engine here that teardown has not removed."""
    return paths.units.exists() or paths.exec_root.exists() or daemon(paths) is not None or bool(helpers(paths))


def clear(paths: EnginePaths) -> None:
    """Remove the leftovers of a stopped engine: files after a clean end, processes and mounts after a crash."""
    _end_helpers(paths)
    for point in mounts(paths):
        subprocess.run(["umount", "--lazy", "--", point], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not mounts(paths):
        shutil.rmtree(paths.exec_root, ignore_errors=True)
    for file in (paths.pidfile, paths.config, paths.units):
        file.unlink(missing_ok=True)
