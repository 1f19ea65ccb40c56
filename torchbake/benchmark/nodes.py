"""An experiment on several nodes: one command for each, node 0 first, all of them at once."""

import contextlib
import os
import shlex
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import Outcome, read_outcome, refusal_of
from torchbake.core.parallel import side_by_side
from torchbake.core.processes import run_to_end
from torchbake.errors import BenchmarkError

NETWORK = "torchbake-nodes"  # the name in shown commands; each run adds a random part to it
_SECONDS = 60  # time limit of the engine for making or removing a network


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
        lines = [shlex.join(_create(network, {})), *lines, shlex.join(_remove(network))]
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


@contextlib.contextmanager
def network_of(labels: Mapping[str, str], stopping: threading.Event) -> Iterator[str]:
    """The name of a network for the nodes of one experiment, which leads nowhere else. Raises BenchmarkError."""
    name = f"torchbake-nodes-{uuid.uuid4().hex[:12]}"
    done = run_to_end(_create(name, labels), env=os.environ, limit=_SECONDS, stopping=stopping)
    if done.code:
        raise BenchmarkError(f"The engine makes no network: {refusal_of(done)}", hint="See: docker network ls")
    try:
        yield name
    finally:
        run_to_end(_remove(name), env=os.environ, limit=_SECONDS, stopping=threading.Event())


def _create(name: str, labels: Mapping[str, str]) -> list[str]:
    return ["docker", "network", "create", "--internal", *(f"--label={key}={labels[key]}" for key in labels), name]


def _remove(name: str) -> list[str]:
    return ["docker", "network", "rm", name]
