"""Image checks: the id and the reason of each, and the catalogue of all checks, docs/reference/checks.md."""

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parent
KINDS = ("pytorch", "init")
FAMILIES = ("cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check. It applies to some kinds of images, and of PyTorch images to some accelerators."""

    id: str
    reason: str
    kinds: tuple[str, ...] = ("pytorch",)
    families: tuple[str, ...] = FAMILIES

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]

    @property
    def applies(self) -> str:
        """To which images, in words."""
        if self.kinds != ("pytorch",):
            return "all" if set(self.kinds) == set(KINDS) else "volume-permissions"
        return "PyTorch" if self.families == FAMILIES else "PyTorch, " + self.families[0].upper()


def check(
    name: str, reason: str, *, kinds: tuple[str, ...] = ("pytorch",), families: tuple[str, ...] = FAMILIES
) -> pytest.MarkDecorator:
    """The mark that every test of this folder carries once: a decorator, or the mark of a `pytest.param`."""
    return pytest.mark.check(Check(id=name, reason=reason, kinds=kinds, families=families))


def checks_in(module: ModuleType) -> Iterator[Check]:
    """The checks of a module, in its order, without running or collecting it."""
    for name, function in vars(module).items():
        if name.startswith("test"):
            for mark in getattr(function, "pytestmark", ()):
                yield from _of_mark(mark)


def _of_mark(mark: Any) -> Iterator[Check]:
    if mark.name == "check":
        yield mark.args[0]
    if mark.name == "parametrize":
        for parameter in mark.args[1]:
            for inner in getattr(parameter, "marks", ()):
                yield from _of_mark(getattr(inner, "mark", inner))


def catalogue() -> tuple[Check, ...]:
    """Every check of this folder, by module."""
    names = sorted(path.stem for path in FOLDER.glob("test_*.py"))
    return tuple(one for name in names for one in checks_in(importlib.import_module(f"{__package__}.{name}")))


# Their ids have more to them: where it runs, as in `smoke.ddp[gloo,2x2,workers-first]`.
_SMOKE = {
    "tensor": "a torch that computes wrong values on a device is worse than one that does not start",
    "autograd": "wrong gradients raise no error: training just does not learn",
    "compile": "torch.compile needs a compiler and headers at run time, and must equal eager mode",
    "export": "what was trained must leave the image: TorchScript, torch.export, ONNX, checkpoints",
    "loader": "workers of a DataLoader need shared memory, and hang or die where it is too small",
    "versions": "torch itself must report the versions that the image's labels promise",
    "examples": "a whole training, alone and on many ranks, finds what single operations do not",
    "ddp": "ranks in several containers must find each other, in either order, and compute the same",
    "nccl": "all GPUs of a node must work together by NCCL; how fast, by its bandwidth, is measured",
}


def smoke_check(payload: str, name: str = "") -> Check:
    """The check of a payload, by the id that it has where it runs."""
    families = ("cuda",) if payload == "nccl" else FAMILIES
    return Check(id=name or f"smoke.{payload}", reason=_SMOKE[payload], families=families)


def smoke_checks() -> tuple[Check, ...]:
    """The smoke tests, by payload: where each runs depends on the image, the GPU and the options."""
    return tuple(map(smoke_check, _SMOKE))


def as_markdown(checks: Iterable[Check]) -> str:
    """The tables of docs/reference/checks.md, a group each."""
    groups: dict[str, list[Check]] = {}
    for one in checks:
        groups.setdefault(one.group, []).append(one)
    lines = []
    for group in sorted(groups):
        lines += [f"### {group}", "", "| check | images | why |", "| --- | --- | --- |"]
        lines += [f"| `{one.id}` | {one.applies} | {one.reason} |" for one in groups[group]]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
