"""Slurm: a script for `sbatch` with one task for each node, which starts the processes of the node.

`srun --export` lists the variables of the tasks besides Slurm's own, so that no other variable of the user's shell gets
into a container. A lost node puts the job into the queue again. With `--kill-on-bad-exit` srun would return SIGTERM in
place of the script's code. So `run` ends all nodes after a failure, and srun ends the remaining tasks some time after
the end of the first (`--wait`).

Sources: https://slurm.schedmd.com/sbatch.html, srun.html and scontrol.html; SchedMD/slurm,
src/slurmd/slurmstepd/container.c (a bundle's own environment is replaced).
"""

import shlex

from torchbake.jobs import model
from torchbake.jobs.expressible import CHOICE_OF_FILES, OF_KUBERNETES, Cannot, Needs, cannot, whole_cpus
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of, mebibytes_of
from torchbake.jobs.targets._slurm_runtimes import HOSTS, RUNTIMES
from torchbake.jobs.targets.shell_text import export, secret_variable
from torchbake.jobs.task import NODE_LOST, Task, counts, elastic, grace_of, in_container, master

NAME = "slurm"
ABOUT = "a script for sbatch, for Apptainer, Pyxis and Enroot, or an OCI bundle"
MOST_NODES = model.MOST_NODES  # a partition has a limit of its configuration
CARRIES_FILES = False
_APART = 45  # seconds between the end of the first node and of the last, as `run` ends them: docs/explanation/ddp.md
_LONGEST_SIGNAL = 65535  # seconds before the limit, the most that sbatch takes


def _of_bundle(key: str, why: str) -> Cannot:
    return Cannot(key=key, why=why, when=lambda job: job.slurm.runtime == "oci", only="with the runtime oci")


CANNOT: tuple[Cannot, ...] = (
    *CHOICE_OF_FILES,
    _of_bundle("files.folder", "the mounts of a bundle are in its config.json; name the files by `git`"),
    Cannot(
        key="files.layer",
        why="becomes a layer of `image`, and the nodes start the file slurm.image: remove it, or use `folder` or `git`",
        when=lambda job: bool(job.slurm.image),
        only="with slurm.image",
    ),
    Cannot(key="files.configMap", why="Slurm has no ConfigMaps; name the files by `folder` or `git`"),
    _of_bundle("volumes", "the mounts of a bundle are in its config.json"),
    Cannot(key="volumes[].claim", why="Slurm has no claims; name a folder of shared storage by `hostPath`"),
    *cannot(
        ("volumes[].size", "volumes[].storageClass", "volumes[].accessMode"),
        "Slurm creates no storage; name a folder of shared storage by `hostPath`",
    ),
    Cannot(key="volumes[].permissions", why="a container runs as the user, and can write where the user can"),
    Cannot(
        key="env",
        why=f"{' and '.join(HOSTS)} would also change the host's programs that start containers: set it in the script",
        when=lambda job: not job.env.keys().isdisjoint(HOSTS),
        only=f"of {' and '.join(HOSTS)}",
    ),
    whole_cpus("Slurm"),
    Cannot(key="resources.shm", why="a container has the host's /dev/shm"),
    Cannot(key="resources.rdma", why="containers have the hosts' devices; Enroot: MELLANOX_VISIBLE_DEVICES in `env`"),
    Cannot(
        key="timeouts.stop",
        why=f"Slurm can ask a job to stop at most {_LONGEST_SIGNAL} seconds before its time is over",
        when=lambda job: grace_of(job) > _LONGEST_SIGNAL,
        only=f"of more than {_LONGEST_SIGNAL} seconds",
    ),
    Cannot(key="priority", why="Slurm has qualities of service: write slurm.qos"),
    Cannot(key="nodeSelector", why="Slurm has constraints: write slurm.constraint"),
    Cannot(key="annotations", why="a job of Slurm has only a comment, which holds the labels"),
    Cannot(key="pullSecrets", why="log in by `apptainer registry login`, or in Enroot's .credentials"),
    *cannot(
        ("tolerations", "affinity", "serviceAccount", *OF_KUBERNETES),
        "only Kubernetes has this; the keys for Slurm are below `slurm`",
    ),
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
    first_node = _first_node(job)
    env = {name: value for name, value in environment(job).items() if name not in first_node}
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{option}" for option in _options(job)),
        f"# {job.name}: sbatch FILE; it ends with the job's exit code.",
        "set -euo pipefail",
        *(secret_variable(name, key, "export it before sbatch") for name, key in job.secrets.items()),
        *_restart_limit(job),
        *runtime.before(task),
        *(export(name, value) for name, value in env.items()),
    ]
    if first_node:
        lines.append('read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")')
        lines += [f'export {name}="{value}"' for name, value in first_node.items()]
    # Not quoted again: it may hold a variable of the script, with the image's path.
    command = f"{shlex.join(_srun(job, [*env, *first_node, *job.secrets]))} {runtime.command(task)}"
    return "\n".join([*lines, *_start(job, command), ""])


