"""Kubeflow's TrainJob (Trainer v2) and a TrainingRuntime for the job, which holds the JobSet that Trainer creates.

A job can name an existing runtime of the cluster instead (`trainjob.runtimeRef`). The Job and the container of such a
runtime are called `node`, as in Trainer's torch-distributed. The TrainJob patches the pod; keys that no patch can
change are refused.

Trainer sets PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT itself, and refuses a
job that sets one of them. The runtime belongs to the job's namespace, since only administrators may create a
ClusterTrainingRuntime.
"""

from typing import Any

from torchbake.jobs import model
from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.targets import _pod, jobset
from torchbake.jobs.targets._job import job_spec
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, in_container

NAME = "trainjob"
ABOUT = "a TrainJob of Kubeflow's Trainer and its TrainingRuntime, with its ConfigMap and claims"
MOST_NODES = model.MOST_NODES
CARRIES_FILES = True
PORT = 29500  # Trainer supports no other port
_NOT_PATCHED = ("workdir", "restarts", "priority", "volumes[].permissions", "gang")  # in an existing runtime
CANNOT: tuple[Cannot, ...] = (
    jobset.HOSTS,
    Cannot(key="elastic", why="Trainer has no elastic PyTorch jobs; use jobset or kubernetes, or write `nodes`"),
    Cannot(
        key="processes",
        why="Trainer counts CPUs where a node gets no GPU; write their number, or `resources.gpu`",
        when=lambda job: job.per_node == "auto" and not job.resources.gpu,
        only="auto, without GPUs",
    ),
    Cannot(
        key="port",
        why=f"the nodes of Trainer meet on port {PORT}: remove this key",
        when=lambda job: job.port != PORT,
        only=f"other than {PORT}",
    ),
    _pod.managers("trainer.kubeflow.org/trainjob-controller"),
    Cannot(key="ttlSecondsAfterFinished", why="a TrainJob stays until it is deleted: delete it, or use jobset"),
    *(
        Cannot(
            key=key,
            why="the runtime in the cluster decides it: remove this key, or trainjob.runtimeRef",
            when=lambda job: job.trainjob.runtime_ref is not None,
            only="on a runtime in the cluster",
        )
        for key in _NOT_PATCHED
    ),
    Cannot(key="gang.queue", why="a TrainJob names no queue of its scheduler; for Kueue's write `queue`"),
    Cannot(
        key="gang.scheduleTimeoutSeconds",
        why="Volcano has a timeout of its configuration: remove this key",
        when=lambda job: job.gang is not None and job.gang.scheduler == "volcano",
        only="with volcano",
    ),
)
NEEDS: tuple[Needs, ...] = ()
_API = "trainer.kubeflow.org/v1alpha1"
_MANAGER = "torchbake.org/job"  # the author of the patch
_STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # marks the Job of the runtime that trains


def render(task: Task) -> str:
    return documents(objects(task), head=_pod.security(task))


def objects(task: Task) -> list[dict[str, Any]]:
    runtime = [] if task.job.trainjob.runtime_ref else [_runtime(task)]
    return [*_pod.surroundings(task), *runtime, _job(task)]


def _template(task: Task) -> dict[str, Any]:
    return _pod.template(task, in_container(task.job), container=jobset.NODE, restartPolicy="Never")


def _runtime(task: Task) -> dict[str, Any]:
    """Return the runtime of the job, without the number of pods and the port, which Trainer sets."""
    job = task.job
    spec = job_spec(job, _template(task), indexed=True, counted=False, own=False)
    gang: dict[str, Any] | None = None
    if job.gang and job.gang.scheduler == "volcano":
        gang = {"volcano": {}}
    elif job.gang:
        gang = {"coscheduling": without_nothing({"scheduleTimeoutSeconds": job.gang.schedule_timeout_seconds})}
    whole: dict[str, Any] = {
        "mlPolicy": {"torch": {}},
        "podGroupPolicy": gang,
        "template": {"metadata": _pod.marks(job), "spec": jobset.jobset_spec(job, spec, _STEP)},
    }
    return {
        "apiVersion": _API,
        "kind": "TrainingRuntime",
        "metadata": _pod.metadata(job, job.name),
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def _job(task: Task) -> dict[str, Any]:
    job, existing = task.job, task.job.trainjob.runtime_ref
    processes = max(1, job.resources.gpu) if job.per_node == "auto" else int(job.per_node)
    counted = {"numNodes": job.most_nodes, "numProcPerNode": processes}
    runtime = {"kind": "TrainingRuntime", "name": job.name}
    spec = {
        "runtimeRef": {"kind": existing.kind, "name": existing.name} if existing else runtime,
        "suspend": job.suspend or None,
        "managedBy": job.managed_by,
        "trainer": counted,
    }
    spec |= _on_runtime(task, counted) if existing else {}
    metadata = _pod.queue_labels(job, job.name)
    return {"apiVersion": _API, "kind": "TrainJob", "metadata": metadata, "spec": without_nothing(spec)}


# Keys of a pod that a TrainJob may patch in its runtime: kubeflow/trainer 2.3, PodSpecPatch.
_PATCHED = (
    *("affinity", "imagePullSecrets", "nodeSelector", "securityContext", "serviceAccountName"),
    *("terminationGracePeriodSeconds", "tolerations", "volumes"),
)


def _on_runtime(task: Task, counted: dict[str, int]) -> dict[str, Any]:
    """Return the keys of a TrainJob on an existing runtime: the container, and a patch of the pod."""
    pod = _template(task)
    (container,) = pod["spec"]["containers"]
    own = {key: container[key] for key in ("image", "args", "env") if key in container}
    resources = {"resourcesPerNode": container["resources"]} if "resources" in container else {}
    spec = {key: pod["spec"][key] for key in _PATCHED if key in pod["spec"]}
    spec["containers"] = [{key: container[key] for key in ("name", "securityContext", "volumeMounts")}]
    jobs = [{"name": jobset.NODE, "template": {"spec": {"template": {"metadata": pod["metadata"], "spec": spec}}}}]
    patch = {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    return {
        "activeDeadlineSeconds": task.job.timeouts.job,
        "trainer": counted | own | resources,
        "runtimePatches": [patch],
    }
