"""`health`: answers the probes of a container platform. Only `--deep` loads torch.

A probe runs every few seconds beside the training, so the module imports as little as possible.
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
    """Answer one probe, and return the exit code."""
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments == ["--deep"]:
        from .limits import why_no_thread  # noqa: PLC0415 - other probes need not load it

        if why := why_no_thread():
            print(f"not healthy: {why}")
            return 1
        os.dup2(1, 2)
        os.execv(sys.executable, [sys.executable, "-c", _DEEP])
    if arguments not in ([], ["--live"]):
        print(f"health: unknown option {' '.join(arguments)}; see `health --help`.", file=sys.stderr)
        return 64
    matches = states(os.environ.get("TMPDIR") or "/tmp")
    if not matches:
        # The container's command is not `run`: this probe runs, so the container does.
        print("healthy: the container runs")
        return 0
    phase, detail = matches[-1]["phase"], matches[-1]["detail"]
    healthy = arguments == ["--live"] or phase == RUNNING
    printable = "".join(letter if letter.isprintable() else "?" for letter in detail)
    print(f"{'healthy' if healthy else 'not ready'}: {phase}{f': {printable}' if printable else ''}")
    return 0 if healthy else 1


def states(temporary: str) -> list[dict[str, str]]:
    """Read ``phase`` and ``detail`` of every live `run`. Other users may write any file to the folder."""
    try:
        names = sorted(os.listdir(temporary))  # noqa: PTH208 - pathlib takes 6 ms
    except OSError:
        return []
    matches = (_state(f"{temporary}/{name}/state.json") for name in names if name.startswith(PREFIX))
    return [{"phase": state["phase"], "detail": state["detail"]} for state in matches if state]


def _state(path: str) -> dict[str, str] | None:
    """Read one state file; None if its `run` has ended, or no `run` of this user has written it."""
    try:
        values = json.loads(_own_text(path))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or values.get("phase") not in (WAITING, RUNNING, ENDING):
        return None
    pid, detail = values.get("pid"), values.get("detail")
    if type(pid) is not int or type(values.get("started")) is not int or not isinstance(detail, str):
        return None
    # A restarted container has the same process ids, and may find the state file of its last `run`.
    return values if values["started"] and values["started"] == start_time(pid) else None


def _own_text(path: str) -> str:
    """Read a regular file of this user, or of anyone if root reads. Raises OSError or ValueError; never blocks."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        own = os.geteuid() in (0, status.st_uid)
        if not stat.S_ISREG(status.st_mode) or not own or status.st_size > _LARGEST:
            raise ValueError(path)
        return os.read(number, _LARGEST).decode()
    finally:
        os.close(number)


def start_time(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot (proc(5)); 0 if none runs, or for a zombie."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
        return 0 if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0
