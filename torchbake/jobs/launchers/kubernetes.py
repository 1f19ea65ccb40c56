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
        self._jobs = [each["metadata"]["name"] for each in jobs]  # one, or one a node, in the order of nodes
        self._deciding = self._jobs[:1] if self._job.elastic else self._jobs  # an elastic one ends as its node 0 ends
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
        pods = sorted((item for item in items if item["kind"] == "Pod"), key=_made_at, reverse=True)
        pods.sort(key=self._node)
        streams = [stream for pod in pods for stream in self._streams(pod)]
        notes = [note for pod in pods for note in _notes(pod)]
        deciding = [item for item in items if _of_job(item) in self._deciding]
        jobs = [item for item in deciding if item["kind"] == "Job"]
        return Seen(code=code_of(jobs, [pod for pod in pods if pod in deciding]), streams=streams, notes=notes)

    def _node(self, pod: dict[str, Any]) -> tuple[int, int]:
        """Its number, in an Indexed Job and among Jobs of a pod each."""
        index = int(pod["metadata"].get("annotations", {}).get(_INDEX, 0))
        return self._jobs.index(_of_job(pod)), index

    def _streams(self, pod: dict[str, Any]) -> Iterator[Stream]:
        name = pod["metadata"]["name"]
        for status in _containers(pod):
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


def _made_at(item: dict[str, Any]) -> str:
    return str(item["metadata"].get("creationTimestamp", ""))


def _of_job(item: dict[str, Any]) -> str:
    """The name of a Job, or that of a pod's Job, by the label that Kubernetes sets."""
    metadata = item["metadata"]
    return str(metadata["name"] if item["kind"] == "Job" else metadata.get("labels", {}).get("job-name", ""))


def _taken(said: str) -> str:
    there = " ".join(line.replace(".batch", "") for line in said.split())
    return f"The cluster has this already: {there}. Remove it first: kubectl delete {there}" if there else ""


def code_of(jobs: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]) -> int | None:
    """Of Jobs, and of their pods in the order of nodes: 0 where each is complete; where one has failed, the script's.

    One that failed tells the other Jobs nothing, whose pods end by themselves: until then the code is not known.
    """
    ended = [_end(job) for job in jobs]
    failed = [end for end in ended if end and end["type"] == "Failed"]
    if not failed:
        return 0 if jobs and all(ended) else None
    if any(end.get("reason") == "DeadlineExceeded" for end in failed):
        return TIMED_OUT
    return None if any(map(_runs, pods)) else _of_the_script(pods)


def _end(job: dict[str, Any]) -> dict[str, Any] | None:
    conditions: list[dict[str, Any]] = job["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True"),
                None)  # fmt: skip


def _runs(pod: dict[str, Any]) -> bool:
    """Unless the cluster ends it already, be it on a node that is lost."""
    return "deletionTimestamp" not in pod["metadata"] and any("running" in each["state"] for each in _containers(pod))


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _of_the_script(pods: Sequence[dict[str, Any]]) -> int:
    """All nodes end with the code of the rank that failed first; one that the cluster killed says less than that."""
    statuses = [status for pod in pods for status in _containers(pod)]
    codes = [status["state"].get("terminated", {}).get("exitCode", 0) for status in statuses]
    failed = sorted(filter(None, codes), key=lambda code: code in _KILLED)
    return failed[0] if failed else 1


def _notes(pod: dict[str, Any]) -> Iterator[str]:
    """What keeps a pod from its start."""
    name = pod["metadata"]["name"]
    for each in pod["status"].get("conditions", []):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            yield f"{name}: {each.get('reason')}: {each.get('message', '')}"
    for each in _containers(pod):
        waiting = each["state"].get("waiting", {})
        if waiting.get("reason") and waiting["reason"] not in _SOON:
            yield f"{name}: {waiting['reason']}: {waiting.get('message', '')}"
