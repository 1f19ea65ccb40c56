"""docker compose: one container for each service. The job's exit code is that of node 0; only volumes stay.

`up --exit-code-from` would end all services as soon as one has ended, and cut off the last output of the others. So
the services are started in the background, and their state is read by docker.

Sources: docker/compose, docs/reference; the labels of its containers in pkg/api/labels.go.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from torchbake.jobs.launchers import Check, Command, JobStatus, JobStream, Launcher, Tool
from torchbake.jobs.task import Task, grace_of, node_name

_LABEL = "com.docker.compose"
_END_STATES = ("exited", "dead")


class ComposeLauncher(Launcher):
    KEEPS = frozenset({"timeouts.job"})

    def __init__(self, task: Task, manifest: Path, text: str) -> None:
        self._job = task.job
        self._compose = ("docker", "compose", "--file", str(manifest))
        self.tools = (Tool(command=("docker", "compose", "version"), what="docker compose"),)

    def checks(self) -> Sequence[Check]:
        name = self._job.name
        value = f"There are containers of a project {name} already: docker compose -p {name} down"
        command = ("docker", "ps", "--all", "--quiet", "--filter", f"label={_LABEL}.project={name}")
        return (Check(command=command, refuse=lambda output: value if output.strip() else ""),)

    def prepare(self) -> Sequence[Command]:
        """Start the whole job: pulls and permissions take long, and `down` removes an incomplete start too."""
        return ((*self._compose, "up", "--detach"),)

    def submit(self) -> Command:
        return (*self._compose, "ps", "--quiet")

    def looks(self) -> Sequence[Command]:
        state = f'{{"service": {{{{json (.Label "{_LABEL}.service")}}}}, "state": {{{{json .State}}}}, '
        state += '"status": {{json .Status}}}'
        words = ("docker", "ps", "--all", "--no-trunc", "--filter", f"label={_LABEL}.project={self._job.name}")
        return ((*words, "--format", state),)

    def read(self, look: int, output: str) -> JobStatus:
        matches = {each["service"]: each for each in map(json.loads, output.splitlines())}
        first = matches[node_name(self._job, 0)]
        code = code_of(first["status"]) if first["state"] in _END_STATES else None
        running = any(each["state"] not in _END_STATES for each in matches.values())
        logs = (*self._compose, "logs", "--follow")
        stream = JobStream(name="logs", command=logs, running=running, again=("--since", "{seconds}s"))
        return JobStatus(code=code, streams=(stream,))

    def cancel(self) -> Sequence[Command]:
        return ((*self._compose, "down", "--timeout", str(grace_of(self._job))),)


def code_of(status: str) -> int:
    """Return the exit code in `Exited (3) 2 seconds ago`."""
    return int(status.partition("(")[2].partition(")")[0])
