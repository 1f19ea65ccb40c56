"""The ranks of this node: started (an elastic job's by torchrun), watched, and ended with all their descendants."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .contract import Contract
from .failure import JobFailure
from .launch_error import Code, LaunchError
from .limits import give_back
from .processes import descendants, out_of_memory, state_of
from .reports import RankProcess, RankReports

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_KILL_ROUNDS = 50
_LOOK_SECONDS = 0.5  # between two checks for stopped processes
_END_SECONDS = 5.0  # from the end of a connection to that of its process
_FROZEN_SECONDS = 5.0  # After so long without a check, `run` was frozen together with its ranks.


class RankProcesses:
    """The processes of one node; each rank reports by rank.py."""

    def __init__(self, contract: Contract, command: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> None:
        self._contract = contract
        self._reports = RankReports()
        self._reporting: set[RankProcess] = set()
        self._silent: set[int] = set()  # local ranks that ended without a report
        self._unknown: set[int] = set()  # processes that were signalled before their first report
        self._killed = False
        self._signal = 0
        self._signalled: list[RankProcess] = []
        self._stopped_since: dict[int, float] = {}
        self._last_look = time.monotonic()
        # Adopt orphans in place of PID 1, so that none outlives its job.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        words = command_of(contract, self._reports.name, command)
        self._started: list[subprocess.Popen[bytes]] = []  # rank.py for each rank, or an elastic job's torchrun
        for own in environments_of(contract, env):
            self._start(words, own, cwd)

    def _start(self, words: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Start one process. Raises LaunchError at the limit of processes or memory."""
        try:
            self._started.append(subprocess.Popen(words, env=env, cwd=cwd, start_new_session=True))
        except OSError as error:
            self.kill()
            raise LaunchError(
                Code.NO_PROCESS,
                f"process {len(self._started) + 1} of this node cannot be started ({error.strerror}): raise the "
                "container's limit of processes (docker run --pids-limit) or memory.",
            ) from None
        give_back(self._started[-1].pid)

    def poll(self) -> list[JobFailure]:
        """The failures since the last call."""
        self._reap()
        missing = [local for local, each in enumerate(self._started) if each.poll() is not None]
        before = len(self._reports.ranks)
        self._reports.poll()
        if self._signal:
            self._send(self._reports.ranks[before:])  # they reported after the others were signalled
        if self._contract.elastic:
            return []
        ends = [rank for rank in self._reports.ranks if rank.code is not None and rank not in self._reporting]
        self._reporting.update(ends)
        for rank in ends:
            if rank.silent:
                rank.code = self._code_of(rank)
        return [*self._unreported(missing), *(self._failure(rank) for rank in ends if rank.code)]

    def _unreported(self, pids: Iterable[int]) -> list[JobFailure]:
        """Return the failures of ranks, by their local numbers, that ended before their first report."""
        known_names = {rank.pid for rank in self._reports.ranks}
        new = [local for local in pids if local not in self._silent and self._started[local].pid not in known_names]
        self._silent.update(new)
        codes = {local: shell_code(self._started[local].returncode) for local in new}
        node, first, signalled = self._contract.node_rank, self._contract.first_rank, bool(self._signal) or self._killed
        return [
            JobFailure(node=node, rank=first + local, local_rank=local, code=code, told=signalled)
            for local, code in codes.items()
            if code
        ]

    def _code_of(self, rank: RankProcess) -> int:
        """Return the exit code of a static job's rank whose connection ended without a report."""
        for each in self._started:
            if each.pid == rank.pid:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return shell_code(each.wait(_END_SECONDS))
        return 128 + signal.SIGKILL

    @property
    def finished_ranks(self) -> list[int]:
        """The ranks of a static job that have ended with exit code 0."""
        return [] if self._contract.elastic else [rank.number for rank in self._reports.ranks if rank.code == 0]

    @property
    def all_over(self) -> bool:
        """Return True if every rank has ended and none is started again.

        An elastic job's torchrun starts ranks again unless `run` has ended them: see rank.py.
        """
        end_count = sum(rank.code is not None for rank in self._reports.ranks)
        if self._contract.elastic:
            return bool(self._signal) and 0 < end_count == len(self._reports.ranks)
        return end_count + len(self._silent) == self._contract.nproc_per_node

    @property
    def all_finished(self) -> bool:
        return None not in [each.poll() for each in self._started]

    def outcome(self) -> list[JobFailure]:
        """Return the failures of an elastic job whose torchrun has ended; `poll` returns those of a static job."""
        if not self._contract.elastic:
            return []
        node, code = self._contract.node_rank, shell_code(self._started[0].returncode)
        if self._signal:
            # Between two attempts torchrun has no ranks to signal.
            torchrun = [JobFailure(node=node, code=128 + self._signal, told=True)]
            return [self._failure(rank) for rank in self._signalled if rank.code] if self._signalled else torchrun
        if not code:
            return []
        from .checkin import rendezvous_gone  # noqa: PLC0415 - slow to load, and only elastic jobs need it

        by_themselves = [rank for rank in self._reports.ranks if rank.code and not rank.signalled]
        last = max((rank.attempt for rank in by_themselves), default=0)
        failures = [self._failure(rank) for rank in by_themselves if rank.attempt == last]
        if all(failure.consequence for failure in failures) and (reason := rendezvous_gone(self._contract)):
            return [JobFailure(node=node, code=Code.NODE_LOST, why=reason)]
        return failures or [JobFailure(node=node, code=code, why="torchrun ended before its ranks did")]

    def signal(self, number: int) -> None:
        """Send a signal to each rank's script, by way of rank.py."""
        self._signal = number
        if not self._send(self._reports.ranks):
            for each in self._started:  # no rank has reported yet
                each.send_signal(number)
                self._unknown.add(each.pid)

    def _send(self, ranks: Iterable[RankProcess]) -> bool:
        """Send the signal to the live ranks, and return True if there is one."""
        alive = [rank for rank in ranks if rank.code is None and rank.pid not in self._unknown]
        for rank in alive:
            self._signalled.append(rank)
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, self._signal)
        return bool(alive)

    def stop(self, seconds: float) -> list[JobFailure]:
        """Return failures for the processes that have been stopped (state T, as by SIGSTOP) for so long.

        A debugger's stop is state t, and a frozen container has another state. An elastic job's process is killed
        instead, so that its torchrun acts.
        """
        now = time.monotonic()
        if now - self._last_look < _LOOK_SECONDS:
            return []
        if now - self._last_look > _FROZEN_SECONDS:
            self._stopped_since.clear()
        self._last_look = now
        watched = {pid: rank for rank in self._reports.ranks if rank.code is None for pid in (rank.pid, rank.script)}
        pids = dict.fromkeys([*watched, *(each.pid for each in self._started if each.poll() is None)])
        self._stopped_since = {pid: self._stopped_since.get(pid, now) for pid in pids if state_of(pid) == "T"}
        long = [pid for pid, since in self._stopped_since.items() if now - since >= seconds]
        if not self._contract.elastic:
            return [self._stop_of(watched.get(pid), pid, now) for pid in long]
        for pid in long:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return []

    def _stop_of(self, rank: RankProcess | None, pid: int, now: float) -> JobFailure:
        seconds = f"{now - self._stopped_since[pid]:.0f} s"
        why = f"its process {pid} has been stopped (state T, as by SIGSTOP) for {seconds}"
        number, local = (rank.number, rank.local) if rank else (None, None)
        node, code = self._contract.node_rank, 128 + signal.SIGSTOP
        return JobFailure(node=node, rank=number, local_rank=local, code=code, why=why)

    def kill(self) -> None:
        """Kill all descendants, in any session or process group."""
        self._killed = True
        for _ in range(_KILL_ROUNDS):  # the next round finds the children of processes that fork in this round
            self._reap()
            left = [pid for pid in descendants(os.getpid()) if state_of(pid) not in ("", "Z", "X")]
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for each in self._started:
            each.wait()
        self._reap()

    def _reap(self) -> None:
        """Reap adopted orphans; Popen reaps the started processes, as it needs their exit codes."""
        process = {each.pid: each for each in self._started if each.returncode is None}  # process ids are reused
        with contextlib.suppress(ChildProcessError):
            while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if each := process.get(dead.si_pid):
                    each.poll()
                else:
                    os.waitpid(dead.si_pid, os.WNOHANG)

    def _failure(self, rank: RankProcess) -> JobFailure:
        assert rank.code is not None
        killed = rank.code == 137 and out_of_memory()
        return JobFailure(
            node=self._contract.node_rank,
            rank=rank.number,
            local_rank=rank.local,
            code=rank.code,
            why="killed for lack of memory: raise the container's limit" if killed else "",
            words=rank.words,
            told=rank.signalled or (rank.code == 137 and self._killed),
        )


