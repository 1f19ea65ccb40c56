"""Helm: values of the chart `charts/pytorch`, which then creates the objects of the target kubernetes. Pure.

The values also set the chart's choices that differ from `job show kubernetes`: the probes, and the name of the Job.
"""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs, cannot
from torchbake.jobs.model import DISTRIBUTED, STANDALONE, Job
from torchbake.jobs.targets import kubernetes
from torchbake.jobs.targets._pod import split_contents
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, shm_of
from torchbake.oci.reference import names_host

NAME = "helm"
ABOUT = "values of the Helm chart, which creates the same objects as kubernetes"
MOST_NODES = kubernetes.MOST_NODES
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (
    *kubernetes.CANNOT,
    *cannot(("command", "workdir"), "these values start `run` in the image's working folder; use kubernetes"),
    *cannot(("suspend", "managedBy", "queue"), "the chart has no value for it; use kubernetes"),
)
NEEDS: tuple[Needs, ...] = kubernetes.NEEDS


def render(task: Task) -> str:
    head = f"helm upgrade --install {task.job.name} CHART --values THIS_FILE"
    return documents([values(task)], head=head)


def values(task: Task) -> dict[str, Any]:
    """Return the values that differ from the chart's defaults, or whose defaults may change."""
    job = task.job
    pod = kubernetes.objects(task)[-1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    whole = {
        "nameOverride": job.name,
        "fullnameOverride": job.name,
        "restartOnUpgrade": False,
        "image": _image(task.image) | {"pullSecrets": list(job.pull_secrets)},
        **_group(job),
        "entrypoint": without_nothing({"file": job.script, "module": job.module, "args": list(job.args)}),
        **_files(task),
        "extraEnvVars": [each for each in container["env"] if each["name"] in _own_variables(job)],
        "restarts": job.restarts,
        "timeouts": {"rendezvous": job.timeouts.rendezvous, "group": job.timeouts.group, "stop": job.timeouts.stop},
        "activeDeadlineSeconds": job.timeouts.job,
        **_resources(job),
        **_volumes(task, pod),
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
        "securityContext": {"enabled": False} if job.account else {"fsGroup": task.uid, "runAsUser": task.uid},
        "serviceAccount": without_nothing({"name": job.service_account}),
        "livenessProbe": {"enabled": False},
        "customReadinessProbe": container.get("readinessProbe"),
        **{key: pod.get(key) for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")},
        "commonLabels": job.labels,
        "commonAnnotations": job.annotations,
    }
    return without_nothing(whole)


def _own_variables(job: Job) -> set[str]:
    """Return the variables that the chart does not set itself. It knows nothing of files in the image."""
    return {*job.env, *job.secrets, *(["JOB_DIR"] if job.files.layer else [])}


def _image(text: str) -> dict[str, str]:
    """Split a reference into parts, from which the chart builds the same text again."""
    rest, _, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, tag = rest, ""
    host, _, path = name.partition("/") if names_host(name) else ("", "", name)
    return {"registry": host, "repository": path, "tag": tag, "digest": digest}


def _group(job: Job) -> dict[str, Any]:
    if not job.distributed:
        return {"mode": STANDALONE}
    count = {"elastic": job.elastic} if job.elastic else {"worldSize": job.nodes}
    return {"mode": DISTRIBUTED, **count, "processesPerNode": job.per_node, "port": job.port}


def _files(task: Task) -> dict[str, Any]:
    files = task.job.files
    texts, binaries = split_contents(task.contents)
    git = {"enabled": True, "repository": files.git.repository, "revision": files.git.revision} if files.git else {}
    return {"configMap": files.config_map, "files": texts, "binaryFiles": binaries, "cloneFilesFromGit": git}


def _resources(job: Job) -> dict[str, Any]:
    resources = job.resources
    amounts = without_nothing({"cpu": resources.cpu, "memory": resources.memory})
    both = {"requests": dict(amounts), "limits": dict(amounts)} if amounts else {}
    return {"resources": both, "gpu": resources.gpu or None, "rdma": resources.rdma, "shmSize": shm_of(job)}


def _volumes(task: Task, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the job's volumes by the keys of its file, without the claim that the chart would create."""
    volumes = [
        volume.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True) for volume in task.job.volumes
    ]
    fixing = {}
    if task.fixed:
        fixing = {"image": _image(task.init_image), "resources": pod["initContainers"][0]["resources"]}
    return {"persistence": {"enabled": False}, "volumes": volumes, "volumePermissions": fixing}
