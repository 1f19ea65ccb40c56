"""docker compose: a container a service. It ends as its node 0 ends, and nothing but volumes stays.

`up --exit-code-from` would end all services as soon as any has ended, and so cut off the others' last words. So the
services are started in the background, and looked at by docker itself.

Sources: docker/compose, docs/reference; the labels of its containers in pkg/api/labels.go.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from torchbake.jobs.launchers import Check, Command, Seen, Stream, Tool
from torchbake.jobs.task import Task, grace_of, node_name

_LABEL = "com.docker.compose"
_ENDED = ("exited", "dead")


class Compose:
    KEEPS = frozenset({"timeouts.job"})

    def __init__(self, task: Task, manifest: Path, text: str) -> None:
        self._job = task.job
        self._compose = ("docker", "compose", "--file", str(manifest))
        self.tools = (Tool(command=("docker", "compose", "version"), what="docker compose"),)

    def checks(self) -> Sequence[Check]:
        there = ("docker", "ps", "--all", "--quiet", "--filter", f"label={_LABEL}.project={self._job.name}")
        return (Check(command=there, refuse=self._taken),)

    def prepare(self) -> Sequence[Command]:
        """All of it: pulling and making volumes writable take long, and `down` removes what was begun."""
        return ((*self._compose, "up", "--detach"),)

    def _taken(self, said: str) -> str:
        name = self._job.name
        return (
            f"There are containers of a project {name} already: docker compose -p {name} down" if said.strip() else ""
        )

    def submit(self) -> Command:
        return (*self._compose, "ps", "--quiet")

    def submitted(self, said: str) -> None:
        """The project's name is known."""

    def looks(self) -> Sequence[Command]:
        state = f'{{"service": {{{{json (.Label "{_LABEL}.service")}}}}, "state": {{{{json .State}}}}, '
        state += '"status": {{json .Status}}}'
        words = ("docker", "ps", "--all", "--no-trunc", "--filter", f"label={_LABEL}.project={self._job.name}")
        return ((*words, "--format", state),)

    def read(self, look: int, said: str) -> Seen:
        found = {each["service"]: each for each in map(json.loads, said.splitlines())}
        first = found[node_name(self._job, 0)]
        code = code_of(first["status"]) if first["state"] in _ENDED else None
        running = any(each["state"] not in _ENDED for each in found.values())
        logs = (*self._compose, "logs", "--follow")
        stream = Stream(name="logs", command=logs, running=running, again=("--since", "{seconds}s"))
        return Seen(code=code, streams=(stream,))

    def cancel(self) -> Sequence[Command]:
        return ((*self._compose, "down", "--timeout", str(grace_of(self._job))),)

    clean = cancel


def code_of(status: str) -> int:
    """The exit code in `Exited (3) 2 seconds ago`."""
    return int(status.partition("(")[2].partition(")")[0])
