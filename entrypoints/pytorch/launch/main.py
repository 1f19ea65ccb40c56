"""`run`: reads the contract, waits for the other nodes, starts the ranks, and ends as the job ends."""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from .contract import Contract, contract_of, without_distributed
from .health import ENDING, RUNNING, WAITING
from .job import Job, find_job
from .nodes import Nodes, gather, wait_for_master
from .ranks import Ranks, command_of
from .refusal import Code, Refusal
from .route import interface_to
from .space import look
from .state import State, new_state, temporary_folder
from .supervise import Job as Supervision

USAGE = """\
usage: run [--dry-run] SCRIPT [ARGS…]
       run [--dry-run] -m MODULE [ARGS…]

Starts training under one contract, whatever launched the container: alone, or as one node of several.

  SCRIPT       looked for here, then in JOB_DIR (/app), then in GIT_REPOSITORY at GIT_REVISION
  --dry-run    show what would be started, and each rank's variables, as JSON
  -h, --help   this text

variables (docs/env-contract.md has all, and the launchers that are understood):
  MODE                      standalone (default) or distributed
  NNODES, NODE_RANK         how many nodes, and which this is; node 0 is the master
  NPROC_PER_NODE            processes on each node; auto: one for each GPU
  MASTER_ADDR, MASTER_PORT  where node 0 is; the port is 49875
  RENDEZVOUS_TIMEOUT        seconds to wait for the name, the port and all nodes (300)
  GROUP_TIMEOUT             seconds that a collective may wait, for scripts to use (600)
  ELASTIC                   MIN:MAX nodes that may come and go, by torchrun's c10d rendezvous

examples:
  docker run IMAGE run /job/train.py --lr 0.1
  docker run -e NNODES=2 -e NODE_RANK=1 -e NPROC_PER_NODE=2 -e MASTER_ADDR=node0 IMAGE run /job/train.py
"""


def main(arguments: list[str]) -> int:
    """Returns the exit code: the job's own, or a `Code` when it could not be started."""
    try:
        return _main(arguments)
    except Refusal as refusal:
        print(f"run: {refusal.sentence}", file=sys.stderr)
        return int(refusal.code)


def _main(arguments: list[str]) -> int:
    words, dry_run = _parse(arguments)
    if not words:
        print(USAGE, end="")
        return 0
    signal.signal(signal.SIGTERM, _leave)
    contract = contract_of(os.environ, gpus=count_gpus(os.environ), cpus=len(os.sched_getaffinity(0)))
    space = look(temporary_folder(os.environ))
    state = new_state(temporary_folder(os.environ))
    try:
        job = find_job(words, os.environ, state.folder)
        if dry_run:
            print(json.dumps(_plan(contract, job, state.folder), indent=2))
            return 0
        if contract.already_rank:
            os.execvpe(job.command[0], list(job.command), os.environ)
        print(f"run: {_summary(contract)}; {space.sentence}", file=sys.stderr)
        return _start(contract, job, state)
    finally:
        state.remove()


def _parse(arguments: list[str]) -> tuple[list[str], bool]:
    """The script's words, and whether to start nothing. No words: help was asked for."""
    words, dry_run = list(arguments), False
    while words and words[0].startswith("-") and words[0] != "-m":
        option = words.pop(0)
        if option in ("-h", "--help"):
            return [], False
        if option != "--dry-run":
            raise Refusal(Code.USAGE, f"unknown option {option}; see `run --help`.")
        dry_run = True
    if not words or words == ["-m"]:
        raise Refusal(Code.USAGE, "what shall be run? Name a script, or -m MODULE; see `run --help`.")
    return words, dry_run


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _start(contract: Contract, job: Job, state: State) -> int:
    nodes = Nodes(contract=contract)
    if contract.distributed:
        nodes = _wait(contract, job, state)
    # From here a signal is for the ranks as well; one that comes before they are there is remembered.
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: early.append(number))
    env = environment(contract, os.environ)
    ranks = Ranks(contract, state.folder, command_of(contract, state.folder, job.command), env, Path.cwd())
    state.say(RUNNING)
    supervision = Supervision(
        contract=contract, ranks=ranks, nodes=nodes, on_end=lambda detail: state.say(ENDING, detail)
    )
    if early:
        supervision.stop(early[0])
    return supervision.follow()


def _wait(contract: Contract, job: Job, state: State) -> Nodes:
    said: list[str] = []

    def say(what: str) -> None:
        """To `health` always, to the log once."""
        if said[-1:] != [what]:
            print(f"run: {what}", file=sys.stderr)
            said.append(what)
        state.say(WAITING, what)

    if not contract.elastic:
        return gather(contract, job.commit, say)
    if not contract.is_master:
        wait_for_master(contract, say)
    return Nodes(contract=contract)


def environment(contract: Contract, env: Mapping[str, str]) -> dict[str, str]:
    """What a node's ranks start with; torchrun sets each one's own numbers over it."""
    clean = without_distributed(env)
    if not contract.distributed:
        return {**clean, "MODE": contract.mode}
    interface = env.get("GLOO_SOCKET_IFNAME") or interface_to(_address_of(contract))
    routes = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    values = {**routes, **clean, **contract.rank_environment(0)}
    if contract.nproc_per_node > 1 and "OMP_NUM_THREADS" not in values:
        # Else torchrun gives each rank one thread, or without torchrun each takes all cores.
        values["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // contract.nproc_per_node))
    return values


def _address_of(contract: Contract) -> str:
    try:
        return str(socket.getaddrinfo(contract.master_addr, contract.master_port)[0][4][0])
    except (OSError, UnicodeError):
        return contract.master_addr


def count_gpus(env: Mapping[str, str]) -> int:
    """The GPUs that this container was given; CUDA_VISIBLE_DEVICES may leave fewer."""
    there = sum(path.name[len("nvidia") :].isdigit() for path in Path("/dev").glob("nvidia*"))
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    return there if chosen is None else min(there, len([word for word in chosen.split(",") if word.strip()]))


def _summary(contract: Contract) -> str:
    if not contract.distributed:
        return "standalone"
    if contract.elastic:
        least, most = contract.elastic
        count = contract.nproc_per_node
        return f"elastic, {least} to {most} nodes, {count} {'process' if count == 1 else 'processes'} on each"
    last = contract.first_rank + contract.nproc_per_node - 1
    ranks = f"rank {last}" if contract.nproc_per_node == 1 else f"ranks {contract.first_rank}-{last}"
    dialects = f" ({', '.join(contract.dialects)})" if contract.dialects else ""
    return (
        f"node {contract.node_rank} of {contract.nnodes}, {ranks} of {contract.world_size}, "
        f"master {contract.master_addr}:{contract.master_port}{dialects}"
    )


def _plan(contract: Contract, job: Job, folder: Path) -> dict[str, object]:
    ranks = [contract.rank_environment(local) for local in range(contract.nproc_per_node)]
    return {
        "mode": contract.mode,
        "dialects": contract.dialects,
        "command": job.command,
        "commit": job.commit,
        "launcher": command_of(contract, folder, job.command),
        "ranks": ranks if contract.distributed else [],
    }
