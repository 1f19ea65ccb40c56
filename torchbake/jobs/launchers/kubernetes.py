"""Kubernetes, by kubectl and its current context: applies the manifest, and looks at the Job and its pods.

Each pod is followed by itself: `kubectl logs --selector` takes only pods that run already, and none that is made later
for one that was lost.

Sources: kubernetes.io/docs/reference/kubectl; the Job's conditions, and the pods' statuses, in the API reference.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from torchbake.jobs.launchers import TIMED_OUT, Check, Command, Seen, Stream, Tool
from torchbake.jobs.targets._pod import CONTAINER
from torchbake.jobs.task import Task, grace_of

_STAYS = "PersistentVolumeClaim"  # deleting a claim deletes its data
_LABEL = "app.kubernetes.io/name"
_KILLED = (137, 143)
_INDEX = "batch.kubernetes.io/job-completion-index"
_SOON = ("ContainerCreating", "PodInitializing")  # reasons for waiting that pass by themselves


class Kubernetes:
    KEEPS = frozenset[str]()

    def __init__(self, task: Task, manifest: Path, text: str) -> None:
        self._job, self._manifest = task.job, str(manifest)
        objects = list(yaml.safe_load_all(text))
        self._made = [_name(each) for each in objects if each["kind"] != _STAYS]
        jobs = [each for each in objects if each["kind"] == "Job"]
        self._jobs = {each["metadata"]["name"] for each in jobs}
        self._label = jobs[0]["metadata"]["labels"][_LABEL]  # the job's file may say another
        self.tools = (Tool(command=("kubectl", "version", "--client"), what="kubectl"),)

    def checks(self) -> Sequence[Check]:
        """An old Job of the name cannot be changed, and would be taken for this one."""
        names = [name for name in self._made if name.startswith("job/")]
        command = ("kubectl", "get", *names, "--ignore-not-found", "--output", "name")
        return (Check(command=command, refuse=_taken),)

    def prepare(self) -> Sequence[Command]:
        return ()

    def submit(self) -> Command:
        return ("kubectl", "apply", "--server-side", "--filename", self._manifest)

    def submitted(self, said: str) -> None:
        """The names are known."""

    def looks(self) -> Sequence[Command]:
        return (("kubectl", "get", "jobs,pods", "--selector", f"{_LABEL}={self._label}", "--output", "json"),)

    def read(self, look: int, said: str) -> Seen:
        items = [item for item in json.loads(said)["items"] if _of_job(item) in self._jobs]
        pods = [item for item in items if item["kind"] == "Pod"]
        jobs = [item for item in items if item["kind"] == "Job"]
        streams = [stream for pod in pods for stream in self._streams(pod)]
        return Seen(code=code_of(jobs, pods), streams=streams, notes=[note for pod in pods for note in _notes(pod)])

    def _streams(self, pod: dict[str, Any]) -> Iterator[Stream]:
        name = pod["metadata"]["name"]
        for status in pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", []):
            running, ended = "running" in status["state"], "terminated" in status["state"]
            own = status["name"] == CONTAINER
            failed = ended and bool(status["state"]["terminated"]["exitCode"])
            if failed or (own and (ended or running)):
                words = ("kubectl", "logs", "--follow", f"pod/{name}", "--container", status["name"])
                prefix = ("--prefix",) if self._job.most_nodes > 1 or not own else ()
                yield Stream(
                    name=f"{name}/{status['name']}", command=(*words, *prefix), running=running,
                    again=("--since", "{seconds}s"),
                )  # fmt: skip

    def cancel(self) -> Sequence[Command]:
        """In the foreground: a Job goes after its pods, which get their time."""
        patience = f"{grace_of(self._job) + 60}s"
        words = ("--ignore-not-found", "--cascade=foreground", "--timeout", patience)
        return (("kubectl", "delete", *self._made, *words),)

    clean = cancel


def _name(item: dict[str, Any]) -> str:
    return f"{item['kind'].lower()}/{item['metadata']['name']}"


def _of_job(item: dict[str, Any]) -> str:
    """The name of a Job, or that of a pod's Job, by the label that Kubernetes sets."""
    metadata = item["metadata"]
    return str(metadata["name"] if item["kind"] == "Job" else metadata.get("labels", {}).get("job-name", ""))


def _taken(said: str) -> str:
    there = " ".join(line.replace(".batch", "") for line in said.split())
    return f"The cluster has this already: {there}. Remove it first: kubectl delete {there}" if there else ""


def code_of(jobs: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]) -> int | None:
    """Of all Jobs of the job: 0 where each is complete; where one has failed, that of the script."""
    ended = [_end(job) for job in jobs]
    failed = [end for end in ended if end and end["type"] == "Failed"]
    if not failed:
        return 0 if jobs and all(ended) else None
    if any(end.get("reason") == "DeadlineExceeded" for end in failed):
        return TIMED_OUT
    return _of_the_script(pods)


def _end(job: dict[str, Any]) -> dict[str, Any] | None:
    conditions: list[dict[str, Any]] = job["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True"),
                None)  # fmt: skip


def _of_the_script(pods: Sequence[dict[str, Any]]) -> int:
    """All nodes end with the code of the rank that failed first; one that the cluster killed says less than that."""
    found = list[tuple[bool, int, int]]()
    for pod in pods:
        index = int(pod["metadata"].get("annotations", {}).get(_INDEX, 0))
        for status in pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", []):
            code = status["state"].get("terminated", {}).get("exitCode", 0)
            found += [(code in _KILLED, index, code)] if code else []
    return min(found)[2] if found else 1


def _notes(pod: dict[str, Any]) -> Iterator[str]:
    """What keeps a pod from its start."""
    name, status = pod["metadata"]["name"], pod["status"]
    for each in status.get("conditions", []):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            yield f"{name}: {each.get('reason')}: {each.get('message', '')}"
    for each in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        waiting = each["state"].get("waiting", {})
        if waiting.get("reason") and waiting["reason"] not in _SOON:
            yield f"{name}: {waiting['reason']}: {waiting.get('message', '')}"
