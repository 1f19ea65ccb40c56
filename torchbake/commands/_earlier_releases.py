"""The gate on releases of earlier runs: an index joins them, or they stay in place of an image that this run judged."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from torchbake.gate.judge import GateResult
from torchbake.release.candidate import Candidate
from torchbake.release.index_parts import ReleasedPart
from torchbake.release.publisher import Publisher

if TYPE_CHECKING:
    from torchbake.commands._release_gate import ReleaseGate


def judge_parts(
    gate: "ReleaseGate", publisher: Publisher, judged: Collection[str], gates: dict[str, GateResult],
    parts: Sequence[ReleasedPart],
) -> None:  # fmt: skip
    """Judge the releases of an index whose digests are not ``judged``. Raises CheckError if the gate refuses one.

    The decisions are added to ``gates``, by tag.
    """
    earlier = {f"{one.tag}": one.part.id for one in parts if one.holder.digest not in judged}
    gates |= {tag: gate.judge_release(name, publisher.registry, tag) for tag, name in earlier.items()}
    for tag, name in earlier.items():
        gate.pass_result(gates[tag], f"{name}, which an earlier run released as {tag}")


def judge_kept(gate: "ReleaseGate", publisher: Publisher, candidate: Candidate) -> dict[str, GateResult]:
    """Judge the release that stays in place of a candidate, by its tag; nothing if there is none."""
    tag = publisher.kept_release(candidate)
    return {tag: gate.judge_release(candidate.id, publisher.registry, tag)} if tag else {}
