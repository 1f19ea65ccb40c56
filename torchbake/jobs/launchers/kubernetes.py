"""Kubernetes, by kubectl and its current context: applies the manifest, and reads the state of the Job and its pods.

A follower is started for each pod: `kubectl logs --selector` follows only running pods, and misses the later pod that
replaces a lost one.

Sources: kubernetes.io/docs/reference/kubectl; the Job's conditions, and the pods' statuses, in the API reference.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from torchbake.jobs.launchers import TIMED_OUT, Check, Command, JobStatus, JobStream, Launcher, Tool
from torchbake.jobs.targets._pod import CONTAINER
from torchbake.jobs.task import Task, grace_of

_STAYS = "PersistentVolumeClaim"  # deleting a claim deletes its data
_LABEL = "app.kubernetes.io/name"
_KILLED = (137, 143)  # exit codes of containers after SIGKILL and SIGTERM
_ENDS = ("Complete", "Failed")
_INDEX = "batch.kubernetes.io/job-completion-index"
_SOON = ("ContainerCreating", "PodInitializing")  # normal reasons to wait


class KubernetesLauncher(Launcher):
    def __init__(self, task: Task, manifest: Path, text: str) -> None:
        self._job, self._manifest = task.job, str(manifest)
        objects = list(yaml.safe_load_all(text))
        names = ((each["kind"], each["metadata"]["name"]) for each in objects)
        self._objects = [f"{kind.lower()}/{name}" for kind, name in names if kind != _STAYS]
        jobs = [each for each in objects if each["kind"] == "Job"]
        self._jobs = [each["metadata"]["name"] for each in jobs]  # one, or one for each node, in the order of nodes
        self._deciding = self._jobs[:1] if self._job.elastic else self._jobs  # an elastic job ends with its node 0
        self._label = jobs[0]["metadata"]["labels"][_LABEL]  # the job's own labels may replace it
        self.tools = (Tool(command=("kubectl", "version", "--client"), what="kubectl"),)

    def checks(self) -> Sequence[Check]:
        """Refuse if a Job of the name exists: it cannot be changed, and its state would count for this job."""
        names = [name for name in self._objects if name.startswith("job/")]
        command = ("kubectl", "get", *names, "--ignore-not-found", "--output", "name")
        return (Check(command=command, refuse=_object_of),)

    def submit(self) -> Command:
        return ("kubectl", "apply", "--server-side", "--filename", self._manifest)

    def looks(self) -> Sequence[Command]:
        return (("kubectl", "get", "jobs,pods", "--selector", f"{_LABEL}={self._label}", "--output", "json"),)

    def read(self, look: int, output: str) -> JobStatus:
        items = [item for item in json.loads(output)["items"] if _of_job(item) in self._jobs]
        pods = [item for item in items if item["kind"] == "Pod"]
        pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
        pods.sort(key=self._node)
        streams = [stream for pod in pods for stream in self._streams(pod)]
        notes = [note for pod in pods for note in _notes(pod)]
        deciding = [item for item in items if _of_job(item) in self._deciding]
        jobs = [item for item in deciding if item["kind"] == "Job"]
        return JobStatus(code=code_of(jobs, [pod for pod in pods if pod in deciding]), streams=streams, notes=notes)

    def _node(self, pod: dict[str, Any]) -> tuple[int, int]:
        """Return the number of the pod's Job, and its index in an Indexed Job."""
        index = int(pod["metadata"].get("annotations", {}).get(_INDEX, 0))
        return self._jobs.index(_of_job(pod)), index

    def _streams(self, pod: dict[str, Any]) -> Iterator[JobStream]:
        name = pod["metadata"]["name"]
        for status in _containers(pod):
            running, is_terminated = "running" in status["state"], "terminated" in status["state"]
            own = status["name"] == CONTAINER
            failed = is_terminated and bool(status["state"]["terminated"]["exitCode"])
            if failed or (own and (is_terminated or running)):
                words = ("kubectl", "logs", "--follow", f"pod/{name}", "--container", status["name"])
                prefix = ("--prefix",) if self._job.most_nodes > 1 or not own else ()
                yield JobStream(
                    name=f"{name}/{status['name']}", command=(*words, *prefix), running=running,
                    again=("--since", "{seconds}s"),
                )  # fmt: skip

    def cancel(self) -> Sequence[Command]:
        """Delete in the foreground: a Job is deleted after its pods, which get their time to save."""
        options = ("--ignore-not-found", "--cascade=foreground", "--timeout", f"{grace_of(self._job) + 60}s")
        return (("kubectl", "delete", *self._objects, *options),)


def _of_job(item: dict[str, Any]) -> str:
    """Return the name of a Job, or of a pod's Job, by the label that Kubernetes sets."""
    metadata = item["metadata"]
    return str(metadata["name"] if item["kind"] == "Job" else metadata.get("labels", {}).get("job-name", ""))


def _object_of(output: str) -> str:
    names = " ".join(line.replace(".batch", "") for line in output.split())
    return f"The cluster has this already: {names}. Remove it first: kubectl delete {names}" if names else ""


def code_of(jobs: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]) -> int | None:
    """Return 0 if each Job is complete, the script's exit code if one has failed, and None before.

    ``pods`` are in the order of nodes. A failed Job does not end the pods of other Jobs: until these have ended by
    themselves, the code is not known.
    """
    ends = [
        [each for each in job["status"].get("conditions", []) if each["type"] in _ENDS and each["status"] == "True"]
        for job in jobs
    ]
    failed = [end for matches in ends for end in matches if end["type"] == "Failed"]
    if not failed:
        return 0 if jobs and all(ends) else None
    if any(end.get("reason") == "DeadlineExceeded" for end in failed):
        return TIMED_OUT
    # The cluster marks a pod of a lost node for deletion, so it no longer counts as running.
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if any("running" in status["state"] for pod in living for status in _containers(pod)):
        return None
    statuses = [status for pod in pods for status in _containers(pod)]
    codes = [status["state"].get("terminated", {}).get("exitCode", 0) for status in statuses]
    # All nodes end with the code of the rank that failed first; the code of a killed pod is only the last resort.
    return next(iter(sorted(filter(None, codes), key=lambda code: code in _KILLED)), 1)


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _notes(pod: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons why a pod has not started."""
    name = pod["metadata"]["name"]
    for each in pod["status"].get("conditions", []):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            yield f"{name}: {each.get('reason')}: {each.get('message', '')}"
    for each in _containers(pod):
        waiting = each["state"].get("waiting", {})
        if waiting.get("reason") and waiting["reason"] not in _SOON:
            yield f"{name}: {waiting['reason']}: {waiting.get('message', '')}"
