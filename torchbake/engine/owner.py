"""Whose something is: a name for this process, by which another can tell later whether it still lives."""

import os
from pathlib import Path


def owner_label() -> str:
    """This process, for `is_gone`: boot, PID namespace, pid and start time; empty where /proc tells not."""
    try:
        return "/".join((*_here(), str(os.getpid()), _status(os.getpid())[1]))
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
        state, started = _status(int(pid))
        # A killed process that nobody has waited for is still listed; in a container without an init, for good.
        return started == start and state not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, ValueError):
        return True


def _here() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, Path("/proc/self/ns/pid").readlink().name


def _status(pid: int) -> tuple[str, str]:
    """Its state, and its start in clock ticks after the boot: with the pid, that names one process for good."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    words = stat.rpartition(")")[2].split()  # before it stands the program's name, which can be anything
    return words[0], words[19]
