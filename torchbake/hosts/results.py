"""The results of hosts after a playbook, parsed from the lines of the callback."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from torchbake.core.plain_text import clean


class HostState(StrEnum):
    """The state of a host after a playbook. ``NOT_REACHED``: the playbook stopped before the host's turn."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    NOT_REACHED = "not-reached"


GOOD = (HostState.OK, HostState.CHANGED)


class Stats(BaseModel):
    """The numbers of a host's tasks by outcome, as Ansible counts them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ok: int = 0
    changed: int = 0
    failures: int = 0
    unreachable: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


_NONE = Stats()
_FEW = 3  # lines of a reason that are joined
_OF_COMMANDS = "non-zero return code"


class CallbackLine(BaseModel):
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
        """The first message; of a failed command its output, as Ansible's message only says that it failed."""
        texts = [str(text).strip() for text in (self.msg, self.stderr, self.stdout, self.censored)]
        messages = [*filter(None, texts), "no reason was given"]
        return messages[1] if messages[0] == _OF_COMMANDS and len(messages) > 2 else messages[0]


@dataclass(frozen=True, kw_only=True)
class HostResult:
    """The result of one host: the tasks that ``changed`` it, the ``task`` that failed, and the ``reason``."""

    host: str
    state: HostState
    changed: tuple[str, ...] = ()
    task: str = ""
    reason: str = ""
    stats: Stats = _NONE

    @property
    def good(self) -> bool:
        return self.state in GOOD

    @property
    def reached(self) -> bool:
        return self.state is not HostState.NOT_REACHED

    @property
    def remark(self) -> str:
        """The failed task and the reason on one line."""
        lines = [line.strip() for line in clean(self.reason).splitlines() if line.strip()]
        reason = " ".join(lines if len(lines) <= _FEW else (lines[0], "…", lines[-1]))
        return f"{self.task.rpartition(' : ')[2]}: {reason}" if self.task else reason


def read_results(text: str, hosts: Sequence[str]) -> tuple[HostResult, ...]:
    """Return a result for each of ``hosts`` in order, then for other hosts in the lines.

    The final counts decide if a host has failed, as a failed task may be rescued.
    """
    lines = list(_lines(text))
    names = dict.fromkeys((*hosts, *(line.host for line in lines)))
    return tuple(_result(name, [line for line in lines if line.host == name]) for name in names)


def _lines(text: str) -> Iterable[CallbackLine]:
    for line in text.splitlines():
        try:
            yield CallbackLine.model_validate_json(line)
        except ValidationError:
            continue  # the last line of a process that was killed


def _result(host: str, lines: Sequence[CallbackLine]) -> HostResult:
    stats = next((line.stats for line in lines if line.stats), None)
    changed = tuple(line.task for line in lines if line.event == "changed")
    if not lines:
        return HostResult(host=host, state=HostState.NOT_REACHED, reason="its turn did not come")
    state = _state(stats) if stats else HostState.FAILED
    bad = [line for line in lines if line.event in ("failed", "unreachable")] if state not in GOOD else []
    reason = bad[-1].reason if bad else "" if state in GOOD else "it was interrupted"
    task = bad[-1].task if bad else ""
    return HostResult(host=host, state=state, changed=changed, stats=stats or _NONE, task=task, reason=reason)


def _state(stats: Stats) -> HostState:
    if stats.unreachable:
        return HostState.UNREACHABLE
    if stats.failures:
        return HostState.FAILED
    return HostState.CHANGED if stats.changed else HostState.OK


def as_json(results: Iterable[HostResult]) -> list[dict[str, Any]]:
    """Return results as JSON."""
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
