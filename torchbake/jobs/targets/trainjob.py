"""Kubeflow's TrainJob (Trainer v2), with a TrainingRuntime of its own: the JobSet that Trainer makes of it.

Trainer counts nodes and processes, and sets PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and
PET_MASTER_PORT itself; it refuses a job that says one of them. The runtime is of the job's namespace: a
ClusterTrainingRuntime would be an administrator's to make, and one for all.
"""

from typing import Any

from torchbake.jobs import model
from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.targets import _jobset, _pod
from torchbake.jobs.targets._job import job_spec
from torchbake.jobs.targets.yaml_text import documents
from torchbake.jobs.task import Task, variables

NAME = "trainjob"
ABOUT = "a TrainJob of Kubeflow's Trainer and its TrainingRuntime, with its ConfigMap and claims"
MOST_NODES = model.MOST_NODES
CARRIES_FILES = True
PORT = 29500  # Trainer names no other
CANNOT: tuple[Cannot, ...] = (
    _jobset.hosts(),
    Cannot(key="elastic", why="Trainer has no elastic PyTorch jobs; use jobset or kubernetes, or write `nodes`"),
    Cannot(
        key="processes",
        why="Trainer counts CPUs where a node gets no GPU; write their number, or `resources.gpu`",
        when=lambda job: job.per_node == "auto" and not job.resources.gpu,
        only="auto, without GPUs",
    ),
    Cannot(
        key="port",
        why=f"Trainer lets nodes meet on {PORT}: leave it out",
        when=lambda job: job.port != PORT,
        only=f"other than {PORT}",
    ),
)
NEEDS: tuple[Needs, ...] = ()
_API = "trainer.kubeflow.org/v1alpha1"
_STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # which of the runtime's Jobs a TrainJob is about


def render(task: Task) -> str:
    return documents(objects(task), head=_pod.security(task))


def objects(task: Task) -> list[dict[str, Any]]:
    """What is applied, in this order."""
    return [*_pod.surroundings(task), _runtime(task), _job(task)]


def _runtime(task: Task) -> dict[str, Any]:
    """All that is not counted: Trainer sets how many pods there are, and the port."""
    job = task.job
    template = _pod.template(task, variables(job), container=_jobset.NODE, restartPolicy="Never")
    spec = job_spec(job, template, indexed=True, counted=False)
    return {
        "apiVersion": _API,
        "kind": "TrainingRuntime",
        "metadata": _pod.metadata(job, job.name),
        "spec": {
            "mlPolicy": {"torch": {}},
            "template": {"metadata": _pod.marks(job), "spec": _jobset.jobset_spec(job, spec, _STEP)},
        },
    }


def _job(task: Task) -> dict[str, Any]:
    job = task.job
    processes = max(1, job.resources.gpu) if job.per_node == "auto" else int(job.per_node)
    return {
        "apiVersion": _API,
        "kind": "TrainJob",
        "metadata": _pod.metadata(job, job.name),
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": job.name},
            "trainer": {"numNodes": job.most_nodes, "numProcPerNode": processes},
        },
    }
