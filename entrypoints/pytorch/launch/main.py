"""`run`: reads the contract, waits for the other nodes, starts the ranks, and ends as the job ends."""

import contextlib
import itertools
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from . import cpus, space
from .advice import advice_of, advice_on_driver, missing_driver_parts
from .contract import Contract, contract_of, without_distributed
from .health import ENDING, RUNNING, WAITING
from .job import RankCommand, find_job
from .launch_error import Code, LaunchError, internal
from .limits import check_threads
from .log import say as log
from .nodes import NodeConnections
from .ranks import RankProcesses, command_of
from .route import interface_to
from .state import RunState, new_state, temporary_folder
from .supervise import Supervisor as Supervision

USAGE = """\
usage: run [--dry-run] SCRIPT [ARGS…]
       run [--dry-run] -m MODULE [ARGS…]

Starts training under one contract, whatever launched the container: alone, or as one node of several.

  SCRIPT       looked for here, then in JOB_DIR (/app), then in GIT_REPOSITORY at GIT_REVISION
  --dry-run    show what would be started, and each rank's variables, as JSON
  -h, --help   this text

variables (docs/reference/env-contract.md has all, and the launchers that are understood):
  MODE                      standalone (default) or distributed (where nodes or processes are counted)
  NNODES, NODE_RANK         how many nodes, and which this is; node 0 is the master
  NPROC_PER_NODE            processes on each node; auto: one for each GPU
  MASTER_ADDR, MASTER_PORT  where node 0 is; the port is 49875, or a free one on a single node
  RENDEZVOUS_TIMEOUT        seconds to wait for the name, the port and all nodes (300)
  JOB_TOKEN                 a secret that all nodes share: without it no connection is trusted
  STOPPED_TIMEOUT           seconds that a rank may be stopped, as by SIGSTOP (60; 0: for ever)
  GROUP_TIMEOUT             seconds that a collective may wait, for scripts to use (600)
  ELASTIC                   MIN:MAX nodes that may come and go, by torchrun's c10d rendezvous

examples:
  docker run IMAGE run /job/train.py --lr 0.1
  docker run -e NNODES=1 IMAGE run /job/train.py     a script that calls init_process_group, alone
  docker run -e NNODES=2 -e NODE_RANK=1 -e NPROC_PER_NODE=2 -e MASTER_ADDR=node0 IMAGE run /job/train.py
"""


def main(arguments: list[str]) -> int:
    """Run the job, and return its exit code, or a `Code` if it could not be started."""
    try:
        return _main(arguments)
    except LaunchError as error:
        log(f"run: {error.sentence}")
        return int(error.code)
    except Exception as error:  # the ranks end with this process, and the other nodes see its connection close
        log(f"run: {internal(error)}")
        return int(Code.INTERNAL)


def _main(arguments: list[str]) -> int:
    words, dry_run = _parse(arguments)
    if not words:
        print(USAGE, end="")
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    cores = cpus.look()
    contract = contract_of(os.environ, gpus=count_gpus(os.environ), cpus=cores.usable, free_port=_free_port())
    with _report_trouble(contract, dry_run):
        tmp_space = space.look(temporary_folder(os.environ))
        check_threads()
        state = new_state(temporary_folder(os.environ))
        state.say(WAITING, "looking for the script")  # a fetch may take minutes, in which nothing is ready
    try:
        with _report_trouble(contract, dry_run):
            job = find_job(words, os.environ, state.folder)
        threads = None if os.environ.get("OMP_NUM_THREADS") else cores.threads(contract.nproc_per_node)
        if dry_run:
            print(json.dumps(_plan(contract, job, threads), indent=2))
            return 0
        if contract.already_rank:
            _become(contract, job, state)
        facts = [
            _summary(contract),
            tmp_space.sentence,
            cores.sentence,
            f"OMP_NUM_THREADS={threads}" if threads else "",
        ]
        log(f"run: {'; '.join(filter(None, facts))}")
        gpus = count_gpus(os.environ)
        if gpus and (advice := advice_on_driver(gpus, missing_driver_parts(os.environ))):
            log(f"run: {advice}")
        return _start(contract, job, state, threads)
    finally:
        state.remove()


def _parse(arguments: list[str]) -> tuple[list[str], bool]:
    """Return the script with its arguments, and True for a dry run. No script means `--help`."""
    words, dry_run = list(arguments), False
    while words and words[0].startswith("-") and words[0] != "-m":
        option = words.pop(0)
        if option in ("-h", "--help"):
            return [], False
        if option != "--dry-run":
            raise LaunchError(Code.USAGE, f"unknown option {option}; see `run --help`.")
        dry_run = True
    if not words or words == ["-m"]:
        raise LaunchError(Code.USAGE, "nothing was named to run: name a script, or -m MODULE; see `run --help`.")
    if words[0] == "-m" and not all(name.isidentifier() for name in words[1].split(".")):
        raise LaunchError(Code.USAGE, f"{words[1]!a} is not the name of a module, such as package.train.")
    return words, dry_run


