"""Run smoke tests on hosts over ssh: each node of a job is a host, and its command ends with the connection."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.smoke_jobs import SmokeJob
from torchbake.checks.smoke_run import Look, Session
from torchbake.core.plain_text import last_line
from torchbake.core.problem import Problem
from torchbake.core.processes import Process, ProcessResult, watch
from torchbake.engine.containers import ContainerNode
from torchbake.engine.runner import ContainerEnd
from torchbake.hosts.ssh import CONNECTION_FAILED, NO_PYTHON, SshHost, SshRequest
from torchbake.ui.command import Command

_GRACE = 15  # Seconds until ssh is killed after its stdin was closed.
_LATER = 1.0  # Seconds between the start of the master and of the workers, in either order.
_LOOKING = 60  # Seconds that a host may take to report its facts.
_APPLY = f"Run: {Command('host', 'apply INVENTORY')}"


class Facts(BaseModel):
    """Facts that a host reports: the ``address`` at which ssh reached it, and the text of version.py as ``torch``."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    python: str
    torch: str
    record: Mapping[str, str] = Field(default_factory=dict)
    address: str
    port: int
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OverSsh:
    """The hosts that run payloads. The first host is the master of a job, and has the free ``port``."""

    hosts: tuple[SshHost, ...]
    master: str
    port: int
    archive: bytes
    gpu_off: bool
    session: Session
    toolbox = "."  # the archive is unpacked in the command's working directory

    def run(self, job: SmokeJob, nodes: Sequence[ContainerNode], limit: int, on_look: Look) -> tuple[ContainerEnd, ...]:
        on_look(f"it runs on {', '.join(host.name for host in self.hosts)}")
        order = job.layout.order if job.layout else None
        pairs = enumerate(zip(self.hosts, nodes, strict=False))
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            futures = [pool.submit(self._one, host, node, limit, _delay(i, order)) for i, (host, node) in pairs]
        return tuple(each.result() for each in futures)

    def _one(self, host: SshHost, node: ContainerNode, limit: int, delay: float) -> ContainerEnd:
        if self.session.stopping.wait(delay):
            raise KeyboardInterrupt
        port = {"MASTER_PORT": str(self.port)} if "NNODES" in node.env else {}
        off = {"CUDA_VISIBLE_DEVICES": ""} if self.gpu_off else {}
        request = SshRequest(command=node.command, env={**node.env, **port, **off}, archive=self.archive)
        return call(host, request, limit, self.session.stopping)


def _delay(number: int, order: str | None) -> float:
    late = {"workers-first": number == 0, "master-first": number > 0}.get(order or "", False)
    return _LATER if late else 0


def call(host: SshHost, request: SshRequest, limit: float, stopping: threading.Event) -> ContainerEnd:
    """Run a request on a host to its end. If ``stopping`` is set, end it there and raise KeyboardInterrupt."""

    def start(out: IO[bytes], err: IO[bytes]) -> Process:
        process = subprocess.Popen(host.words, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True)
        threading.Thread(target=_feed, args=(process, request.encode), daemon=True).start()
        return process

    return _end_of(host, watch(start, _end, limit=limit, stopping=stopping))


def _end_of(host: SshHost, result: ProcessResult) -> ContainerEnd:
    return ContainerEnd.of(result, host.name, problem="" if result.late else _problem(host, result))


def _problem(host: SshHost, result: ProcessResult) -> str:
    """Return the reason why no command was started on the host; "" if it was."""
    last = last_line(result.stderr)
    if result.code == CONNECTION_FAILED:
        return f"ssh cannot log in as {host.user}: {last}"
    lacks_python = result.code in NO_PYTHON and host.python in last
    return f"there is no {host.python} that {host.user} may run" if lacks_python else ""


def _feed(process: Process, data: bytes) -> None:
    """Write data to stdin and keep it open. If the host cannot be reached, ssh reports that at its end."""
    assert process.stdin
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(data)
        process.stdin.flush()


def _end(process: Process) -> None:
    """Close stdin, which ends the command on the host. If ssh does not end too, kill it.

    Its process group is spared, as it may have the proxy of a connection that ssh shares.
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
    """Ask a host for its facts, or return the problem."""
    end = call(host, SshRequest(), _LOOKING, stopping)
    if end.problem:
        connect = "Try: ssh -o BatchMode=yes HOST true"
        return Problem(reason=end.problem, remedy=connect if end.code == CONNECTION_FAILED else _APPLY)
    try:
        facts = Facts.model_validate(json.loads(end.stdout.strip().splitlines()[-1]))
    except (ValueError, LookupError, ValidationError):
        return Problem(reason=f"its Python {end.how}: {end.last_words}")
    return facts if facts.torch else Problem(reason="its sandbox has no torch", remedy=_APPLY)
