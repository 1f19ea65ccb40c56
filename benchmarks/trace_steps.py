"""The steps of a build from BuildKit's progress, and the share of each kind in its time. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

# The kinds of steps: the first pattern that a step's name matches. `wheels` installs, trims, strips and compiles, which
# is a single step for BuildKit.
KINDS = {
    "context": r"\[internal\]|\[context ",
    "wheels": r"wheels(?:\.py)? (?:layers|site)|uv pip install|pip install --break-system-packages",
    "installer": r"/opt/uv\b.* install|install_uv\.py",
    "apt": r"apt-install|apt-get",
    "bytecode": r"compileall",
    "copy": r"\] (?:LINK )?(?:COPY|ADD|WORKDIR)\b",
    "compress": r"^exporting layers",
    "unpack": r"^unpacking to",
    "naming": r"^naming to",
    "export": r"^exporting|^sending tarball",
}
# `[site 2/2] RUN …`, with the target before the stage if there are several; `[internal] …`, `[context NAME] …`.
_STEP = re.compile(r"^\[(?:\S+ )?(?P<stage>\S+) +(?P<number>\d+)/\d+\] (?P<words>.*)", re.DOTALL)
_CONTEXT = re.compile(r"^\[(?:internal|context) ?(?P<name>[^\]]*)\] (?P<words>.*)", re.DOTALL)
_LAYERS = "layers"  # an additional last event: bytes of the layers of the image's last stage, from the lowest


@dataclass(frozen=True, kw_only=True)
class Step:
    """A finished step; ``start`` is in seconds since the start of the build.

    ``bytes`` is None if unknown; ``number`` is the position in a stage of the Dockerfile, else 0.
    """

    stage: str
    name: str
    kind: str
    start: float
    seconds: float
    cached: bool = False
    bytes: int | None = None
    number: int = 0

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True, kw_only=True)
class KindTotal:
    """The seconds of all steps of a kind, and their share of the build's time, which parallel steps split."""

    kind: str
    steps: int
    seconds: float
    share: float


@dataclass(kw_only=True)
class _Work:
    """A vertex or a status: BuildKit reports each several times, also for a look-up in the cache before the run."""

    name: str = ""
    began: datetime | None = None
    seconds: float = 0.0
    cached: bool = False
    bytes: int = 0
    parts: dict[str, "_Work"] = field(default_factory=dict)

    def take(self, report: Mapping[str, Any]) -> None:
        self.name = report.get("name") or self.name
        self.bytes = max(self.bytes, report.get("current") or 0)
        if not (report.get("started") and report.get("completed")):
            return
        began = datetime.fromisoformat(report["started"])
        seconds = (datetime.fromisoformat(report["completed"]) - began).total_seconds()
        if self.began is None or seconds > self.seconds:  # the longest is the run, not the look-up
            self.began, self.seconds, self.cached = began, seconds, bool(report.get("cached"))


def steps_of(events: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return the finished steps in the order of their starts."""
    works: dict[str, _Work] = {}
    layers: Sequence[int] = ()
    for event in events:
        for vertex in event.get("vertexes") or ():
            works.setdefault(vertex["digest"], _Work()).take(vertex)
        for status in event.get("statuses") or ():
            parts = works.setdefault(status["vertex"], _Work()).parts
            parts.setdefault(status["id"], _Work()).take({**status, "name": status["id"]})
        layers = event.get(_LAYERS, layers)
    spans = [span for work in works.values() if work.began for span in _spans(work)]
    first = min((work.began for work in spans if work.began), default=None)
    steps = sorted((_step(work, first) for work in spans if first), key=lambda step: (step.start, step.end))
    return _with_layers(steps, layers)


def layers_event(sizes: Sequence[int]) -> dict[str, Any]:
    """Return the additional event: bytes of the last stage's layers, from the lowest."""
    return {_LAYERS: list(sizes)}


def last_stage(history: Iterable[tuple[str, int]]) -> list[int]:
    """Return the bytes of the Dockerfile's layers, from the lowest, of an image's history, newest first."""
    return [size for words, size in history if re.match(r"(RUN|COPY|ADD|WORKDIR)\b", words)][::-1]


def whole(steps: Iterable[Step]) -> float:
    """Return the seconds until the end of the last step."""
    return max((step.end for step in steps), default=0.0)


def shares(steps: Sequence[Step]) -> list[float]:
    """Return each step's seconds, which parallel steps split; with the waiting they add up to the build's time."""
    moments = sorted({moment for step in steps for moment in (step.start, step.end)})
    matches = [0.0] * len(steps)
    for begin, end in pairwise(moments):
        running = [number for number, step in enumerate(steps) if step.start <= begin and step.end >= end]
        for number in running:
            matches[number] += (end - begin) / len(running)
    return matches


def totals(steps: Sequence[Step]) -> list[KindTotal]:
    """Return the kinds in the order of their shares; `waiting` is the time without a step."""
    total, own = whole(steps) or 1.0, shares(steps)
    of_kind: dict[str, list[tuple[float, float]]] = {}
    for step, share in zip(steps, own, strict=True):
        of_kind.setdefault(step.kind, []).append((step.seconds, share))
    matches = list[KindTotal]()
    for kind, each in of_kind.items():
        seconds, parts = (sum(column) for column in zip(*each, strict=True))
        matches.append(KindTotal(kind=kind, steps=len(each), seconds=seconds, share=parts / total))
    waiting = max(0.0, whole(steps) - sum(own))
    idle = KindTotal(kind="waiting", steps=0, seconds=waiting, share=waiting / total)
    return [*sorted(matches, key=lambda one: (-one.share, one.kind)), idle]


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name, re.DOTALL)), "other")


def _spans(work: _Work) -> list[_Work]:
    """Replace an export by its parts, which run one after the other: it packs, unpacks and names."""
    parts = [part for part in work.parts.values() if part.began]
    if work.name.startswith("exporting to") and parts:
        return parts
    return [replace(work, bytes=sum(part.bytes for part in work.parts.values()))]


def _step(work: _Work, first: datetime) -> Step:
    match, context = _STEP.match(work.name), _CONTEXT.match(work.name)
    name = match["words"] if match else ": ".join(filter(None, context.groups())) if context else work.name
    assert work.began
    return Step(
        stage=match["stage"] if match else "context" if context else "export",
        name=" ".join(re.sub(r"--(?:link|(?:mount|from|chmod)=\S+)\s*", "", name).split()),
        kind=kind_of(work.name),
        start=(work.began - first).total_seconds(),
        seconds=work.seconds,
        cached=work.cached,
        bytes=work.bytes or None,
        number=int(match["number"]) if match else 0,
    )


def _with_layers(steps: Sequence[Step], layers: Sequence[int]) -> tuple[Step, ...]:
    """Add the bytes of the last stage's layers to its steps; the image's lower layers are from other stages."""
    own = [step for step in steps if step.number and re.fullmatch(r"stage-\d+", step.stage)]
    numbered = [step for step in own if not step.name.startswith("LINK ")]  # a link is followed by the step of its copy
    count = max((step.number for step in numbered), default=0)
    sizes = dict(enumerate(layers[-count:], start=1)) if 0 < count <= len(layers) else {}
    return tuple(replace(step, bytes=sizes.get(step.number)) if step in numbered else step for step in steps)
