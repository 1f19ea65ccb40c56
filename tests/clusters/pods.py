"""Indexed Jobs, as `podman kube play` can run them: a Pod for each index. For tests alone.

Each pod equals the controller's, except for the names of its emptyDirs. Podman has no headless Service, so
an alias in podman's network takes its place. `backoffLimit` and `podFailurePolicy` are dropped. No controller of podman
would end or restart a job.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from tests.clusters.lowering import template_of

_USED = {"template", "completionMode", "completions", "parallelism"}
_DROPPED = {"backoffLimit", "podFailurePolicy"}
# Of these podman knows some, and passes over what no job's result hangs on; see test_podman.py.
_OF_PODS = {
    "automountServiceAccountToken", "containers", "enableServiceLinks", "hostname", "restartPolicy", "securityContext",
    "subdomain", "terminationGracePeriodSeconds", "volumes",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Play:
    """One input of `podman kube play`: its text, and the names of its pod, its network alias and its container."""

    name: str
    alias: str
    container: str
    text: str


def pods(manifest: str) -> list[Play]:
    """Return the pods by index. Raises ValueError if something would be lost."""
    objects = [each for each in yaml.safe_load_all(manifest) if each]
    (job,) = (each for each in objects if each["kind"] == "Job")
    _check(job, objects)
    others = [each for each in objects if each["kind"] == "ConfigMap"]
    return [_of_index(job, others, index) for index in range(job["spec"]["completions"])]


def _check(job: dict[str, Any], objects: Iterable[dict[str, Any]]) -> None:
    spec = job["spec"]
    _refuse("objects", {each["kind"] for each in objects} - {"ConfigMap", "Job", "Service"})
    _refuse("Jobs", spec.keys() - _USED - _DROPPED)
    _refuse("pods", spec["template"]["spec"].keys() - _OF_PODS)
    if any(each["kind"] == "Service" and each["spec"].get("clusterIP") != "None" for each in objects):
        raise ValueError("only headless Services, which are names alone")
    if spec.get("completionMode") != "Indexed":
        raise ValueError("only Indexed Jobs: podman takes others as they are")
    if spec["parallelism"] != spec["completions"]:
        raise ValueError("only pods that all run at one time")


def _refuse(what: str, lost: Iterable[str]) -> None:
    if names := ", ".join(sorted(lost)):
        raise ValueError(f"podman cannot be told this of {what}: {names}")


def _of_index(job: dict[str, Any], others: list[dict[str, Any]], index: int) -> Play:
    template, name = template_of(job, index), f"{job['metadata']['name']}-{index}"
    pod = template["spec"]
    _keep_apart(pod, index)
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}, "spec": pod}
    (container,) = pod["containers"]
    return Play(
        name=name, alias=f"{name}.{pod['subdomain']}", container=f"{name}-{container['name']}",
        text=yaml.safe_dump_all([*others, whole], sort_keys=False),
    )  # fmt: skip


def _keep_apart(pod: dict[str, Any], index: int) -> None:
    """To podman an emptyDir is a volume of that name, which all pods would share."""
    volumes = pod.get("volumes", [])
    own = {each["name"] for each in volumes if "emptyDir" in each}
    mounts = [mount for container in pod["containers"] for mount in container.get("volumeMounts", ())]
    for each in (*volumes, *mounts):
        if each["name"] in own:
            each["name"] += f"-{index}"
