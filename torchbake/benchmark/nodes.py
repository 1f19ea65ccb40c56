"""Experiments on several nodes: one command for each node, node 0 first, all of them in parallel."""

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import RunOutcome, read_outcome
from torchbake.core.parallel import side_by_side
from torchbake.core.processes import run_to_end

NETWORK = "torchbake-nodes"  # only in commands that are shown; each run has a network with another name


def node_variables(experiment: Experiment, node: int, master: str) -> dict[str, str]:
    """Return the variables by which `bench` finds the other nodes; none for an experiment on one node."""
    if experiment.nodes == 1:
        return {}
    return {"NNODES": str(experiment.nodes), "NODE_RANK": str(node), "MASTER_ADDR": master}


def script(commands: Sequence[Sequence[str]], *, network: str = "") -> str:
    """Return the commands of all nodes as lines for a shell. Node 0, which prints the result, is the last."""
    first, *others = map(shlex.join, commands)
    lines = [*(f"{line} &" for line in others), first]
    if network:
        lines = [f"docker network create --internal {network}", *lines, f"docker network rm {network}"]
    return "\n".join(lines)


def run_nodes(
    commands: Sequence[Sequence[str]], *, env: Mapping[str, str], limit: float, stopping: threading.Event
) -> RunOutcome:
    """Run all nodes and return the outcome of node 0; if another node fails, there is no result.

    Raise OSError if the program does not exist.
    """
    results = side_by_side(
        lambda words: run_to_end(words, env=env, limit=limit, stopping=stopping), commands, most=len(commands)
    )
    outcome = read_outcome(results[0])
    for node, other in enumerate(results[1:], 1):
        if other.code or other.late:
            how = f"did not end within {other.seconds:.0f} s" if other.late else f"ended with {other.code}"
            reason = f"{outcome.reason} Node {node} {how}: {other.last_words}".strip()
            return replace(outcome, result=None, reason=reason)
    if outcome.result and outcome.result.nodes != len(commands):  # an old `bench` measures each node alone
        reason = f"Its `bench` measured {outcome.result.nodes} of {len(commands)} nodes: it is too old."
        return replace(outcome, result=None, reason=reason)
    return outcome