def environment(job: Job) -> dict[str, str]:
    """Return the variables that Slurm does not set itself: it sets the number of nodes, and names the first."""
    if not job.distributed:
        return in_container(job)
    if job.command:
        return in_container(job) | counts(job) | master(job, "")
    group = elastic(job) | {"NPROC_PER_NODE": job.per_node, "MASTER_PORT": str(job.port)}
    return in_container(job) | group


def _first_node(job: Job) -> dict[str, str]:
    """Return torchrun's variables with the first node, which bash has read from Slurm's list of nodes into `first`."""
    group = master(job, "$first") if job.command else {}
    return {name: value for name, value in group.items() if "$first" in value}


def _options(job: Job) -> list[str]:
    slurm, resources = job.slurm, job.resources
    options = {
        "job-name": job.name,
        "comment": ",".join(f"{key}={value}" for key, value in job.labels.items()),
        "output": "%x-%j.out",
        "open-mode": "append",  # output from before a lost node stays
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": f'"{slurm.constraint}"' if slurm.constraint else None,
        "nodes": job.elastic.replace(":", "-") if job.elastic else str(job.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": _cpus(job),
        "mem": f"{mebibytes_of(resources.memory)}M" if resources.memory else None,
        "gpus-per-node": str(resources.gpu) if resources.gpu else None,
        "time": _time(job.timeouts.job) if job.timeouts.job else None,
        "signal": f"TERM@{min(grace_of(job), _LONGEST_SIGNAL)}",
    }
    flags = ["exclusive"] if slurm.exclusive else []
    flags += ["requeue" if _restarts(job) else "no-requeue"]
    flags += ["no-kill"] if job.elastic else []
    return [*(f"{name}={value}" for name, value in options.items() if value), *flags]


def _cpus(job: Job) -> str | None:
    return f"{-(-cpus_of(job.resources.cpu) // 1):g}" if job.resources.cpu else None


def _time(seconds: int) -> str:
    """Format seconds as D-HH:MM:SS, since Slurm reads a plain number as minutes."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"


def _restarts(job: Job) -> bool:
    return bool(job.restarts) and not job.elastic


def _restart_limit(job: Job) -> list[str]:
    """Return the lines that end a job after its last restart, since Slurm itself has no limit."""
    if not _restarts(job):
        return []
    message = f"{job.name}: a node was lost once more after {job.restarts} restarts: it is not started again."
    return [
        f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt {job.restarts} ]; then',
        f"    echo {shlex.quote(message)} >&2",
        f"    exit {NODE_LOST}",
        "fi",
    ]


def _start(job: Job, command: str) -> list[str]:
    """Return the lines that start the nodes, and put the job into the queue again if `run` reports a lost node.

    `run` notices a lost node long before Slurm does by its default (SlurmdTimeout). SIGTERM, which ends a job that is
    cancelled or late, must not end the script before srun, which has the exit code.
    """
    if not _restarts(job) or job.command:  # a command may use the exit code 89 itself
        return [f"exec {command}"]
    left = f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {job.restarts} ]'
    return [
        "stopping='' code=0",
        "trap 'stopping=1' TERM",
        f"{command} || code=$?",
        f'if [ "$code" -eq {NODE_LOST} ] && [ -z "$stopping" ] && {left}; then',
        f"    echo {shlex.quote(f'{job.name}: a node was lost: the job goes into the queue again.')} >&2",
        '    scontrol requeue "$SLURM_JOB_ID" && exec sleep infinity',  # until Slurm has ended this script
        "fi",
        'exit "$code"',
    ]


def _srun(job: Job, names: list[str]) -> list[str]:
    """Return srun with options that override a site's defaults. An elastic job goes on after the end of a task."""
    cpus, wait = _cpus(job), 0 if job.elastic else max(grace_of(job), _APART)
    return [
        "srun",
        *(["--no-kill"] if job.elastic else []),
        "--kill-on-bad-exit=0",
        f"--wait={wait}",
        *(["--label"] if job.most_nodes > 1 else []),
        "--mpi=none",
        *([f"--cpus-per-task={cpus}"] if cpus else []),  # from Slurm 22.05 on a step does not inherit it from its job
        f"--export={','.join(['PATH', 'HOME', *names])}",
    ]
