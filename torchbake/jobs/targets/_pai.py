"""What both protocols of OpenPAI have in common: one task role, whose tasks are the nodes. Pure."""

import shlex
from math import ceil

from torchbake.jobs import model
from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of
from torchbake.jobs.targets.shell_text import export
from torchbake.jobs.task import restarts, variables

ROLE = "main"
PORT_LABEL = "master"  # by which `run` finds the port that OpenPAI reserved
MOST_NODES = model.MOST_NODES  # OpenPAI itself names no limit
_OF_KUBERNETES = "OpenPAI places tasks itself"
_MARK = "<%"  # begins a reference to parameters and secrets, wherever it stands

CANNOT = (
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
)
NEEDS = (
    Needs(key="resources.cpu", why="each task reserves CPUs"),
    Needs(key="resources.memory", why="each task reserves memory"),
)


def cpus(job: Job) -> int:
    return ceil(cpus_of(job.resources.cpu or "1"))


def commands(job: Job) -> list[str]:
    """Lines of a shell. OpenPAI has no place for variables; it counts the nodes itself, but not the processes."""
    counts = {"NPROC_PER_NODE": job.per_node} if job.distributed else {}
    elastic = {"ELASTIC": job.elastic, **restarts(job)} if job.elastic else {}
    env = variables(job) | counts | elastic
    return [*(export(name, value) for name, value in env.items()), shlex.join(job.command)]
