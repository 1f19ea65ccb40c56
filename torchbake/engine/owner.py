"""Labels with the owner of a container: the process that created it, so that another process can check if it runs."""

import os
from pathlib import Path


def owner_label() -> str:
    """Return a label of this process for `has_ended`: boot, PID namespace, pid and start time; empty without /proc."""
    try:
        return "/".join((*_system(), str(os.getpid()), _status(os.getpid())[1]))
    except OSError:
        return ""


def has_ended(owner: str, *, same_machine: bool) -> bool:
    """Return whether the process of an `owner_label` has certainly ended.

    With ``same_machine`` the owner was on this machine, so every owner of another boot has ended.
    """
    try:
        boot, namespace, pid, start = owner.split("/")
        here = _system()
    except (OSError, ValueError):
        return False
    if boot != here[0]:
        return same_machine
    if namespace != here[1]:  # of another container, where the pid is another process
        return False
    try:
        state, started = _status(int(pid))
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, ValueError):
        return False
    return started != start or state in ("Z", "X")  # a zombie has ended; without an init a container keeps it


def _system() -> tuple[str, str]:
    """Return the boot and the PID namespace of this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, Path("/proc/self/ns/pid").readlink().name


def _status(pid: int) -> tuple[str, str]:
    """Return a process's state and its start in clock ticks after the boot. With the pid, the start is unique."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    words = stat.rpartition(")")[2].split()  # after the program's name, which can contain any character
    return words[0], words[19]
