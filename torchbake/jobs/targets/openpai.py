"""OpenPAI, its protocol 2: YAML."""

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.quantities import mebibytes_of
from torchbake.jobs.targets import _pai
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, shm_of

NAME = "openpai"
ABOUT = "a job of OpenPAI's protocol 2, as YAML"
MOST_NODES = _pai.MOST_NODES
CARRIES_FILES = False
CANNOT: tuple[Cannot, ...] = _pai.CANNOT
NEEDS: tuple[Needs, ...] = _pai.NEEDS


def render(task: Task) -> str:
    job, demand = task.job, task.job.resources
    resources = {
        "cpu": _pai.cpus(job),
        "memoryMB": mebibytes_of(demand.memory or "1Gi"),
        "gpu": demand.gpu,
        "ports": {_pai.PORT_LABEL: 1} if job.distributed else None,
    }
    options = {"shmMB": mebibytes_of(shm_of(job)), "infiniband": True if demand.rdma else None}
    role = {
        "instances": job.most_nodes,
        # One failed task ends the job, and the first complete task ends an elastic job.
        "completion": {"minFailedInstances": 1, "minSucceededInstances": 1 if job.elastic else job.most_nodes},
        "taskRetryCount": 0,
        "dockerImage": "image",
        "resourcePerInstance": without_nothing(resources),
        "extraContainerOptions": without_nothing(options),
        "commands": _pai.commands(job),
    }
    image = {"protocolVersion": 2, "name": "image", "type": "dockerimage", "uri": task.image}
    whole = {
        "protocolVersion": 2,
        "name": job.name,
        "type": "job",
        "jobRetryCount": 0,
        "prerequisites": [image],
        "taskRoles": {_pai.ROLE: role},
    }
    return documents([whole])
