"""`bench`: reads the command line, measures in a process of its own, and prints what rank 0 knows."""

import math
import os
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ..launch.limits import why_no_thread
from ..launch.processes import out_of_memory
from ..payloads.apart import Told, run_apart
from ..payloads.verdict import Outcome, Tell, Verdict, one_line
from . import failure, report, zoo
from .flags import USAGE_CODE, Settings, parse
from .monitor import Monitor

_AFTER_YOU_SECONDS = 2.0


def main(words: Sequence[str], script: Path) -> int:
    """Measure what the command line says; ``script`` is what it was called by. Returns the exit code."""
    settings = parse(words)
    if settings is None:
        print("\n".join(zoo.names()))
        return 0
    if wrong := _other_rank(settings) or _other_count(settings):
        print(f"bench: {wrong}", file=sys.stderr)
        return USAGE_CODE
    if "RANK" not in os.environ and (settings.num_gpus > 1 or _nodes() > 1):
        _become_ranks(settings, words, script)
    if settings.local_rank is not None:
        os.environ["LOCAL_RANK"] = str(settings.local_rank)
    result = _measured(settings)
    _tell(result, int(os.environ.get("RANK", "0")))
    return 0 if result["status"] == "success" else 1


def _tell(result: dict[str, Any], rank: int) -> None:
    """Print the result; of ranks only rank 0 does."""
    if rank:
        if result["reason"]:
            _say(f"rank {rank}: {result['reason']}")
            time.sleep(_AFTER_YOU_SECONDS)  # `run` ends all ranks when one has: rank 0 comes first with its reason
        return
    for note in result["notes"]:
        _say(f"note: {note}")
    if result["reason"]:
        _say(result["reason"])
    print("\n".join(report.lines(result)), flush=True)


def _other_rank(settings: Settings) -> str:
    """Why --local_rank cannot be the rank of this process; empty if it can, or is not given."""
    known = os.environ.get("LOCAL_RANK")
    if settings.local_rank is None or known == str(settings.local_rank):
        return ""
    if known is not None:
        return f"--local_rank is {settings.local_rank}, and the launcher says LOCAL_RANK={known}: leave the flag out."
    if "RANK" not in os.environ and settings.num_gpus > 1:
        return f"--local_rank is for one process, and --num_gpus {settings.num_gpus} starts several: leave one out."
    return ""


def _other_count(settings: Settings) -> str:
    """Why --num_gpus and the ranks of this node are not the same; empty where they are, or nobody counted."""
    if "RANK" not in os.environ:
        return ""
    local = os.environ.get("LOCAL_WORLD_SIZE", "1")
    if "num_gpus" not in settings.given or str(settings.num_gpus or 1) == local:
        return ""
    return (
        f"--num_gpus is {settings.num_gpus}, and `run` has started {local} on this node: leave --num_gpus out, or set "
        f"NPROC_PER_NODE={settings.num_gpus}."
    )


def _nodes() -> int:
    """How many nodes measure together, as `run` is told."""
    number = os.environ.get("NNODES", "")
    return int(number) if number.isdecimal() else 1


def _become_ranks(settings: Settings, words: Sequence[str], script: Path) -> NoReturn:
    """One process for each device, by the `run` beside us and this Python."""
    python = Path(sys.executable)
    env = os.environ | {
        "NPROC_PER_NODE": str(max(1, settings.num_gpus)),
        "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}",
    }
    os.execve(python, [str(python), "-I", "-S", str(script.with_name("run")), str(script), *words], env)


def _measured(settings: Settings) -> dict[str, Any]:
    """The result; of a failure with its reason."""
    start, monitor = report.blank(settings), Monitor(settings.monitor_seconds)
    if why := why_no_thread():
        return start | {"reason": why[:1].upper() + why[1:]}
    try:
        ended = run_apart(lambda tell: _work(settings, start, tell), math.inf, "bench", monitor)
    except Told as told:
        reason, lacking = failure.told(str(told), ranks=start["world"]), out_of_memory()
        return start | {"reason": reason, "out_of_memory": lacking, "monitor": monitor.series}
    start["monitor"] = monitor.series
    if ended.verdict is None:
        reason = failure.killed(ended.reason, out_of_memory=out_of_memory())
        return start | {"reason": reason, "out_of_memory": failure.was_killed(ended.reason)}
    return {**start, **ended.verdict.figures, "reason": ended.verdict.reason}


def _work(settings: Settings, start: dict[str, Any], tell: Tell) -> Verdict:
    """In the process that measures: torch is in it alone, and so is all memory that it takes."""
    try:
        figures = import_module(".measure", __package__).measure(settings, tell)
    except Exception as error:
        reason = failure.reason_of(error, batch_size=settings.batch_size, dtype=settings.dtype, device=settings.device)
        if not reason:
            traceback.print_exc(file=sys.stderr)
            reason = f"The measurement ended with {one_line(error)}. stderr says where."
        figures = {"out_of_memory": failure.lacks_memory(error)}
        return Verdict("bench", settings.device, Outcome.FAILED, reason, figures=figures)
    figures["notes"] = start["notes"] + figures["notes"]
    return Verdict("bench", settings.device, Outcome.PASSED, figures={**figures, "status": "success"})


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
