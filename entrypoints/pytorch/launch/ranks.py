"""This node's ranks: started by `torchrun` or straight, watched, and ended with all that they started."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from .contract import Contract
from .failure import Failure
from .health import is_alive
from .state import read_json

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_ELASTIC_RESTARTS = 3  # what torchrun's own examples of elastic jobs use


class Ranks:
    """The processes of one node. ``folder`` holds a file for each rank, written by rank.py."""

    def __init__(
        self, contract: Contract, folder: Path, launcher: list[str], env: Mapping[str, str], cwd: Path
    ) -> None:
        self._contract = contract
        self._folder = folder
        self._seen: set[str] = set()
        self._failed = False
        self._killed = False
        # Orphans come to us, not to PID 1, so that none outlives its job.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._launcher = subprocess.Popen(launcher, env=dict(env), cwd=cwd, start_new_session=True)

    def poll(self) -> list[Failure]:
        """The failures since the last call."""
        self._reap()
        if self._contract.elastic:
            return []  # torchrun decides there what a failure is
        failures = []
        for path in sorted(self._folder.glob("rank-*.json")):
            values = read_json(path)
            if path.name in self._seen or values is None:
                continue
            if "code" not in values and not is_alive(values["pid"]):
                values = {**values, "code": 137, "words": [], "told": self._killed}
            if "code" in values:
                self._seen.add(path.name)
                if values["code"]:
                    self._failed = True
                    failures.append(self._failure(path, values))
        return failures

    @property
    def running(self) -> tuple[int, ...]:
        """The ranks that have not ended."""
        files = [(path, read_json(path)) for path in self._folder.glob("rank-*.json")]
        return tuple(sorted(_rank(path) for path, values in files if values and "code" not in values))

    @property
    def all_over(self) -> bool:
        """Whether every rank of a static job has ended; the launcher may still be talking about it."""
        files = [read_json(path) for path in self._folder.glob("rank-*.json")]
        ended = sum(values is not None and "code" in values for values in files)
        return not self._contract.elastic and ended == self._contract.nproc_per_node

    @property
    def ended(self) -> bool:
        return self._launcher.poll() is not None

    def outcome(self) -> list[Failure]:
        """When ended: what the launcher itself has to say, if no rank has said it."""
        code = self._launcher.returncode
        code = 128 - code if code < 0 else code
        if not code or self._failed or (self._killed and any(self._folder.glob("rank-*.json"))):
            return []
        if self._killed:
            return [Failure(node=self._contract.node_rank, code=code, told=True)]
        return self._last_attempt() or [
            Failure(node=self._contract.node_rank, code=code, why="the launcher ended before its ranks did")
        ]

    def signal(self, number: int) -> None:
        """Send a signal to each rank's script, by way of rank.py."""
        for path in self._folder.glob("rank-*.json"):
            values = read_json(path)
            if values and "code" not in values:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(values["pid"], number)
        if not self.running and not self.ended:
            self._launcher.send_signal(number)

    def kill(self) -> None:
        """End all that is left, whatever session or process group it hides in."""
        self._killed = True
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._launcher.wait()
        self._reap()

    def _reap(self) -> None:
        """Bury adopted orphans; the launcher is left to Popen, which must see its exit code."""
        for pid in children(os.getpid()):
            if pid != self._launcher.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _last_attempt(self) -> list[Failure]:
        """The failures of an elastic job's last attempt in which a rank failed by itself, in order."""
        files = sorted(self._folder.glob("rank-*.json"), key=lambda path: (_attempt(path), path.stat().st_mtime))
        said = [(path, read_json(path) or {}) for path in files]
        by_themselves = [(path, values) for path, values in said if values.get("code") and not values["told"]]
        last = max((_attempt(path) for path, _ in by_themselves), default=0)
        return [self._failure(path, values) for path, values in by_themselves if _attempt(path) == last]

    def _failure(self, path: Path, values: Mapping[str, object]) -> Failure:
        rank, code = _rank(path), int(str(values["code"]))
        why = "killed for lack of memory: raise the container's limit" if code == 137 and out_of_memory() else ""
        words = values["words"]
        assert isinstance(words, list)
        return Failure(
            node=self._contract.node_rank,
            rank=rank,
            local_rank=int(str(values["local_rank"])),
            code=code,
            why=why,
            words=tuple(words),
            told=bool(values["told"]),
        )


def command_of(contract: Contract, folder: Path, command: tuple[str, ...]) -> list[str]:
    """How the ranks of this node are started."""
    rank = [sys.executable, "-I", "-S", str(Path(__file__).with_name("rank.py")), str(folder), *command]
    if not contract.elastic and contract.nproc_per_node == 1:
        return rank
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--monitor-interval=0.2"]
    torchrun += [f"--nproc-per-node={contract.nproc_per_node}"]
    if contract.elastic:
        where = f"{contract.master_addr}:{contract.master_port}"
        least, most = contract.elastic
        torchrun += [f"--nnodes={least}:{most}", "--rdzv-backend=c10d", f"--rdzv-endpoint={where}", "--rdzv-id=run"]
        return [*torchrun, f"--max-restarts={_ELASTIC_RESTARTS}", *rank]
    timeout = max(1, round(contract.rendezvous_timeout))
    torchrun += [f"--nnodes={contract.nnodes}", f"--node-rank={contract.node_rank}", "--max-restarts=0"]
    torchrun += [f"--master-addr={contract.master_addr}", f"--master-port={contract.master_port}"]
    return [*torchrun, f"--rdzv-conf=timeout={timeout}", *rank]


def out_of_memory() -> bool:
    """Whether the kernel has killed in this container for lack of memory (cgroup v2 or v1)."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            return bool(re.search(r"^oom_kill [1-9]", Path("/sys/fs/cgroup", name).read_text(), re.MULTILINE))
    return False


def children(pid: int) -> list[int]:
    """Direct children, zombies too."""
    return [child for child, parent in _parents() if parent == pid]


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first."""
    parents = dict(_parents())
    found, layer = [], {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        found += sorted(layer)
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _rank(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _attempt(path: Path) -> int:
    return int(path.stem.split("-")[2])
