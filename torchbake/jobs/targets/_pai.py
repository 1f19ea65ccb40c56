"""The common part of OpenPAI's two protocols: one task role, whose tasks are the nodes. Pure."""

import shlex
from collections.abc import Callable, Iterable
from math import ceil

from torchbake.jobs import model
from torchbake.jobs.expressible import CHOICE_OF_FILES, OF_KUBERNETES, OF_PODS, Cannot, Needs, cannot, whole_cpus
from torchbake.jobs.model import Job
from torchbake.jobs.quantities import cpus_of
from torchbake.jobs.targets.shell_text import export
from torchbake.jobs.task import counts, elastic, master, rank_variables, variables

ROLE = "main"
PORT_LABEL = "master"  # the label by which `run` finds the port that OpenPAI reserved
MOST_NODES = model.MOST_NODES  # OpenPAI itself has no limit


def _referring(key: str, texts: Callable[[Job], Iterable[str]]) -> Cannot:
    """A key whose texts hold `<%`, which begins a reference to parameters and secrets anywhere in a job of OpenPAI."""
    return Cannot(
        key=key,
        why="<% begins a reference of OpenPAI's own: put such a text into a file",
        when=lambda job: any("<%" in text for text in texts(job)),
        only="with <% in it",
    )


CANNOT = (
    *CHOICE_OF_FILES,
    _referring("command", lambda job: job.command),
    _referring("args", lambda job: job.args),
    _referring("env", lambda job: job.env.values()),
    Cannot(key="files.folder", why="OpenPAI mounts none of your folders; name the files by `git`"),
    Cannot(key="files.configMap", why="OpenPAI has no ConfigMaps; name the files by `git`"),
    Cannot(key="volumes", why="OpenPAI mounts the storage of your group of users below /mnt by itself"),
    Cannot(key="secrets", why="OpenPAI takes their values in the job itself; add them where you submit the job"),
    whole_cpus("OpenPAI"),
    Cannot(key="port", why="OpenPAI reserves a port of each host, and `run` uses that port"),
    Cannot(key="timeouts.job", why="OpenPAI has no limit of time"),
    Cannot(
        key="restarts",
        why="OpenPAI replaces lost nodes by itself, and retries would also restart a failed script",
        when=lambda job: not job.elastic,
        only="of a job that is not elastic",
    ),
    Cannot(key="labels", why="a job has no place for them; set its tags where you submit it"),
    Cannot(key="annotations", why="a job has no place for them"),
    Cannot(key="pullSecrets", why="OpenPAI takes the login in the job itself; add it where you submit the job"),
    *cannot((*OF_PODS, *OF_KUBERNETES), "OpenPAI places tasks itself"),
)
NEEDS = (
    Needs(key="resources.cpu", why="each task reserves CPUs"),
    Needs(key="resources.memory", why="each task reserves memory"),
)


def cpus(job: Job) -> int:
    return ceil(cpus_of(job.resources.cpu or "1"))


def commands(job: Job) -> list[str]:
    """Return lines of a shell, since OpenPAI has no place for variables. It sets the number of nodes itself."""
    processes = {"NPROC_PER_NODE": job.per_node} if job.distributed else {}
    env = variables(job) | (counts(job) if job.command else processes | elastic(job))
    lines = [export(name, value) for name, value in env.items()]
    if job.command:  # torchrun does not read OpenPAI's own variables, which `run` does
        port = f"$PAI_PORT_LIST_{ROLE}_0_{PORT_LABEL}"
        group = master(job, f"$PAI_HOST_IP_{ROLE}_0", port) | rank_variables(
            job, "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
        )
        lines += [f'export {name}="{value}"' for name, value in group.items()]
    lines += [f"cd {shlex.quote(job.workdir)}"] if job.workdir else []
    is_line = job.words[:2] == ("sh", "-c") and len(job.words) == 3  # which OpenPAI's own shell reads
    return [*lines, job.words[2] if is_line else shlex.join(job.words)]
