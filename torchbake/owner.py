"""Whose something is: a name for this process, by which another can tell later whether it still lives."""

import os
from pathlib import Path


def owner_label() -> str:
    """This process, for `is_gone`: boot, PID namespace, pid and start time; empty where /proc tells not."""
    try:
        return "/".join((*_here(), str(os.getpid()), _start_time(os.getpid())))
    except OSError:
        return ""


def is_gone(owner: str, *, same_machine: bool) -> bool:
    """Whether the process of an `owner_label` surely is no more; False wherever that cannot be known from here.

    ``same_machine``: the owner can only have been on this machine, so a boot that is not the present one is past.
    """
    try:
        here, words = _here(), owner.split("/")
    except OSError:
        return False
    if len(words) != 4:
        return False
    if words[0] != here[0]:
        return same_machine
    # Another PID namespace is another container, in which the same pid means another process.
    return words[1] == here[1] and not _lives(words[2], words[3])


def _lives(pid: str, start: str) -> bool:
    try:
        return _start_time(int(pid)) == start
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, ValueError):
        return True


def _here() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, Path("/proc/self/ns/pid").readlink().name


def _start_time(pid: int) -> str:
    """In clock ticks after the boot: with the pid it names one process for good."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
