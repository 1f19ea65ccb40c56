"""Newer Jobs, as Kubernetes 1.20 can run them: one Job for each index of an Indexed Job, and no reasons for failures.

Each pod gets the same fields as from the controller of Indexed Jobs: its name, its number as a variable, annotation
and label, and the job's name as a label. Only tests use this.
"""

import copy
from collections.abc import Iterable
from typing import Any

import yaml

INDEX, JOB = "batch.kubernetes.io/job-completion-index", "job-name"
_USED = {"backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "template"}
_SAID_OTHERWISE = {"completionMode", "completions", "parallelism"}
_DROPPED = {"podFailurePolicy"}  # what 1.20 cannot do: any failure counts, so tests say how many may be


def lowered(manifest: str) -> str:
    """Return the same objects for Kubernetes 1.20. Raises ValueError if something would be lost."""
    objects = (each for each in yaml.safe_load_all(manifest) if each)
    return yaml.safe_dump_all([lower for each in objects for lower in _lowered(each)], sort_keys=False)


def _lowered(each: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if each["kind"] != "Job":
        return [each]
    spec = each["spec"]
    if lost := spec.keys() - _USED - _SAID_OTHERWISE - _DROPPED:
        raise ValueError(f"Kubernetes 1.20 cannot be told this of a Job: {', '.join(sorted(lost))}")
    pod_spec = {key: value for key, value in spec.items() if key in _USED}
    if spec.get("completionMode") != "Indexed":
        return [{**each, "spec": pod_spec}]
    if spec["parallelism"] != spec["completions"]:
        raise ValueError("only pods that all run at one time")
    return [_of_index(each, pod_spec, index) for index in range(spec["completions"])]


def _of_index(job: dict[str, Any], spec: dict[str, Any], index: int) -> dict[str, Any]:
    name = job["metadata"]["name"]
    selected = {"manualSelector": True, "selector": {"matchLabels": {INDEX: str(index), JOB: name}}}
    whole = spec | {"template": template_of(job, index)} | selected
    return {**job, "metadata": {**job["metadata"], "name": f"{name}-{index}"}, "spec": whole}


def template_of(job: dict[str, Any], index: int) -> dict[str, Any]:
    """The pod of an Indexed Job's index, as its controller makes it of the template."""
    template: dict[str, Any] = copy.deepcopy(job["spec"]["template"])
    name = job["metadata"]["name"]
    marks, pod = template["metadata"], template["spec"]
    marks.setdefault("annotations", {})[INDEX] = str(index)
    marks.setdefault("labels", {}).update({INDEX: str(index), JOB: name})
    pod["hostname"] = f"{name}-{index}"
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        container["env"] = [{"name": "JOB_COMPLETION_INDEX", "value": str(index)}, *container.get("env", ())]
    return template
