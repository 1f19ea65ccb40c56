"""This node's ranks: started by `torchrun` or straight, watched, and ended with all that they started."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from .checkin import rendezvous_gone
from .contract import Contract
from .failure import Failure
from .limits import give_back
from .processes import descendants, out_of_memory, state_of
from .refusal import Code
from .reports import Rank, Reports

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_KILL_ROUNDS = 50
_LOOK_SECONDS = 0.5  # between two looks for stopped processes
_FROZEN_SECONDS = 5.0  # when we did not look for so long, we were frozen with them


class Ranks:
    """The processes of one node; each rank reports by rank.py."""

    def __init__(self, contract: Contract, command: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> None:
        self._contract = contract
        self._reports = Reports()
        self._seen: set[Rank] = set()
        self._killed = False
        self._signal = 0
        self._signalled: list[Rank] = []
        self._stopped_since: dict[int, float] = {}
        self._looked = time.monotonic()
        # Orphans come to us, not to PID 1, so that none outlives its job.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        launcher = command_of(contract, self._reports.name, command)
        self._launcher = subprocess.Popen(launcher, env=dict(env), cwd=cwd, start_new_session=True)
        give_back(self._launcher.pid)

    def poll(self) -> list[Failure]:
        """The failures since the last call."""
        self._reap()
        before = len(self._reports.ranks)
        self._reports.poll()
        if self._signal:
            self._send(self._reports.ranks[before:])  # started while the others were told
        return [] if self._contract.elastic else [self._failure(rank) for rank in self._new_ends() if rank.code]

    def _new_ends(self) -> list[Rank]:
        ends = [rank for rank in self._reports.ranks if rank.code is not None and rank not in self._seen]
        self._seen.update(ends)
        return ends

    @property
    def done(self) -> list[int]:
        """The ranks of a static job that have ended with 0."""
        return [] if self._contract.elastic else [rank.number for rank in self._reports.ranks if rank.code == 0]

    @property
    def all_over(self) -> bool:
        """Whether every rank has ended; the launcher may still be talking about it.

        An elastic job's launcher may start them again, unless they were told to end: see rank.py.
        """
        ended = sum(rank.code is not None for rank in self._reports.ranks)
        if self._contract.elastic:
            return bool(self._signal) and 0 < ended == len(self._reports.ranks)
        return ended == self._contract.nproc_per_node

    @property
    def ended(self) -> bool:
        return self._launcher.poll() is not None

    def outcome(self) -> list[Failure]:
        """When ended: what the launcher itself has to say, if no rank has said it."""
        code = self._launcher.returncode
        code = 128 - code if code < 0 else code
        if self._contract.elastic:
            return self._elastic_outcome(code)
        if not code or any(rank.code for rank in self._reports.ranks) or (self._killed and self._reports.ranks):
            return []
        if self._killed or (self._signal and not self._reports.ranks):
            return [Failure(node=self._contract.node_rank, code=code, told=True)]
        return [self._of_launcher(code)]

    def _elastic_outcome(self, code: int) -> list[Failure]:
        if self._signal:
            # Between two attempts there was nobody to tell but the launcher.
            nobody = [Failure(node=self._contract.node_rank, code=128 + self._signal, told=True)]
            return [self._failure(rank) for rank in self._signalled if rank.code] if self._signalled else nobody
        if not code:
            return []
        said = self._last_attempt()
        if all(failure.consequence for failure in said) and (gone := rendezvous_gone(self._contract)):
            return [Failure(node=self._contract.node_rank, code=Code.NODE_LOST, why=gone)]
        return said or [self._of_launcher(code)]

    def _of_launcher(self, code: int) -> Failure:
        return Failure(node=self._contract.node_rank, code=code, why="the launcher ended before its ranks did")

    def signal(self, number: int) -> None:
        """Send a signal to each rank's script, by way of rank.py."""
        self._signal = number
        if not self._send(self._reports.ranks) and not self.ended:
            self._launcher.send_signal(number)

    def _send(self, ranks: Iterable[Rank]) -> bool:
        """Returns whether there was one to send it to."""
        alive = [rank for rank in ranks if rank.code is None]
        for rank in alive:
            self._signalled.append(rank)
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, self._signal)
        return bool(alive)

    def stopped(self, seconds: float) -> list[Failure]:
        """What has been stopped (state T, as by SIGSTOP) for so long.

        A debugger's stop is another state (t), a frozen container yet another. An elastic job's rank is ended instead:
        its launcher knows what to do then.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return []
        if now - self._looked > _FROZEN_SECONDS:
            self._stopped_since.clear()
        self._looked = now
        watched = {pid: rank for rank in self._reports.ranks if rank.code is None for pid in (rank.pid, rank.script)}
        self._stopped_since = {
            pid: self._stopped_since.get(pid, now) for pid in [*watched, self._launcher.pid] if state_of(pid) == "T"
        }
        long = [pid for pid, since in self._stopped_since.items() if now - since >= seconds]
        if not self._contract.elastic:
            return [self._stop_of(watched.get(pid), pid, now) for pid in long]
        for pid in long:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return []

    def _stop_of(self, rank: Rank | None, pid: int, now: float) -> Failure:
        return Failure(
            node=self._contract.node_rank,
            rank=rank.number if rank else None,
            local_rank=rank.local if rank else None,
            code=128 + signal.SIGSTOP,
            why=f"its process {pid} has been stopped (state T, as by SIGSTOP) for "
            f"{now - self._stopped_since[pid]:.0f} s",
        )

    def kill(self) -> None:
        """End all that is left, whatever session or process group it hides in."""
        self._killed = True
        for _ in range(_KILL_ROUNDS):  # one that forks while we look leaves a child that the next look finds
            self._reap()
            left = [pid for pid in descendants(os.getpid()) if state_of(pid) not in ("", "Z", "X")]
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._launcher.wait()
        self._reap()

    def _reap(self) -> None:
        """Bury adopted orphans; the launcher is left to Popen, which must see its exit code."""
        with contextlib.suppress(ChildProcessError):
            while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if dead.si_pid == self._launcher.pid:
                    self._launcher.poll()
                else:
                    os.waitpid(dead.si_pid, os.WNOHANG)

    def _last_attempt(self) -> list[Failure]:
        """The failures of an elastic job's last attempt in which a rank failed by itself, in order."""
        by_themselves = [rank for rank in self._reports.ranks if rank.code and not rank.told]
        last = max((rank.attempt for rank in by_themselves), default=0)
        return [self._failure(rank) for rank in by_themselves if rank.attempt == last]

    def _failure(self, rank: Rank) -> Failure:
        assert rank.code is not None
        killed = rank.code == 137 and out_of_memory()
        return Failure(
            node=self._contract.node_rank,
            rank=rank.number,
            local_rank=rank.local,
            code=rank.code,
            why="killed for lack of memory: raise the container's limit" if killed else "",
            words=rank.words,
            told=rank.told or (rank.code == 137 and self._killed),
        )


