"""OpenPAI, its first protocol: JSON, with jobName, image and taskRoles."""

import json

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.quantities import mebibytes_of
from torchbake.jobs.targets import _pai
from torchbake.jobs.targets.yaml_text import without_nothing
from torchbake.jobs.task import Task, shm_of

NAME = "openpai-v1"
ABOUT = "a job of OpenPAI's first protocol, as JSON"
MOST_NODES = _pai.MOST_NODES
CARRIES_FILES = False
CANNOT: tuple[Cannot, ...] = (
    *_pai.CANNOT,
    Cannot(key="resources.rdma", why="the first protocol has no word for InfiniBand; openpai has"),
)
NEEDS: tuple[Needs, ...] = _pai.NEEDS


def render(task: Task) -> str:
    job = task.job
    port = {"label": _pai.PORT_LABEL, "beginAt": 0, "portNumber": 1}  # 0: any that is free
    role = {
        "name": _pai.ROLE,
        "taskNumber": job.most_nodes,
        "cpuNumber": _pai.cpus(job),
        "memoryMB": mebibytes_of(job.resources.memory or "1Gi"),
        "shmMB": mebibytes_of(shm_of(job)),
        "gpuNumber": job.resources.gpu,
        "portList": [port] if job.distributed else [],
        "minFailedTaskCount": 1,
        "minSucceededTaskCount": 1 if job.elastic else None,
        "command": " && ".join(_pai.commands(job)),
    }
    whole = {"jobName": job.name, "image": task.image, "retryCount": 0, "taskRoles": [without_nothing(role)]}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
