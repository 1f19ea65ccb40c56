"""What both protocols of OpenPAI have in common: one task role, whose tasks are the nodes. Pure."""

import shlex
from math import ceil

from torchbake.jobs import model
from torchbake.jobs.expressible import CHOICE_OF_FILES, OF_KUBERNETES, Cannot, Needs, cannot
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of
from torchbake.jobs.targets.shell_text import export
from torchbake.jobs.task import counts, elastic, master, ranked, variables

ROLE = "main"
PORT_LABEL = "master"  # by which `run` finds the port that OpenPAI reserved
MOST_NODES = model.MOST_NODES  # OpenPAI itself names no limit
_OF_KUBERNETES = "OpenPAI places tasks itself"
_MARK = "<%"  # begins a reference to parameters and secrets, wherever it stands

CANNOT = (
    *CHOICE_OF_FILES,
    Cannot(
        key="command",
        why="<% begins a reference of OpenPAI's own: give the program such a text in a file",
        when=lambda job: any(_MARK in word for word in job.command),
        only="with <% in it",
    ),
    Cannot(
        key="args",
        why="<% begins a reference of OpenPAI's own: give the script such a text in a file",
        when=lambda job: any(_MARK in word for word in job.args),
        only="with <% in it",
    ),
    Cannot(
        key="env",
        why="<% begins a reference of OpenPAI's own: give the script such a text in a file",
        when=lambda job: any(_MARK in value for value in job.env.values()),
        only="with <% in it",
    ),
    Cannot(key="files.folder", why="OpenPAI mounts none of your folders; name the files by `git`"),
    Cannot(key="files.configMap", why="OpenPAI has no ConfigMaps; name the files by `git`"),
    Cannot(key="volumes", why="storage is given to groups of users there; a job finds it below /mnt by itself"),
    Cannot(key="secrets", why="OpenPAI takes their values in the job itself; add them where you submit it"),
    Cannot(
        key="resources.cpu",
        why="OpenPAI counts whole CPUs",
        when=lambda job: bool(job.resources.cpu) and cpus_of(job.resources.cpu or "1") % 1 != 0,
        only="of parts of a CPU",
    ),
    Cannot(key="port", why="OpenPAI reserves a port of each host, and `run` takes that one"),
    Cannot(key="timeouts.job", why="OpenPAI stops nothing after a time"),
    Cannot(
        key="restarts",
        why="OpenPAI goes on after lost nodes by itself, and more retries would start a script again that failed",
        when=lambda job: not job.elastic,
        only="of a job that is not elastic",
    ),
    Cannot(key="priority", why="it is a setting of its schedulers, by virtual cluster"),
    Cannot(key="nodeSelector", why=_OF_KUBERNETES),
    Cannot(key="tolerations", why=_OF_KUBERNETES),
    Cannot(key="affinity", why=_OF_KUBERNETES),
    Cannot(key="labels", why="a job has no place for them; its tags are set where you submit it"),
    Cannot(key="annotations", why="a job has no place for them"),
    Cannot(key="serviceAccount", why=_OF_KUBERNETES),
    Cannot(key="pullSecrets", why="OpenPAI takes the login in the job itself; add it where you submit it"),
    *cannot(OF_KUBERNETES, _OF_KUBERNETES),
)
NEEDS = (
    Needs(key="resources.cpu", why="each task reserves CPUs"),
    Needs(key="resources.memory", why="each task reserves memory"),
)


def cpus(job: Job) -> int:
    return ceil(cpus_of(job.resources.cpu or "1"))


def commands(job: Job) -> list[str]:
    """Lines of a shell. OpenPAI has no place for variables; it counts the nodes itself, but not the processes."""
    counted = {"NPROC_PER_NODE": job.per_node} if job.distributed else {}
    env = variables(job) | (counts(job) if job.command else counted | elastic(job))
    lines = [*(export(name, value) for name, value in env.items()), *(_group(job) if job.command else [])]
    lines += [f"cd {shlex.quote(job.workdir)}"] if job.workdir else []
    return [*lines, _line(job.words)]


def _group(job: Job) -> list[str]:
    """Torchrun's variables, from those that OpenPAI sets and that only `run` reads."""
    port = f"$PAI_PORT_LIST_{ROLE}_0_{PORT_LABEL}"
    group = master(job, f"$PAI_HOST_IP_{ROLE}_0", port) | ranked(job, "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX")
    return [f'export {name}="{value}"' for name, value in group.items()]


def _line(words: tuple[str, ...]) -> str:
    """A line for the shell as it was written: OpenPAI's own shell reads it."""
    own = words[:2] == ("sh", "-c") and len(words) == 3
    return words[2] if own else shlex.join(words)
