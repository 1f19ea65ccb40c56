"""`health`: answers a container platform's probes, without loading torch unless it is asked to.

It imports as little as it can: a probe runs every few seconds, on a node that has better things to do.
"""

import json
import os
import stat
import sys

PREFIX = "torchbake-run-"  # of each `run`'s folder in the temporary folder
_LARGEST = 65536  # bytes of a state
WAITING, RUNNING, ENDING = "waiting", "running", "ending"

USAGE = """\
usage: health [--live | --deep]

Exit code 0: healthy; 1: not, with the reason on stdout; 64: wrong option.

  (nothing)    ready: the command runs and, when distributed, all nodes have come together
  --live       alive: `run` lives; waiting for other nodes is no reason to be started again
  --deep       torch imports and adds two numbers, on the GPU where the container has one (seconds: for start-up)

examples (Kubernetes):
  livenessProbe:  {exec: {command: [health, --live]}}
  readinessProbe: {exec: {command: [health]}}
  startupProbe:   {exec: {command: [health, --deep]}, timeoutSeconds: 60}
"""

_DEEP = """
import sys
try:
    import torch
    device = "cuda" if torch.version.cuda and torch.cuda.is_available() else "cpu"
    assert int((torch.ones(2, device=device) + 1).sum()) == 4, f"wrong sum on {device}"
except Exception as error:
    sys.exit(f"not healthy: {type(error).__name__}: {error}")
print(f"healthy: torch {torch.__version__} computes on {device}")
"""


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments == ["--deep"]:
        from .limits import why_no_thread  # noqa: PLC0415 - the other probes do without

        if why := why_no_thread():
            print(f"not healthy: {why}")
            return 1
        os.dup2(1, 2)
        os.execv(sys.executable, [sys.executable, "-c", _DEEP])
    if arguments not in ([], ["--live"]):
        print(f"health: unknown option {' '.join(arguments)}; see `health --help`.", file=sys.stderr)
        return 64
    said = states(os.environ.get("TMPDIR") or "/tmp")
    if not said:
        # Any other command than `run`: this probe runs, so the container does.
        print("healthy: the container runs")
        return 0
    last = said[-1]
    healthy = arguments == ["--live"] or last["phase"] == RUNNING
    detail = f": {_printable(last['detail'])}" if last["detail"] else ""
    print(f"{'healthy' if healthy else 'not ready'}: {last['phase']}{detail}")
    return 0 if healthy else 1


def states(temporary: str) -> list[dict[str, str]]:
    """What every `run` that lives says: ``phase`` and ``detail``. Others may write to the folder what they like."""
    try:
        names = sorted(os.listdir(temporary))  # noqa: PTH208 - pathlib takes 6 ms
    except OSError:
        return []
    said = (_said(f"{temporary}/{name}/state.json") for name in names if name.startswith(PREFIX))
    return [{"phase": values["phase"], "detail": values["detail"]} for values in said if values]


def _said(path: str) -> dict[str, str] | None:
    """One `run`'s words; None where it lives no more, and for what no `run` of this user has written."""
    try:
        values = json.loads(_own_text(path))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or values.get("phase") not in (WAITING, RUNNING, ENDING):
        return None
    pid, detail = values.get("pid"), values.get("detail")
    if type(pid) is not int or type(values.get("started")) is not int or not isinstance(detail, str):
        return None
    # A container that is started again has the same process ids, and may find what the last `run` has left.
    return values if values["started"] and values["started"] == started(pid) else None


def _own_text(path: str) -> str:
    """A plain file of this user's, as text; root trusts all. Raises OSError or ValueError, and never waits."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        own = os.geteuid() in (0, status.st_uid)
        if not stat.S_ISREG(status.st_mode) or not own or status.st_size > _LARGEST:
            raise ValueError(path)
        return os.read(number, _LARGEST).decode()
    finally:
        os.close(number)


def _printable(words: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def started(pid: int) -> int:
    """When the process was started (proc(5): clock ticks since the boot); 0 where none runs, and for a zombie."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
        return 0 if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0
