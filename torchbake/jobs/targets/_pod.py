"""The pod of a node, for the Job of Kubernetes and the objects of operators. Pure.

It passes Pod Security "restricted" unless the job has a volume with `hostPath`, or with `permissions: fix`, whose
container runs as root with three capabilities.
"""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from torchbake.core.paths import JOB_FOLDER
from torchbake.jobs.expressible import OF_KUBERNETES, Cannot, cannot
from torchbake.jobs.field_types import Volume
from torchbake.jobs.model import Job
from torchbake.jobs.targets.yaml_text import without_nothing
from torchbake.jobs.task import CAPABILITIES, Task, claim_of, grace_of, shm_of, workdir_of

CONTAINER = "pytorch"
MASTER = "master"  # the port that nodes must reach
_GPU = "nvidia.com/gpu"
_QUEUE = "kueue.x-k8s.io/queue-name"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"  # a pod's number in an Indexed Job
_TCP = {"protocol": "TCP"}  # the default; until 1.20 a server-side apply requires it, as it is a part of the key
_FILES, _SHM, _TMP = "job-files", "shm", "tmp"
_SMALL = {"cpu": "250m", "memory": "64Mi"}  # volume-permissions uses a few megabytes


def host_names(host: str, last: Callable[[Job], str], *, service: Callable[[Job], bool] = lambda _: True) -> Cannot:
    """Names of jobs that are impossible for pods, or for the Service by which they find each other.

    The longest host name of a pod is the result of ``last``, and has the form ``host`` in messages.
    """
    return Cannot(
        key="name",
        why=f"a pod's host is {host} and takes 63 characters, and a Service's name begins with a letter: shorten or "
        "change it",
        when=lambda job: len(last(job)) > 63 or (job.name[0].isdigit() and service(job)),
        only=f"that makes {host} longer than 63 characters, or begins with a digit",
    )


def security(task: Task) -> str:
    """Return the sentence for administrators about Pod Security."""
    if not task.ours:
        return 'Pod Security "restricted" would refuse this: nothing is known of the user of the image.'
    roots = "volume-permissions runs as root, with CHOWN, FOWNER and DAC_OVERRIDE" if task.fixed else ""
    hosts = "a volume is a hostPath" if any(volume.host_path for volume in task.job.volumes) else ""
    but = " and ".join(filter(None, (roots, hosts)))
    return f'Pod Security "restricted"{" would refuse this: " + but if but else " takes this"}.'


def metadata(job: Job, name: str) -> dict[str, Any]:
    """Return the metadata of an object: its name, and the job's labels and annotations."""
    return {"name": name, **marks(job)}


def queue_labels(job: Job, name: str) -> dict[str, Any]:
    """Return the metadata of the object that Kueue admits, with its queue."""
    matches = metadata(job, name)
    queue = {_QUEUE: job.queue} if job.queue else {}
    return matches | {"labels": matches["labels"] | queue}


def marks(job: Job) -> dict[str, Any]:
    """Return the job's labels and annotations, with the labels that Kubernetes recommends."""
    labels = {"app.kubernetes.io/name": job.name, "app.kubernetes.io/managed-by": "torchbake"} | job.labels
    return without_nothing({"labels": labels, "annotations": job.annotations})


def without(*keys: str, why: str) -> tuple[Cannot, ...]:
    """Keys of Kubernetes that an object has no place for."""
    return cannot((key for key in OF_KUBERNETES if key in keys), why)


def managers(own: str) -> Cannot:
    """Controllers that an operator of Kubeflow does not accept: all but itself and Kueue's."""
    used_names = (own, "kueue.x-k8s.io/multikueue")
    return Cannot(
        key="managedBy",
        why=f"the operator takes {' and '.join(used_names)} alone",
        when=lambda job: job.managed_by not in used_names,
        only="of another controller",
    )


