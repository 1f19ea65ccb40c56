"""What became of each host, read from the lines that the callback wrote. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from torchbake.core.plain_text import clean


class State(StrEnum):
    """Of a host, after a playbook. ``NOT_REACHED``: the wave stopped before its turn, or it was interrupted."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    NOT_REACHED = "not-reached"


GOOD = (State.OK, State.CHANGED)


class Stats(BaseModel):
    """How many tasks of a host ended in which way, as Ansible counts them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ok: int = 0
    changed: int = 0
    failures: int = 0
    unreachable: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


_NONE = Stats()
_FEW = 3  # lines of a reason that are shown on one
_OF_COMMANDS = "non-zero return code"


class Line(BaseModel):
    """One line of the callback."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    event: Literal["changed", "failed", "unreachable", "stats"]
    host: str
    task: str = ""
    msg: Any = ""
    stderr: Any = ""
    stdout: Any = ""
    censored: Any = ""
    stats: Stats | None = None

    @property
    def reason(self) -> str:
        """Of a command, what it said itself: Ansible's own message is that it failed."""
        texts = [str(text).strip() for text in (self.msg, self.stderr, self.stdout, self.censored)]
        said = [text for text in texts if text]
        if len(said) > 1 and said[0] == _OF_COMMANDS:
            return said[1]
        return said[0] if said else "no reason was given"


@dataclass(frozen=True, kw_only=True)
class HostResult:
    """One host. ``changed`` are the tasks that changed it; ``task`` is the one that failed, and ``reason`` why."""

    host: str
    state: State
    changed: tuple[str, ...] = ()
    task: str = ""
    reason: str = ""
    stats: Stats = _NONE

    @property
    def good(self) -> bool:
        return self.state in GOOD

    @property
    def reached(self) -> bool:
        return self.state is not State.NOT_REACHED

    @property
    def remark(self) -> str:
        """What there is to say beside the state, on one line."""
        lines = [line.strip() for line in clean(self.reason).splitlines() if line.strip()]
        reason = " ".join(lines if len(lines) <= _FEW else (lines[0], "…", lines[-1]))
        return f"{self.task.rpartition(' : ')[2]}: {reason}" if self.task else reason


def read_results(text: str, hosts: Sequence[str]) -> tuple[HostResult, ...]:
    """A result for each of ``hosts``, in their order, and then for those that only the lines name.

    A task that failed and was rescued is none that failed: the counts of the end say so.
    """
    lines = list(_lines(text))
    names = dict.fromkeys((*hosts, *(line.host for line in lines)))
    return tuple(_result(name, [line for line in lines if line.host == name]) for name in names)


def _lines(text: str) -> Iterable[Line]:
    for line in text.splitlines():
        try:
            yield Line.model_validate_json(line)
        except ValidationError:
            continue  # the last one, of a process that was killed


def _result(host: str, lines: Sequence[Line]) -> HostResult:
    stats = next((line.stats for line in lines if line.stats), None)
    changed = tuple(line.task for line in lines if line.event == "changed")
    if not lines:
        return HostResult(host=host, state=State.NOT_REACHED, reason="its turn did not come")
    state = _state(stats) if stats else State.FAILED
    bad = [line for line in lines if line.event in ("failed", "unreachable")] if state not in GOOD else []
    return HostResult(
        host=host, state=state, changed=changed, stats=stats or _NONE,
        task=bad[-1].task if bad else "", reason="" if state in GOOD else _why(bad),
    )  # fmt: skip


def _state(stats: Stats) -> State:
    if stats.unreachable:
        return State.UNREACHABLE
    if stats.failures:
        return State.FAILED
    return State.CHANGED if stats.changed else State.OK


def _why(bad: Sequence[Line]) -> str:
    if not bad:
        return "it was interrupted"
    return bad[-1].reason


def as_json(results: Iterable[HostResult]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            "host": result.host,
            "state": str(result.state),
            "changed": list(result.changed),
            "task": result.task,
            "reason": result.reason,
            "stats": result.stats.model_dump(),
        }
        for result in results
    ]