def shell_code(returncode: int) -> int:
    """Return a process's exit code as a shell does: 128 + n if signal n has ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def environments_of(contract: Contract, env: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the environment of each started process; torchrun gives an elastic job's ranks their numbers."""
    if contract.elastic or not contract.distributed:
        return [dict(env)]
    return [
        {**env, **contract.rank_environment(local), **_as_torchrun(contract, local)}
        for local in range(contract.nproc_per_node)
    ]


def _as_torchrun(contract: Contract, local: int) -> dict[str, str]:
    """Return the other variables of torchrun that are not about its store and files.

    Lightning, for one, reads them before Slurm's. https://docs.pytorch.org/docs/stable/elastic/run.html, "Environment
    Variables".
    """
    return {
        "TORCHELASTIC_RUN_ID": contract.rdzv_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "GROUP_WORLD_SIZE": str(contract.nnodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(contract.first_rank + local),
        "ROLE_WORLD_SIZE": str(contract.world_size),
    }


def command_of(contract: Contract, reports: str, command: tuple[str, ...]) -> list[str]:
    """Return the command of a rank of this node, or of an elastic job's torchrun; ``reports`` is the socket's name.

    Static jobs do without torchrun, which loads torch on each node before the first rank does.
    """
    rank = [sys.executable, "-I", "-S", str(Path(__file__).with_name("rank.py"))]
    if not contract.elastic:
        return [*rank, reports, *command]
    least, most = contract.elastic
    settings = {"join_timeout": str(max(1, round(contract.rendezvous_timeout))), **contract.rdzv_conf}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--monitor-interval=0.2"]
    torchrun += [f"--nproc-per-node={contract.nproc_per_node}", f"--nnodes={least}:{most}", "--rdzv-backend=c10d"]
    torchrun += [f"--rdzv-endpoint={contract.master_addr}:{contract.master_port}", f"--rdzv-id={contract.rdzv_id}"]
    torchrun += [f"--max-restarts={contract.max_restarts}"]
    torchrun += [f"--rdzv-conf={','.join(f'{name}={value}' for name, value in settings.items())}"]
    return [*torchrun, *rank, "--torchrun", reports, *command]
