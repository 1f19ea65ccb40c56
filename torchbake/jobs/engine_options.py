"""Options of the engine's API for the container of a node: as the target `docker`, without a shell. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

from docker.types import Mount, Ulimit

from torchbake.engine.gpu import GpuAccess
from torchbake.jobs.quantities import cpus_of, mebibytes_of
from torchbake.jobs.targets import _engine
from torchbake.jobs.task import CAPABILITIES, Task, node_name, shm_of, workdir_of

_HARDENED = {"security_opt": ["no-new-privileges"]}
_DROPPED = {"cap_drop": ["ALL"]}


def options_of(task: Task, rank: int, secrets: Mapping[str, str], gpu: GpuAccess | None) -> dict[str, Any]:
    """Return the options of a node's container, without its network. ``gpu`` is set if the job wants GPUs."""
    job, resources = task.job, task.job.resources
    devices = gpu.number(_engine.gpus_of(job, rank)) if gpu else None
    options = {
        "hostname": node_name(job, rank),
        "working_dir": workdir_of(job),
        "environment": _engine.environment(job, rank) | dict(secrets),
        "mounts": [_mount(*mount) for mount in _engine.mounts_of(job, task.folder)],
        "shm_size": f"{mebibytes_of(shm_of(job))}m",
        "nano_cpus": round(cpus_of(resources.cpu) * 1e9) if resources.cpu else None,
        "mem_limit": f"{mebibytes_of(resources.memory)}m" if resources.memory else None,
        "devices": ["/dev/infiniband:/dev/infiniband"] if resources.rdma else None,
        "ulimits": [Ulimit(name="memlock", soft=-1, hard=-1)] if resources.rdma else None,
        "device_requests": [devices] if devices else None,
    }
    return _HARDENED | (_DROPPED if task.ours else {}) | {name: value for name, value in options.items() if value}


def permissions_of(task: Task) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments and the options of the container of volume-permissions."""
    mounts = [_mount(*_engine.source_of(task.job, each), each.mount_path, False) for each in task.fixed]
    words = ["--owner", task.owner, *(volume.mount_path for volume in task.fixed)]
    return words, _HARDENED | _DROPPED | {"network_mode": "none", "cap_add": list(CAPABILITIES), "mounts": mounts}


def _mount(kind: str, source: str, target: str, read_only: bool) -> Mount:
    mount: Literal["bind", "volume"] = "bind" if kind == "bind" else "volume"
    return Mount(target=target, source=source, type=mount, read_only=read_only)