def command_of(contract: Contract, reports: str, command: tuple[str, ...]) -> list[str]:
    """How the ranks of this node are started; ``reports`` names the socket that they report to."""
    rank = [sys.executable, "-I", "-S", str(Path(__file__).with_name("rank.py")), reports, *command]
    if not contract.elastic and contract.nproc_per_node == 1:
        return rank
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--monitor-interval=0.2"]
    torchrun += [f"--nproc-per-node={contract.nproc_per_node}"]
    timeout = max(1, round(contract.rendezvous_timeout))
    if contract.elastic:
        where = f"{contract.master_addr}:{contract.master_port}"
        least, most = contract.elastic
        torchrun += [f"--nnodes={least}:{most}", "--rdzv-backend=c10d", f"--rdzv-endpoint={where}"]
        torchrun += [f"--rdzv-id={contract.rdzv_id}", f"--max-restarts={contract.max_restarts}"]
        settings = {"join_timeout": str(timeout), **contract.rdzv_conf}
    else:
        torchrun += [f"--nnodes={contract.nnodes}", f"--node-rank={contract.node_rank}", "--max-restarts=0"]
        torchrun += [f"--master-addr={contract.master_addr}", f"--master-port={contract.master_port}"]
        settings = {"timeout": str(timeout), **contract.rdzv_conf}
    return [*torchrun, f"--rdzv-conf={','.join(f'{name}={value}' for name, value in settings.items())}", *rank]
