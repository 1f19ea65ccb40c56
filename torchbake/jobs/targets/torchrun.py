"""torchrun on bare hosts: a script to start on each host, with the host's number and the name of the first host.

The hosts have a Python with the packages of the image; nothing is mounted, limited or fetched. torchrun reads its
options from PET_ variables, as `run` does.

Source: pytorch/pytorch: torch/distributed/run.py, torch/distributed/argparse_util.py.
"""

import shlex
from pathlib import Path

from torchbake.jobs import model
from torchbake.jobs.expressible import (
    CHOICE_OF_FILES,
    OF_KUBERNETES,
    OF_PODS,
    Cannot,
    Needs,
    cannot,
    restarts_unless_elastic,
)
from torchbake.jobs.model import Job
from torchbake.jobs.targets.shell_text import export, secret_variable
from torchbake.jobs.task import Task, grace_of, variables

NAME = "torchrun"
ABOUT = "a shell script for bare hosts, started on each"
MOST_NODES = model.MOST_NODES  # torchrun itself has no limit
CARRIES_FILES = False

CANNOT: tuple[Cannot, ...] = (
    *CHOICE_OF_FILES,
    Cannot(
        key="processes",
        why="torchrun starts a process for each CPU of a host without GPUs: write a number, or resources.gpu",
        when=lambda job: job.processes == "auto" and not job.resources.gpu,
        only="auto, without resources.gpu",
    ),
    Cannot(key="files.layer", why="a bare host starts no image; name the files by `folder`"),
    Cannot(key="files.configMap", why="a host has no ConfigMaps; name the files by `folder`"),
    Cannot(key="files.git", why="torchrun fetches nothing; fetch it on each host, and name its path by `folder`"),
    Cannot(key="volumes", why="a bare host mounts nothing; give the script the folder's path by `args` or `env`"),
    *cannot(
        ("resources.cpu", "resources.memory", "resources.shm", "resources.rdma"), "a bare host has no limits to set"
    ),
    restarts_unless_elastic("torchrun would also restart a script that failed by itself"),
    *cannot(("labels", "annotations"), "processes have none"),
    Cannot(key="pullSecrets", why="a bare host pulls no image"),
    *cannot((*OF_PODS, *OF_KUBERNETES), "only Kubernetes has this"),
)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    job = task.job
    starts = [f"sh FILE {rank} HOST0" for rank in range(min(job.most_nodes, 2))]
    command = ", ".join(starts) + (", …" if job.most_nodes > 2 else "") if job.most_nodes > 1 else "sh FILE"
    lines = [
        "#!/bin/sh",
        f"# {job.name}, on {job.most_nodes} bare hosts: {command}",
        f"# Their Python needs the packages of this image: {task.image}",
        "set -eu",
        *(secret_variable(name, key, "export it on each host") for name, key in job.secrets.items()),
        *(_place(job) if job.most_nodes > 1 else []),
        *(export(name, value) for name, value in _environment(task).items()),
        *(_rendezvous(job) if job.distributed else []),
    ]
    if job.resources.gpu:  # the host's first ones, unless its user has selected others
        numbers = ",".join(map(str, range(job.resources.gpu)))
        lines.append(f'export CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES-{numbers}}}"')
    if task.folder or job.workdir:
        lines.append(f"cd -- {shlex.quote(str((task.folder or Path('/')) / (job.workdir or '')))}")
    return "\n".join([*lines, _last(job), ""])


def _place(job: Job) -> list[str]:
    last = job.most_nodes - 1
    return [
        'if [ "$#" -ne 2 ]; then',
        f'    echo "usage: sh $0 NUMBER HOST0: the number of this host, 0 to {last}, and the name of host 0" >&2',
        "    exit 64",
        "fi",
    ]


def _environment(task: Task) -> dict[str, str]:
    """Return the variables of `run`: scripts read some of them, and the user may start `run` in torchrun's place."""
    matches = variables(task.job)
    return matches | {"JOB_DIR": str(task.folder)} if task.folder and not task.job.command else matches


def _rendezvous(job: Job) -> list[str]:
    """torchrun waits for a static group by `timeout`, and for an elastic one by `join_timeout`."""
    rank, first = ('"$1"', '"$2"') if job.most_nodes > 1 else ("0", "127.0.0.1")
    fixed = {"PET_NPROC_PER_NODE": job.per_node, "PET_RDZV_ID": job.name}
    if job.elastic:
        fixed |= {"PET_NNODES": job.elastic, "PET_RDZV_BACKEND": "c10d", "PET_MAX_RESTARTS": str(job.restarts)}
        fixed["PET_RDZV_CONF"] = f"join_timeout={job.timeouts.rendezvous}"
        by_host = [f"export PET_RDZV_ENDPOINT={first}:{job.port}"]
    else:
        fixed |= {"PET_NNODES": str(job.nodes), "PET_MASTER_PORT": str(job.port), "PET_MAX_RESTARTS": "0"}
        fixed["PET_RDZV_CONF"] = f"timeout={job.timeouts.rendezvous}"
        by_host = [f"export PET_MASTER_ADDR={first}", f"export PET_NODE_RANK={rank}"]
    return [*(export(name, value) for name, value in fixed.items()), *by_host]


def _last(job: Job) -> str:
    """Return the line that starts the program. A variable may replace it by torchrun of a virtual environment."""
    limit = ["timeout", f"--kill-after={grace_of(job)}", str(job.timeouts.job)] if job.timeouts.job else []
    if job.command:
        return " ".join(["exec", *limit, shlex.join(job.words)])
    program = '"${TORCHRUN:-torchrun}"' if job.distributed else '"${PYTHON:-python3}"'
    return " ".join(["exec", *limit, program, shlex.join(job.words[1:])])
