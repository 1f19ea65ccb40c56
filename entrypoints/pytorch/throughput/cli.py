"""`bench`: reads the command line, measures in a child process, and prints the result on rank 0."""

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
from ..payloads.apart import Signalled, run_apart
from ..payloads.command_line import USAGE_CODE
from ..payloads.verdict import PayloadOutcome, PayloadVerdict, Tell, one_line
from . import failure, report, zoo
from .flags import BenchSettings, parse
from .monitor import Monitor

_AFTER_YOU_SECONDS = 2.0


def main(words: Sequence[str], script: Path) -> int:
    """Measure as the command line says, and return the exit code; ``script`` is the path of `bench`."""
    settings = parse(words)
    if settings is None:
        print("\n".join(zoo.names()))
        return 0
    if wrong := _wrong_flag(settings):
        print(f"bench: {wrong}", file=sys.stderr)
        return USAGE_CODE
    if "RANK" not in os.environ and (settings.num_gpus > 1 or _nodes() > 1):
        _become_ranks(settings, words, script)
    if settings.local_rank is not None:
        os.environ["LOCAL_RANK"] = str(settings.local_rank)
    result = _measure(settings)
    _tell(result, int(os.environ.get("RANK", "0")))
    return 0 if result["status"] == "success" else 1


def _tell(result: dict[str, Any], rank: int) -> None:
    """Print the result on rank 0; other ranks print only the reason of a failure."""
    if rank:
        if result["reason"]:
            _say(f"rank {rank}: {result['reason']}")
            time.sleep(_AFTER_YOU_SECONDS)  # let rank 0 print first, as `run` ends all ranks when one has ended
        return
    for note in result["notes"]:
        _say(f"note: {note}")
    if result["reason"]:
        _say(result["reason"])
    print("\n".join(report.lines(result)), flush=True)


def _wrong_flag(settings: BenchSettings) -> str:
    """Return the reason why --local_rank or --num_gpus contradicts the launcher; empty if they agree."""
    own, variable = settings.local_rank, os.environ.get("LOCAL_RANK")
    is_rank, count = "RANK" in os.environ, settings.num_gpus
    if own is not None and variable not in (None, str(own)):
        return f"--local_rank is {own}, and the launcher says LOCAL_RANK={variable}: leave the flag out."
    if own is not None and variable is None and not is_rank and count > 1:
        return f"--local_rank is for one process, and --num_gpus {count} starts several: leave one out."
    local = os.environ.get("LOCAL_WORLD_SIZE", "1")
    if not is_rank or "num_gpus" not in settings.explicit or str(count or 1) == local:
        return ""
    hint = f"leave --num_gpus out, or set NPROC_PER_NODE={count}"
    return f"--num_gpus is {count}, and `run` has started {local} on this node: {hint}."


def _nodes() -> int:
    number = os.environ.get("NNODES", "")
    return int(number) if number.isdecimal() else 1


def _become_ranks(settings: BenchSettings, words: Sequence[str], script: Path) -> NoReturn:
    """Start one process for each device by `run`, with this Python."""
    python = Path(sys.executable)
    env = os.environ | {
        "NPROC_PER_NODE": str(max(1, settings.num_gpus)),
        "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}",
    }
    os.execve(python, [str(python), "-I", "-S", str(script.with_name("run")), str(script), *words], env)


def _measure(settings: BenchSettings) -> dict[str, Any]:
    """Measure in a child process, and return the result, or the reason of the failure."""
    start, monitor = report.blank(settings), Monitor(settings.monitor_seconds)
    if why := why_no_thread():
        return start | {"reason": why[:1].upper() + why[1:]}
    try:
        end = run_apart(lambda tell: _work(settings, start, tell), math.inf, "bench", monitor)
    except Signalled as signal:
        others = " Another rank has failed, or the job was stopped: stderr says which." if start["world"] > 1 else ""
        reason, lacking = f"The measurement was ended by {signal}.{others}", out_of_memory()
        return start | {"reason": reason, "out_of_memory": lacking, "monitor": monitor.series}
    start["monitor"] = monitor.series
    if end.verdict is None:
        reason = failure.kill_message(end.reason, out_of_memory=out_of_memory())
        return start | {"reason": reason, "out_of_memory": failure.was_killed(end.reason)}
    return {**start, **end.verdict.figures, "reason": end.verdict.reason}


def _work(settings: BenchSettings, start: dict[str, Any], tell: Tell) -> PayloadVerdict:
    """Measure in the child process, so that its memory includes torch, and the parent's does not."""
    try:
        figures = import_module(".measure", __package__).measure(settings, tell)
    except Exception as error:
        reason = failure.reason_of(error, batch_size=settings.batch_size, dtype=settings.dtype, device=settings.device)
        if not reason:
            traceback.print_exc(file=sys.stderr)
            reason = f"The measurement ended with {one_line(error)}. stderr says where."
        figures = {"out_of_memory": failure.lacks_memory(error)}
        return PayloadVerdict("bench", settings.device, PayloadOutcome.FAILED, reason, figures=figures)
    figures["notes"] = start["notes"] + figures["notes"]
    return PayloadVerdict("bench", settings.device, PayloadOutcome.PASSED, figures={**figures, "status": "success"})


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
