"""Smoke tests on hosts: a node of a job is a host, its command runs there by ssh, and ends there when it ends here."""

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.smoke_jobs import Job
from torchbake.checks.smoke_run import Look, Session
from torchbake.core.problem import Problem
from torchbake.engine.containers import Node
from torchbake.engine.runner import Ended
from torchbake.hosts.ssh import CONNECTION_FAILED, NO_PYTHON, Request, SshHost

_GRACE = 15  # seconds that a host gets to end what runs there
_LATER = 1.0  # seconds between the others' start and the master's, or the other way round
_LOOKING = 60  # seconds that a host may take to say what is there


class Facts(BaseModel):
    """What a host says of itself. ``address`` is where ssh reached it, as it sees it itself; ``torch``: version.py."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    python: str
    torch: str
    record: Mapping[str, str] = Field(default_factory=dict)
    address: str
    port: int
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OverSsh:
    """Where payloads run: these hosts, the first of them the master of a job. ``port`` is free there."""

    hosts: tuple[SshHost, ...]
    master: str
    port: int
    archive: bytes
    gpu_off: bool
    session: Session
    toolbox = "."  # the folder where the archive is unpacked is the command's own

    def run(self, job: Job, nodes: Sequence[Node], limit: int, on_look: Look) -> tuple[Ended, ...]:
        on_look(f"it runs on {', '.join(host.name for host in self.hosts)}")
        order = job.layout.order if job.layout else None
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            ended = [
                pool.submit(self._one, host, node, limit, _delay(number, order))
                for number, (host, node) in enumerate(zip(self.hosts, nodes, strict=False))
            ]
        return tuple(each.result() for each in ended)

    def _one(self, host: SshHost, node: Node, limit: int, delay: float) -> Ended:
        if self.session.stopping.wait(delay):
            raise KeyboardInterrupt
        port = {"MASTER_PORT": str(self.port)} if "NNODES" in node.env else {}
        off = {"CUDA_VISIBLE_DEVICES": ""} if self.gpu_off else {}
        request = Request(command=node.command, env={**node.env, **port, **off}, archive=self.archive)
        return call(host, request, limit, self.session.stopping)


def _delay(number: int, order: str | None) -> float:
    late = {"workers-first": number == 0, "master-first": number > 0}.get(order or "", False)
    return _LATER if late else 0


def call(host: SshHost, request: Request, limit: float, stopping: threading.Event) -> Ended:
    """Run a request on a host to its end. Raises KeyboardInterrupt, once it has ended there, when all is to stop."""
    started, late = time.monotonic(), False
    with tempfile.TemporaryDirectory(prefix="torchbake-") as folder:
        said = Path(folder, "stdout"), Path(folder, "stderr")
        with said[0].open("wb") as out, said[1].open("wb") as err:
            process = subprocess.Popen(
                host.words, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
            )  # fmt: skip
            threading.Thread(target=_feed, args=(process, request.sent), daemon=True).start()
            try:
                while process.poll() is None and not late:
                    if stopping.wait(0.05):
                        raise KeyboardInterrupt
                    late = time.monotonic() - started > limit
            finally:
                _end(process)
        stdout, stderr = (path.read_text(errors="replace") for path in said)
    return _ended(host, process.returncode, time.monotonic() - started, stdout, stderr, late=late)


def _ended(host: SshHost, code: int, seconds: float, stdout: str, stderr: str, *, late: bool) -> Ended:
    problem = "" if late else _problem(host, code, stderr)
    return Ended(
        name=host.name, code=code if code >= 0 else 128 - code, seconds=round(seconds, 3), at=time.time(),
        stdout=stdout, stderr=stderr, timed_out=late, problem=problem,
    )  # fmt: skip


def _problem(host: SshHost, code: int, stderr: str) -> str:
    """Why nothing was started there; empty when something was."""
    last = (stderr.strip().splitlines() or ["it said nothing"])[-1].strip()
    if code == CONNECTION_FAILED:
        return f"ssh does not get in as {host.user}: {last}"
    return f"there is no {host.python} that {host.user} may run" if code in NO_PYTHON and host.python in last else ""


def _feed(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Into a pipe that stays open; a host that cannot be reached takes nothing, and says so at its end."""
    assert process.stdin
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(data)
        process.stdin.flush()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The end of stdin ends what runs on the host; ssh itself is killed only where that does not help."""
    assert process.stdin
    with contextlib.suppress(OSError, ValueError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    if process.poll() is None:
        process.kill()
    process.wait()


def look(host: SshHost, stopping: threading.Event) -> Facts | Problem:
    """What is on a host, or why nobody can tell."""
    ended = call(host, Request(), _LOOKING, stopping)
    if ended.problem:
        return Problem(reason=ended.problem, remedy=_remedy(ended))
    try:
        facts = Facts.model_validate(json.loads(ended.stdout.strip().splitlines()[-1]))
    except (ValueError, LookupError, ValidationError):
        return Problem(reason=f"its Python {ended.how}: {ended.last_words}")
    return facts if facts.torch else Problem(reason="its sandbox has no torch", remedy=_APPLY)


_APPLY = "Run: nox -s host -- apply INVENTORY"


def _remedy(ended: Ended) -> str:
    return "Try: ssh -o BatchMode=yes HOST true" if ended.code == CONNECTION_FAILED else _APPLY