@contextlib.contextmanager
def _report_trouble(contract: Contract, dry_run: bool) -> Iterator[None]:
    """Report an error that keeps this node from taking part to the other nodes."""
    try:
        yield
    except LaunchError as trouble:
        if contract.distributed and not dry_run:
            from .meeting import report  # noqa: PLC0415 - as in _wait

            report(contract, trouble, lambda what: log(f"run: {what}"))
        raise


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _become(contract: Contract, job: RankCommand, state: RunState) -> NoReturn:
    """Replace this process by the script: the launcher that has started this rank supervises it."""
    env = dict(os.environ)
    if contract.own:
        log(f"run: {_summary(contract)}")
        env = environment(contract, os.environ)
    if job.commit:
        state.say(RUNNING)
    else:
        state.remove()
    try:
        os.execvpe(job.command[0], list(job.command), env)
    except OSError as error:
        raise LaunchError(Code.NO_JOB, f"{job.command[0]} cannot be started ({error.strerror}): correct it.") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _start(contract: Contract, job: RankCommand, state: RunState, threads: int | None) -> int:
    nodes = _wait(contract, job, state) if contract.distributed else NodeConnections()
    # The name may also resolve to an address that does not answer, such as an old node 0's, and torch would wait there.
    contract = replace(contract, master_addr=nodes.master_addr or contract.master_addr)
    # From here on signals are passed to the ranks; keep a signal that comes before the ranks have started.
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: early.append(number))
    env = environment(contract, os.environ, threads)
    state.say(RUNNING)
    ranks = RankProcesses(contract, job.command, env, Path.cwd())
    supervision = Supervision(
        contract=contract, ranks=ranks, nodes=nodes, on_end=lambda detail: state.say(ENDING, detail)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervision.stop)
    if early:
        supervision.stop(early[0])
    code = supervision.follow()
    words = [line for failure in supervision.failures for line in failure.words]
    if not contract.distributed and (advice := advice_of(words, mode=os.environ.get("MODE", ""))):
        log(f"run: {advice}")
    return code


def _wait(contract: Contract, job: RankCommand, state: RunState) -> NodeConnections:
    from .meeting import meet  # noqa: PLC0415 - it loads cryptography, which a job of one process does not need

    last = ""

    def say(what: str) -> None:
        nonlocal last
        state.say(WAITING, what)
        if what != last:
            log(f"run: {what}")
            last = what

    return meet(contract, job.commit, say)


def environment(contract: Contract, env: Mapping[str, str], threads: int | None = None) -> dict[str, str]:
    """Return the environment of a node's ranks, without the numbers of each rank."""
    values = without_distributed(env)
    if threads:
        values["OMP_NUM_THREADS"] = str(threads)
    if not contract.distributed:
        return {**values, "MODE": contract.mode}
    if contract.elastic:
        # torch 2.13 keeps one store for all attempts: restarted ranks would read the addresses of the last attempt.
        values.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    interface = env.get("GLOO_SOCKET_IFNAME") or interface_to(_address_of(contract))
    routes = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    return {**routes, **values, **contract.rank_environment(0)}


def _address_of(contract: Contract) -> str:
    with contextlib.suppress(OSError, UnicodeError):
        return str(socket.getaddrinfo(contract.master_addr, contract.master_port)[0][4][0])
    return contract.master_addr


def count_gpus(env: Mapping[str, str]) -> int:
    """Count the GPUs of this container that CUDA_VISIBLE_DEVICES does not hide."""
    count = sum(path.name[len("nvidia") :].isdigit() for path in Path("/dev").glob("nvidia*"))
    choice = env.get("CUDA_VISIBLE_DEVICES")
    if choice is None:
        return count
    # CUDA stops reading at the first invalid number: -1 hides all GPUs.
    leading = itertools.takewhile(lambda word: word and word[0] != "-", (word.strip() for word in choice.split(",")))
    return min(count, len(list(leading)))


def _summary(contract: Contract) -> str:
    if not contract.distributed:
        return "standalone"
    if contract.elastic:
        least, most = contract.elastic
        count = contract.nproc_per_node
        return f"elastic, {least} to {most} nodes, {count} {'process' if count == 1 else 'processes'} on each"
    dialects = f" ({', '.join(contract.dialects)})" if contract.dialects else ""
    place = f"master {contract.master_addr}:{contract.master_port}{dialects}"
    if contract.own:
        return f"rank {contract.own.rank} of {contract.own.world_size}, {place}"
    last = contract.first_rank + contract.nproc_per_node - 1
    ranks = f"rank {last}" if contract.nproc_per_node == 1 else f"ranks {contract.first_rank}-{last}"
    return f"node {contract.node_rank} of {contract.nnodes}, {ranks} of {contract.world_size}, {place}"


def _plan(contract: Contract, job: RankCommand, threads: int | None) -> dict[str, object]:
    ranks = [contract.rank_environment(local) for local in range(1 if contract.own else contract.nproc_per_node)]
    return {
        "mode": contract.mode,
        "dialects": contract.dialects,
        "command": job.command,
        "commit": job.commit,
        "launcher": command_of(contract, "SOCKET", job.command),
        "threads": threads,
        "ranks": ranks if contract.distributed else [],
    }
