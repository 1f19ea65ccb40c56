"""Smoke tests on hosts: a node of a job is a host, its command runs there by ssh, and ends there when it ends here."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.smoke_jobs import Job
from torchbake.checks.smoke_run import Look, Session
from torchbake.core.plain_text import last_line
from torchbake.core.problem import Problem
from torchbake.core.processes import Finished, Process, watch
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

    def start(out: IO[bytes], err: IO[bytes]) -> Process:
        process = subprocess.Popen(host.words, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True)
        threading.Thread(target=_feed, args=(process, request.sent), daemon=True).start()
        return process

    return _ended(host, watch(start, _end, limit=limit, stopping=stopping))


def _ended(host: SshHost, done: Finished) -> Ended:
    return Ended.of(done, host.name, problem="" if done.late else _problem(host, done))


def _problem(host: SshHost, done: Finished) -> str:
    """Why nothing was started there; empty when something was."""
    last = last_line(done.stderr)
    if done.code == CONNECTION_FAILED:
        return f"ssh cannot log in as {host.user}: {last}"
    lacks_python = done.code in NO_PYTHON and host.python in last
    return f"there is no {host.python} that {host.user} may run" if lacks_python else ""


def _feed(process: Process, data: bytes) -> None:
    """Into a pipe that stays open; a host that cannot be reached takes nothing, and says so at its end."""
    assert process.stdin
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(data)
        process.stdin.flush()


def _end(process: Process) -> None:
    """The end of stdin ends what runs on the host; ssh itself is killed only where that does not help.

    It alone and not its group: there may be the proxy of a connection that it keeps for others.
    """
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
