"""docker compose: a service for each node, all on one engine, on the project's network."""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.quantities import cpus_of, mebibytes_of
from torchbake.jobs.targets import _engine
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import CAPABILITIES, Task, claim_of, grace_of, node_name, shm_of, workdir_of

NAME = "compose"
ABOUT = "a compose file with a service a node, all on one engine"
MOST_NODES = _engine.MOST_NODES
CARRIES_FILES = False
CANNOT: tuple[Cannot, ...] = (
    *_engine.CANNOT,
    Cannot(key="timeouts.job", why="compose has no limit of time; start it by `timeout SECONDS docker compose up`"),
)
NEEDS: tuple[Needs, ...] = ()
_PERMISSIONS = "volume-permissions"


def render(task: Task) -> str:
    job = task.job
    services = {_PERMISSIONS: _permissions(task)} if task.fixed else {}
    services |= {node_name(job, rank): _node(task, rank) for rank in range(job.most_nodes)}
    claims = {claim_of(job, volume) for volume in job.volumes if not volume.host_path}
    volumes = {claim: {"name": claim, "external": True} for claim in sorted(claims)}
    whole = {"name": job.name, "services": services, "volumes": volumes}
    return documents([without_nothing(whole)])


def _permissions(task: Task) -> dict[str, Any]:
    mounts = [(*_engine.source_of(task.job, each), each.mount_path, False) for each in task.fixed]
    return {
        "image": _escape(task.init_image),
        "command": ["--owner", task.owner, *(_escape(each.mount_path) for each in task.fixed)],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "volumes": [_mount(*mount) for mount in mounts],
    }


def _node(task: Task, rank: int) -> dict[str, Any]:
    job, resources = task.job, task.job.resources
    env = {name: _escape(value) for name, value in _engine.environment(job, rank).items()}
    secrets = {
        name: f"${{{name}:?is the key {key.key} of the secret {key.secret}}}" for name, key in job.secrets.items()
    }
    # Several nodes get GPUs by number, since each would get the first ones otherwise.
    count = {"device_ids": _engine.gpus_of(job, rank)} if job.most_nodes > 1 else {"count": resources.gpu}
    gpus = {"driver": "nvidia", **count, "capabilities": ["gpu"]}
    node = {
        "image": _escape(task.image),
        "command": [_escape(word) for word in job.words],
        "working_dir": _escape(workdir_of(job)),
        "hostname": node_name(job, rank),
        "environment": env | secrets,
        "volumes": [_mount(*mount) for mount in _engine.mounts_of(job, task.folder)],
        "labels": {name: _escape(value) for name, value in job.labels.items()},
        "cpus": cpus_of(resources.cpu) if resources.cpu else None,
        "mem_limit": f"{mebibytes_of(resources.memory)}m" if resources.memory else None,
        "shm_size": f"{mebibytes_of(shm_of(job))}m",
        "devices": ["/dev/infiniband:/dev/infiniband"] if resources.rdma else None,
        "ulimits": {"memlock": -1} if resources.rdma else None,
        "deploy": {"resources": {"reservations": {"devices": [gpus]}}} if resources.gpu else None,
        "cap_drop": ["ALL"] if task.ours else [],
        "security_opt": ["no-new-privileges"],
        "stop_grace_period": f"{grace_of(job)}s",
        "depends_on": {_PERMISSIONS: {"condition": "service_completed_successfully"}} if task.fixed else None,
    }
    return without_nothing(node)


def _mount(kind: str, source: str, target: str, read_only: bool) -> dict[str, Any]:
    mount = {"type": kind, "source": _escape(source), "target": _escape(target), "read_only": read_only or None}
    return without_nothing(mount)


def _escape(text: str) -> str:
    """Escape $, by which compose expands variables anywhere in the file."""
    return text.replace("$", "$$")
