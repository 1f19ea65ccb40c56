"""Slurm: a script for `sbatch`, with one task a node, which starts its processes; Slurm counts the nodes itself.

`srun --export` names what the tasks get besides Slurm's own variables, so that nothing else of the user's shell comes
into a container. A lost node puts the job into the queue again. A task that fails ends no other by itself
(`--kill-on-bad-exit` would, and srun then says their SIGTERM in place of the script's code): `run` ends all nodes, and
srun what is left some time after the first has ended (`--wait`).

Sources: https://slurm.schedmd.com/sbatch.html, srun.html and scontrol.html; SchedMD/slurm,
src/slurmd/slurmstepd/container.c (a bundle's own environment is replaced).
"""

import shlex

from torchbake.jobs import model
from torchbake.jobs.expressible import CHOICE_OF_FILES, OF_KUBERNETES, Cannot, Needs, cannot
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of, mebibytes_of
from torchbake.jobs.targets._slurm_runtimes import HOSTS, RUNTIMES
from torchbake.jobs.targets.shell_text import export, wanted
from torchbake.jobs.task import NODE_LOST, Task, counts, elastic, grace_of, in_container, master

NAME = "slurm"
ABOUT = "a script for sbatch, for Apptainer, Pyxis and Enroot, or an OCI bundle"
MOST_NODES = model.MOST_NODES  # a partition says its own limit
CARRIES_FILES = False
_APART = 45  # seconds between the first node's end and the last's, as `run` ends them: docs/ddp.md
_LONGEST_SIGNAL = 65535  # seconds before the limit, as sbatch takes them
_OF_KUBERNETES = "it is Kubernetes' alone; Slurm's words stand below `slurm`"
_BUNDLE = "a bundle's mounts stand in its config.json"

CANNOT: tuple[Cannot, ...] = (
    *CHOICE_OF_FILES,
    Cannot(
        key="files.folder",
        why=f"{_BUNDLE}; name the files by `git`",
        when=lambda job: job.slurm.runtime == "oci",
        only="with the runtime oci",
    ),
    Cannot(key="files.configMap", why="Slurm has no ConfigMaps; name the files by `folder` or `git`"),
    Cannot(
        key="volumes", why=_BUNDLE, when=lambda job: job.slurm.runtime == "oci", only="with the runtime oci"
    ),
    Cannot(key="volumes[].claim", why="Slurm has no claims; name a folder of shared storage by `hostPath`"),
    Cannot(key="volumes[].size", why="Slurm makes no storage; name a folder of shared storage by `hostPath`"),
    Cannot(key="volumes[].storageClass", why="Slurm makes no storage; name a folder of it by `hostPath`"),
    Cannot(key="volumes[].accessMode", why="Slurm makes no storage; name a folder of it by `hostPath`"),
    Cannot(key="volumes[].permissions", why="a container is the user itself there, and writes where the user may"),
    Cannot(
        key="env",
        why=f"{' and '.join(HOSTS)} are of the host's programs too, which start the containers: set it in the script",
        when=lambda job: not job.env.keys().isdisjoint(HOSTS),
        only=f"of {' and '.join(HOSTS)}",
    ),
    Cannot(
        key="resources.cpu",
        why="Slurm counts whole CPUs",
        when=lambda job: cpus_of(job.resources.cpu or "1") % 1 != 0,
        only="of parts of a CPU",
    ),
    Cannot(key="resources.shm", why="a container has the host's /dev/shm"),
    Cannot(key="resources.rdma", why="containers have the hosts' devices; Enroot: MELLANOX_VISIBLE_DEVICES in `env`"),
    Cannot(
        key="timeouts.stop",
        why=f"Slurm tells a job to stop {_LONGEST_SIGNAL} seconds before its time is over at the soonest",
        when=lambda job: grace_of(job) > _LONGEST_SIGNAL,
        only=f"of more than {_LONGEST_SIGNAL} seconds",
    ),
    Cannot(key="priority", why="Slurm's word is a quality of service: write slurm.qos"),
    Cannot(key="nodeSelector", why="Slurm's word is a constraint: write slurm.constraint"),
    Cannot(key="tolerations", why=_OF_KUBERNETES),
    Cannot(key="affinity", why=_OF_KUBERNETES),
    Cannot(key="annotations", why="a job of Slurm has a comment alone, in which the labels stand"),
    Cannot(key="serviceAccount", why=_OF_KUBERNETES),
    Cannot(key="pullSecrets", why="log in by `apptainer registry login`, or in Enroot's .credentials"),
    *cannot(OF_KUBERNETES, _OF_KUBERNETES),
)  # fmt: skip
NEEDS: tuple[Needs, ...] = (
    Needs(
        key="resources.cpu",
        why="a node gets one CPU otherwise; or take whole machines, slurm.exclusive",
        when=lambda job: not job.slurm.exclusive,
    ),
)


