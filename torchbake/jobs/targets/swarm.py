"""Docker Swarm: a stack file with a service for each node, for `docker stack deploy`, on an overlay network.

Each service has one task, so its file can state the node's number. The network's DNS has the service's name at once:
`dnsrr` needs no IPVS, and no health check hides a task until all nodes have met.

Sources: docker/cli, cli/compose/types/types.go (keys that a stack ignores); moby/swarmkit, template/expand.go (keys
with templates) and manager/constraint/constraint.go.
"""

import re
import shlex
from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of, mebibytes_of
from torchbake.jobs.targets import _engine
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import (
    Task,
    claim_of,
    counts,
    grace_of,
    in_container,
    master,
    rank_variables,
    shm_of,
    workdir_of,
)

NAME = "swarm"
ABOUT = "a stack file with a service for each node, for docker stack deploy"
MOST_NODES = 126  # an overlay network has 254 addresses: one for itself, and one for each task and its machine
CARRIES_FILES = False
_LONGEST = 63  # characters of a service's name, with the name of the stack and _ before it
_SECRET = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

CANNOT: tuple[Cannot, ...] = (
    *(no for no in _engine.CANNOT if no.key not in ("nodeSelector", "pullSecrets")),
    Cannot(
        key="name",
        why=f"a service is called NAME_node-NUMBER, and takes {_LONGEST} characters: shorten the name",
        when=lambda job: len(f"{job.name}_{_service_of(job.most_nodes - 1)}") > _LONGEST,
        only=f"of more than {_LONGEST} characters with _node- and a number",
    ),
    Cannot(key="volumes[].permissions", why="a stack starts all at once; run volume-permissions yourself before"),
    Cannot(
        key="secrets",
        why="a secret of Swarm is called SECRET.KEY, and takes 64 characters: shorten one of them",
        when=lambda job: not all(re.fullmatch(_SECRET, name) for name in _secrets(job).values()),
        only="of more than 64 characters with its key",
    ),
    Cannot(key="resources.rdma", why="a stack cannot add devices"),
    Cannot(key="timeouts.job", why="Swarm has no limit of time; remove the stack by `docker stack rm`"),
    Cannot(
        key="nodeSelector",
        why="a constraint of Swarm takes no / in a label, and no label without a value",
        when=lambda job: any("/" in key or not value for key, value in job.node_selector.items()),
        only="with / in a key, or without a value",
    ),
    Cannot(key="pullSecrets", why="log in by `docker login`, and deploy with --with-registry-auth"),
)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    job = task.job
    claims = {claim_of(job, volume) for volume in job.volumes if not volume.host_path}
    whole = {
        "version": "3.8",  # engines before 23 want one
        "services": {_service_of(rank): _service(task, rank) for rank in range(job.most_nodes)},
        "networks": {"default": without_nothing({"driver": "overlay", "labels": job.labels})},
        "volumes": {claim: {"name": claim, "external": True} for claim in sorted(claims)},
        "secrets": {name: {"name": name, "external": True} for name in sorted({*_secrets(job).values()})},
    }
    head = f"docker stack deploy --with-registry-auth --compose-file FILE {job.name}"
    return documents([without_nothing(whole)], head=head)


def _service_of(rank: int) -> str:
    return f"node-{rank}"


def _secrets(job: Job) -> dict[str, str]:
    """Return the name of Swarm's secret for each variable."""
    return {name: f"{each.secret}.{each.key}" for name, each in job.secrets.items()}


def _service(task: Task, rank: int) -> dict[str, Any]:
    job = task.job
    env = in_container(job) | counts(job) | rank_variables(job, rank) | master(job, _service_of(0))
    service = {
        "image": _escape(task.image),
        "command": [_escape(word) for word in _command(job)],
        "working_dir": _escape(workdir_of(job)),
        "hostname": _service_of(rank),
        "environment": {name: _fill(value) for name, value in env.items()},
        "secrets": [{"source": source, "target": name} for name, source in _secrets(job).items()],
        "volumes": _mounts(task),
        "labels": {name: _escape(value) for name, value in job.labels.items()},
        "cap_drop": ["ALL"] if task.ours else [],
        "healthcheck": {"disable": True},
        "stop_grace_period": f"{grace_of(job)}s",
        "deploy": _deploy(job),
    }
    return without_nothing(service)


def _command(job: Job) -> tuple[str, ...]:
    """Return the command, after a shell that exports Swarm's secrets, which are files, as variables."""
    if not job.secrets:
        return job.words
    exports = [f'{name}="$(cat {shlex.quote(f"/run/secrets/{name}")})"; export {name}' for name in job.secrets]
    return ("sh", "-c", "; ".join(["set -e", *exports, 'exec "$@"']), "sh", *job.words)


def _deploy(job: Job) -> dict[str, Any]:
    """Return the deployment of a service without restarts: a lost node ends the others, but not an elastic job."""
    constraints = [f"node.labels.{key} == {value}" for key, value in job.node_selector.items()]
    deploy = {
        "replicas": 1,
        "endpoint_mode": "dnsrr",
        "restart_policy": {"condition": "none"},
        "labels": {name: _escape(value) for name, value in job.labels.items()},
        "placement": without_nothing({"constraints": constraints}),
        "resources": _resources(job),
    }
    return without_nothing(deploy)


def _resources(job: Job) -> dict[str, Any]:
    """Return reservations that are limits too. Each machine's engine must advertise its GPUs under this name."""
    resources = job.resources
    amounts = without_nothing({
        "cpus": f"{cpus_of(resources.cpu):g}" if resources.cpu else None,
        "memory": f"{mebibytes_of(resources.memory)}M" if resources.memory else None,
    })  # fmt: skip
    gpus = [{"discrete_resource_spec": {"kind": "NVIDIA-GPU", "value": resources.gpu}}] if resources.gpu else None
    return without_nothing({"limits": amounts, "reservations": without_nothing({**amounts, "generic_resources": gpus})})


def _mounts(task: Task) -> list[dict[str, Any]]:
    """Return the mounts, with /dev/shm as one of them, since a stack ignores `shm_size`."""
    mounts = [{"type": "tmpfs", "target": "/dev/shm", "tmpfs": {"size": mebibytes_of(shm_of(task.job)) * 1024**2}}]
    for kind, source, target, read_only in _engine.mounts_of(task.job, task.folder):
        # The name of a volume is a key of the stack file, which has no templates.
        name = _fill(source) if kind == "bind" else source
        mount = {"type": kind, "source": name, "target": _fill(target), "read_only": read_only or None}
        mounts.append(without_nothing(mount))
    return mounts


def _fill(text: str) -> str:
    """Escape the templates of Swarm, and the variables of the stack file."""
    return _escape(text.replace("{{", '{{"{{"}}'))


def _escape(text: str) -> str:
    """Escape $, by which a stack file expands variables anywhere."""
    return text.replace("$", "$$")