def template(
    task: Task,
    env: Mapping[str, str],
    *,
    port_name: str = "",
    container: str = CONTAINER,
    fields: Mapping[str, str] | None = None,
    filled: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a pod template; ``more`` are keys of its spec that differ between launchers.

    ``fields`` are variables with values from the pod's own fields, and ``filled`` are variables with $(NAME) of others
    in their values. A port without ``port_name`` is not listed; the list is for people and for operators, and opens no
    port.
    """
    job, variables = task.job, _variables(task, env, fields or {}, filled or {})
    spec = {
        **more,
        "serviceAccountName": job.service_account,
        "automountServiceAccountToken": job.service_account is not None,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_of(job),
        "priorityClassName": job.priority,
        "nodeSelector": job.node_selector,
        "tolerations": [_as_mapping(each) for each in job.tolerations],
        "affinity": _as_mapping(job.affinity),
        "imagePullSecrets": [{"name": name} for name in job.pull_secrets],
        "securityContext": _account(task),
        "initContainers": [_permissions(task)] if task.fixed else [],
        "containers": [_container(task, variables, container, port_name)],
        "volumes": _volumes(task),
    }
    return {"metadata": marks(job), "spec": without_nothing(spec)}


def _account(task: Task) -> dict[str, Any]:
    """Return the pod's security context. It has no user if the image is unknown, or if the cluster chooses the user."""
    context: dict[str, Any] = {"runAsNonRoot": True} if task.ours else {}
    if uid := task.known_uid:
        context |= {"runAsUser": uid, "runAsGroup": 0, "fsGroup": uid, "fsGroupChangePolicy": "OnRootMismatch"}
    return context | {"seccompProfile": {"type": "RuntimeDefault"}}


def _as_mapping(model: Any) -> dict[str, Any]:
    """Return a mapping of the job with its keys, which are those of Kubernetes."""
    mapping: dict[str, Any] = model.model_dump(by_alias=True, exclude_none=True)
    return mapping


def _variables(
    task: Task, env: Mapping[str, str], fields: Mapping[str, str], filled: Mapping[str, str]
) -> list[dict[str, Any]]:
    own = [{"name": name, "value": _escape(value)} for name, value in env.items()]
    own += [{"name": name, "value": value} for name, value in filled.items()]
    keys = task.job.secrets.items()
    secrets = {name: {"secretKeyRef": {"name": each.secret, "key": each.key}} for name, each in keys}
    places = {name: {"fieldRef": {"fieldPath": path}} for name, path in fields.items()}
    return [*own, *({"name": name, "valueFrom": source} for name, source in (secrets | places).items())]


def _container(task: Task, env: list[dict[str, Any]], name: str, port_name: str) -> dict[str, Any]:
    job = task.job
    container = {
        "name": name,
        "image": task.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [_escape(word) for word in job.words],
        "workingDir": workdir_of(job),
        "env": env,
        "ports": [{"name": port_name, "containerPort": job.port, **_TCP}] if job.distributed and port_name else [],
        "resources": _resources(job),
        "readinessProbe": {} if job.command else _READY,
        "securityContext": {"allowPrivilegeEscalation": False, **(_HARDENED if task.ours else {})},
        "volumeMounts": _mounts(task),
    }
    return without_nothing(container)


_READY = {"exec": {"command": ["health"]}, "initialDelaySeconds": 5, "periodSeconds": 10, "timeoutSeconds": 5}
_HARDENED = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _escape(text: str) -> str:
    """Escape $(NAME), by which Kubernetes expands variables, and $$, which it reads as $."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _resources(job: Job) -> dict[str, Any]:
    """Return requests that are limits too, since a node that takes resources of another slows down the whole job."""
    resources = job.resources
    gpu, rdma = {_GPU: str(resources.gpu)} if resources.gpu else {}, {resources.rdma: "1"} if resources.rdma else {}
    amounts = without_nothing({"cpu": resources.cpu, "memory": resources.memory}) | gpu | rdma
    return {"requests": dict(amounts), "limits": dict(amounts)} if amounts else {}


def _permissions(task: Task) -> dict[str, Any]:
    """Return volume-permissions, the only container that runs as root, with three capabilities."""
    paths = [volume.mount_path for volume in task.fixed]
    names = {name for name, volume in _named_volumes(task.job) if volume.permissions}
    return {
        "name": "volume-permissions",
        "image": task.init_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--owner", task.owner, *paths],
        "resources": {"requests": dict(_SMALL), "limits": dict(_SMALL)},
        "securityContext": {
            "runAsNonRoot": False,
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
        },
        "volumeMounts": [mount for mount in _mounts(task) if mount["name"] in names],
    }


def _named_volumes(job: Job) -> list[tuple[str, Volume]]:
    """Return the job's volumes with their names in the pod."""
    return [(f"volume-{place}", volume) for place, volume in enumerate(job.volumes)]


def _mounts(task: Task) -> list[dict[str, Any]]:
    job = task.job
    own: list[dict[str, Any]] = [{"name": _TMP, "mountPath": "/tmp"}] if task.ours else []
    own.append({"name": _SHM, "mountPath": "/dev/shm"})
    if job.files.mounted:
        own.append({"name": _FILES, "mountPath": JOB_FOLDER, "readOnly": True})
    for name, volume in _named_volumes(job):
        mount = {"name": name, "mountPath": volume.mount_path, "readOnly": volume.read_only or None}
        own.append(without_nothing(mount))
    return own


def _volumes(task: Task) -> list[dict[str, Any]]:
    job = task.job
    volumes: list[dict[str, Any]] = [{"name": _TMP, "emptyDir": {}}] if task.ours else []
    volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": shm_of(job)}})
    if job.files.folder:
        items = [{"key": key, "path": path} for key, path in zip(keys_of(task), task.contents, strict=True)]
        volumes.append({"name": _FILES, "configMap": {"name": files_of(job), "items": items}})
    if job.files.config_map:
        volumes.append({"name": _FILES, "configMap": {"name": job.files.config_map}})
    for name, volume in _named_volumes(job):
        claim = {"persistentVolumeClaim": {"claimName": claim_of(job, volume)}}
        volumes.append({"name": name, **({"hostPath": {"path": volume.host_path}} if volume.host_path else claim)})
    return volumes


def service(job: Job, selector: Mapping[str, str]) -> dict[str, Any]:
    """Return a Service that gives pods names, even before they are ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": dict(selector),
        "ports": [{"name": MASTER, "port": job.port, **_TCP}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(job, job.name), "spec": spec}


def files_of(job: Job) -> str:
    """Return the name of the ConfigMap that carries a folder's files."""
    return f"{job.name}-files"


def surroundings(task: Task) -> list[dict[str, Any]]:
    """Return the objects that pods need: a ConfigMap with the folder's files, and the claims to create."""
    job = task.job
    matches: list[dict[str, Any]] = []
    if job.files.folder:
        texts, binaries = split_contents(dict(zip(keys_of(task), task.contents.values(), strict=True)))
        files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(job, files_of(job))}
        matches.append(files | without_nothing({"data": texts, "binaryData": binaries}))
    for volume in (volume for volume in job.volumes if volume.size):
        mode = volume.access_mode or ("ReadWriteMany" if job.most_nodes > 1 else "ReadWriteOnce")
        spec = {
            "accessModes": [mode],
            "storageClassName": volume.storage_class,
            "resources": {"requests": {"storage": volume.size}},
        }
        head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(job, claim_of(job, volume))}
        matches.append({**head, "spec": without_nothing(spec)})
    return matches


def split_contents(contents: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, str]]:
    """Split files into texts, and all others in base64."""
    texts, binaries = dict[str, str](), dict[str, str]()
    for name, content in contents.items():
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError:
            binaries[name] = base64.b64encode(content).decode()
    return texts, binaries


def keys_of(task: Task) -> list[str]:
    """Return a unique key for each file: its path, without the characters that no key may have."""
    keys = dict[str, str]()
    for path in sorted(task.contents):
        key = re.sub(r"[^-._a-zA-Z0-9]", "_", path)[-240:]
        keys[path] = key if key not in keys.values() else f"{key}-{len(keys)}"
    return [keys[path] for path in task.contents]