def render(task: Task) -> str:
    job, runtime = task.job, RUNTIMES[task.job.slurm.runtime]
    env = {name: value for name, value in environment(job).items() if name not in _first_node(job)}
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{option}" for option in _options(job)),
        f"# {job.name}: sbatch FILE; it ends with the job's exit code.",
        "set -euo pipefail",
        *(wanted(name, key, "export it before sbatch") for name, key in job.secrets.items()),
        *_again(job),
        *runtime.before(task),
        *(export(name, value) for name, value in env.items()),
        *_meeting(job),
    ]
    # In quotes of its own: where the image is, is said by a variable of the script.
    command = f"{shlex.join(_srun(job, [*env, *_first_node(job), *job.secrets]))} {runtime.command(task)}"
    return "\n".join([*lines, *_start(job, command), ""])


def environment(job: Job) -> dict[str, str]:
    """What Slurm does not say by itself: it counts the nodes, and knows the first."""
    if not job.distributed:
        return in_container(job)
    if job.command:
        return in_container(job) | counts(job) | master(job, "")
    group = elastic(job) | {"NPROC_PER_NODE": job.per_node, "MASTER_PORT": str(job.port)}
    return in_container(job) | group


def _first_node(job: Job) -> dict[str, str]:
    """The first node for torchrun, which does not read Slurm's list of nodes: bash reads it into `first`."""
    group = master(job, "$first") if job.command and job.most_nodes > 1 else {}
    return {name: value for name, value in group.items() if "$first" in value}


def _meeting(job: Job) -> list[str]:
    there = _first_node(job)
    if not there:
        return []
    read = 'read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    return [read, *(f'export {name}="{value}"' for name, value in there.items())]


def _options(job: Job) -> list[str]:
    asked, wanted = job.slurm, job.resources
    said = {
        "job-name": job.name,
        "comment": ",".join(f"{key}={value}" for key, value in job.labels.items()),
        "output": "%x-%j.out",
        "open-mode": "append",  # what was said before a lost node stays
        "partition": asked.partition,
        "account": asked.account,
        "qos": asked.qos,
        "constraint": f'"{asked.constraint}"' if asked.constraint else None,
        "nodes": job.elastic.replace(":", "-") if job.elastic else str(job.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": _cpus(job),
        "mem": f"{mebibytes_of(wanted.memory)}M" if wanted.memory else None,
        "gpus-per-node": str(wanted.gpu) if wanted.gpu else None,
        "time": _time(job.timeouts.job) if job.timeouts.job else None,
        "signal": f"TERM@{min(grace_of(job), _LONGEST_SIGNAL)}",
    }
    flags = ["exclusive"] if asked.exclusive else []
    flags += ["requeue" if _starts_again(job) else "no-requeue"]
    flags += ["no-kill"] if job.elastic else []
    return [*(f"{name}={value}" for name, value in said.items() if value), *flags]


def _cpus(job: Job) -> str | None:
    return f"{-(-cpus_of(job.resources.cpu) // 1):g}" if job.resources.cpu else None


def _time(seconds: int) -> str:
    """D-HH:MM:SS; Slurm itself counts minutes."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"


def _starts_again(job: Job) -> bool:
    return bool(job.restarts) and not job.elastic


def _again(job: Job) -> list[str]:
    """Slurm puts a job into the queue again without end, and says how often it did."""
    if not _starts_again(job):
        return []
    said = f"{job.name}: a node was lost once more after {job.restarts} restarts: it is not started again."
    return [
        f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt {job.restarts} ]; then',
        f"    echo {shlex.quote(said)} >&2",
        f"    exit {NODE_LOST}",
        "fi",
    ]


def _start(job: Job, command: str) -> list[str]:
    """`run` misses a node long before Slurm does by its default (SlurmdTimeout), and says so by its exit code.

    SIGTERM, by which a job is cancelled or its time is over, must not end the script before srun, whose code counts.
    """
    if not _starts_again(job) or job.command:  # a command's 89 is its own
        return [f"exec {command}"]
    left = f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {job.restarts} ]'
    return [
        "told='' code=0",
        "trap 'told=1' TERM",
        f"{command} || code=$?",
        f'if [ "$code" -eq {NODE_LOST} ] && [ -z "$told" ] && {left}; then',
        f"    echo {shlex.quote(f'{job.name}: a node was lost: the job goes into the queue again.')} >&2",
        '    scontrol requeue "$SLURM_JOB_ID" && exec sleep infinity',  # until Slurm has ended this script
        "fi",
        'exit "$code"',
    ]


def _srun(job: Job, names: list[str]) -> list[str]:
    """In an elastic job a task that ends is a node that left. A site's own defaults count for none of these options."""
    cpus, wait = _cpus(job), 0 if job.elastic else max(grace_of(job), _APART)
    return [
        "srun",
        *(["--no-kill"] if job.elastic else []),
        "--kill-on-bad-exit=0",
        f"--wait={wait}",
        *(["--label"] if job.most_nodes > 1 else []),
        "--mpi=none",
        *([f"--cpus-per-task={cpus}"] if cpus else []),  # Slurm 22.05 and newer forget it between job and step
        f"--export={','.join(['PATH', 'HOME', *names])}",
    ]
