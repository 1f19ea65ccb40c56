"""How many files this process may have open: node 0 of a large job needs more than what a shell gives by default."""

import contextlib
import resource

from .launch_error import Code, LaunchError

_BEFORE = resource.getrlimit(resource.RLIMIT_NOFILE)
_OWN = 64  # what `run` itself, and the start of the ranks, need at most


def allow_connections(nodes: int, strangers: int) -> None:
    """Raise the soft limit as far as it takes. Raises LaunchError when the hard limit is too low for the nodes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < nodes + _OWN:
        raise LaunchError(
            Code.OPEN_FILES,
            f"node 0 of {nodes} nodes needs {nodes + _OWN} open files, and its limit is {hard}: raise it "
            f"(docker run --ulimit nofile={nodes + _OWN + strangers}).",
        )
    needed = nodes + strangers + _OWN
    wanted = needed if hard == unlimited else min(needed, hard)
    if soft != unlimited and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def give_back(pid: int) -> None:
    """Let a process start with the limits that the container was given: programs rely on low ones (select)."""
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _BEFORE)
