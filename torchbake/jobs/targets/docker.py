"""docker: a shell script with a line for each node, all on one engine. It ends with the job's exit code.

Node 0 runs in the foreground; `run` ends every node with the code of the rank that failed first. The script always
removes its containers and its network when it ends.
"""

import shlex

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of, mebibytes_of
from torchbake.jobs.targets import _engine
from torchbake.jobs.targets.shell_text import secret_variable
from torchbake.jobs.task import CAPABILITIES, Task, grace_of, node_name, shm_of, workdir_of

NAME = "docker"
ABOUT = "a shell script with a line a node, all on one engine"
MOST_NODES = _engine.MOST_NODES
CARRIES_FILES = False
CANNOT: tuple[Cannot, ...] = _engine.CANNOT
NEEDS: tuple[Needs, ...] = ()
_HARDENED = ("--security-opt", "no-new-privileges")


def render(task: Task) -> str:
    job = task.job
    last = job.most_nodes - 1
    lines = [
        "#!/bin/sh",
        f"# {job.name}: nodes on one engine: {job.most_nodes}; ends with the job's exit code.",
        "set -eu",
    ]
    lines += [secret_variable(name, key, "export it") for name, key in job.secrets.items()]
    if last:
        names = " ".join(node_name(job, rank) for rank in range(job.most_nodes))
        removed = f"docker rm --force {names} >/dev/null 2>&1 || true"
        lines += [
            f"docker network create {job.name} >/dev/null",
            f"trap '{removed}; docker network rm {job.name} >/dev/null 2>&1 || true' EXIT",
            "trap 'exit 130' INT",
            "trap 'exit 143' TERM",
        ]
    lines += [shlex.join(_permissions(task))] if task.fixed else []
    lines += [shlex.join(_node(task, rank, "--detach")) for rank in range(last, 0, -1)]
    # In the foreground, or a terminal's Ctrl-C would not reach the node.
    limit = ["timeout", "--foreground", str(job.timeouts.job)] if job.timeouts.job else []
    return "\n".join([*lines, shlex.join([*limit, *_node(task, 0)]), ""])


def _permissions(task: Task) -> list[str]:
    added = [word for name in CAPABILITIES for word in ("--cap-add", name)]
    words = ["docker", "run", "--rm", "--network", "none", "--cap-drop", "ALL", *added, *_HARDENED]
    for volume in task.fixed:
        words += _mount(*_engine.source_of(task.job, volume), volume.mount_path, read_only=False)
    return [*words, task.init_image, "--owner", task.owner, *(volume.mount_path for volume in task.fixed)]


def _node(task: Task, rank: int, option: str = "--rm") -> list[str]:
    job = task.job
    words = ["docker", "run", option, "--name", node_name(job, rank)]
    words += ["--network", job.name] if job.most_nodes > 1 else []
    words += ["--cap-drop", "ALL"] if task.ours else []
    words += [*_HARDENED, "--stop-timeout", str(grace_of(job)), *_resources(job, rank)]
    for kind, source, target, read_only in _engine.mounts_of(job, task.folder):
        words += _mount(kind, source, target, read_only=read_only)
    words += [word for name, value in job.labels.items() for word in ("--label", f"{name}={value}")]
    env = _engine.environment(job, rank)
    words += [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    words += [word for name in job.secrets for word in ("--env", name)]  # docker reads the value from the shell
    words += ["--workdir", workdir_of(job)] if workdir_of(job) else []
    return [*words, task.image, *job.words]


def _resources(job: Job, rank: int) -> list[str]:
    resources = job.resources
    words = ["--shm-size", f"{mebibytes_of(shm_of(job))}m"]
    words += ["--cpus", f"{cpus_of(resources.cpu):g}"] if resources.cpu else []
    words += ["--memory", f"{mebibytes_of(resources.memory)}m"] if resources.memory else []
    words += ["--device", "/dev/infiniband", "--ulimit", "memlock=-1:-1"] if resources.rdma else []
    if not resources.gpu:
        return words
    several = f'"device={",".join(_engine.gpus_of(job, rank))}"'  # docker parses the value as CSV, with quotes
    return [*words, "--gpus", several if job.most_nodes > 1 else str(resources.gpu)]


def _mount(kind: str, source: str, target: str, *, read_only: bool) -> list[str]:
    """Return the option of a mount, which docker parses as CSV."""
    quoted = '"source={}"'.format(source.replace('"', '""')) if set(source) & set(',"') else f"source={source}"
    return ["--mount", f"type={kind},{quoted},target={target}" + (",readonly" if read_only else "")]
