"""Limits of this container: open files, of which node 0 of a large job needs many; and threads."""

import contextlib
import ctypes
import errno
import resource
import threading

from .launch_error import Code, LaunchError

_BEFORE = resource.getrlimit(resource.RLIMIT_NOFILE)
_CLONE3 = 435  # the number of the system call on every architecture on which glibc uses it
_OWN = 64  # open files of `run` itself and of the start of the ranks, at most


def allow_connections(nodes: int, strangers: int) -> None:
    """Raise the soft limit of open files as needed. Raises LaunchError if the hard limit is too low for the nodes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < nodes + _OWN:
        raise LaunchError(
            Code.OPEN_FILES,
            f"node 0 of {nodes} nodes needs {nodes + _OWN} open files, and its limit is {hard}: raise it "
            f"(docker run --ulimit nofile={nodes + _OWN + strangers}).",
        )
    minimum = nodes + strangers + _OWN
    soft_limit = minimum if hard == unlimited else min(minimum, hard)
    if soft != unlimited and soft < soft_limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard))


THREAD_LIMIT = "raise the container's limit of processes (docker run --pids-limit) or of memory"


def check_threads() -> None:
    """Raise LaunchError if no thread can be started: neither `rank.py` nor torch works without one."""
    if why := why_no_thread():
        raise LaunchError(Code.NO_THREAD, why)


def why_no_thread() -> str:
    """Start one thread, and return why that failed and what to do; empty if it has not failed."""
    try:
        thread = threading.Thread(target=int)
        thread.start()
    except RuntimeError:
        if _is_clone3_refused():
            return (
                "no thread can be started, since the seccomp profile of the container engine refuses clone3 (Docker "
                "before 20.10.10): update the engine, or start the container with --security-opt seccomp=unconfined."
            )
        return f"no thread can be started: {THREAD_LIMIT}."
    thread.join()
    return ""


def _is_clone3_refused() -> bool:
    """Call clone3 without arguments. An old seccomp profile answers EPERM, on which glibc (2.34 and newer) gives up.

    A kernel answers EINVAL, or ENOSYS if it has no clone3; then glibc uses clone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(_CLONE3, None, ctypes.c_size_t(0)) == -1 and ctypes.get_errno() == errno.EPERM


def give_back(pid: int) -> None:
    """Reset a process's limit of open files to the container's: programs rely on a low one (select)."""
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _BEFORE)
