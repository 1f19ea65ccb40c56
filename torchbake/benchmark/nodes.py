"""An experiment on several nodes: one command for each, node 0 first, all of them at once."""

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import Outcome, read_outcome
from torchbake.core.parallel import side_by_side
from torchbake.core.processes import run_to_end

NETWORK = "torchbake-nodes"  # the name in shown commands; each run uses another name


def node_variables(experiment: Experiment, node: int, master: str) -> dict[str, str]:
    """By which `bench` finds the other nodes; empty for an experiment on one node."""
    if experiment.nodes == 1:
        return {}
    return {"NNODES": str(experiment.nodes), "NODE_RANK": str(node), "MASTER_ADDR": master}


def script(commands: Sequence[Sequence[str]], *, network: str = "") -> str:
    """The commands of all nodes as lines for a shell, node 0 last, in which `bench` prints the result."""
    first, *others = map(shlex.join, commands)
    lines = [*(f"{line} &" for line in others), first]
    if network:
        lines = [f"docker network create --internal {network}", *lines, f"docker network rm {network}"]
    return "\n".join(lines)


def run_nodes(
    commands: Sequence[Sequence[str]], *, env: Mapping[str, str], limit: float, stopping: threading.Event
) -> Outcome:
    """Run all nodes and return the outcome of node 0; a failure of another node is a failure of all.

    Raises OSError if the program does not exist.
    """
    done = side_by_side(
        lambda words: run_to_end(words, env=env, limit=limit, stopping=stopping), commands, most=len(commands)
    )
    outcome = read_outcome(done[0])
    failed = next(((node, each) for node, each in enumerate(done) if node and (each.code or each.late)), None)
    if failed is None:
        return _of_all(outcome, len(commands))
    node, other = failed
    how = f"did not end within {other.seconds:.0f} s" if other.late else f"ended with {other.code}"
    return replace(outcome, result=None, reason=f"{outcome.reason} Node {node} {how}: {other.last_words}".strip())


def _of_all(outcome: Outcome, nodes: int) -> Outcome:
    """A `bench` that knows nothing of nodes measures each of them alone: that is no result of all."""
    if outcome.result and outcome.result.nodes != nodes:
        found = outcome.result.nodes
        return replace(outcome, result=None, reason=f"Its `bench` measured {found} of {nodes} nodes: it is too old.")
    return outcome
