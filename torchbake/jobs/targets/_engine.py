"""Containers of one engine on a network for the job: the common part of docker, compose and swarm. Pure."""

from torchbake.core.paths import JOB_FOLDER
from torchbake.jobs.expressible import CHOICE_OF_FILES, OF_KUBERNETES, OF_PODS, Cannot, cannot, restarts_unless_elastic
from torchbake.jobs.field_types import Volume
from torchbake.jobs.model import Job
from torchbake.jobs.task import claim_of, counts, in_container, master, node_name, rank_variables

MOST_NODES = 1000  # a bridge of Linux has 1023 ports

CANNOT = (
    *CHOICE_OF_FILES,
    Cannot(key="files.configMap", why="an engine has no ConfigMaps; name the files by `folder` or `git`"),
    Cannot(key="volumes[].size", why="an engine's volumes have no size; name a volume by `claim`"),
    Cannot(key="volumes[].storageClass", why="an engine has one kind of volume"),
    Cannot(key="volumes[].accessMode", why="an engine's volumes can be written by all its containers"),
    restarts_unless_elastic("an engine would also restart a script that failed by itself"),
    Cannot(key="annotations", why="containers have labels alone"),
    Cannot(key="pullSecrets", why="log in by `docker login`"),
    *cannot((*OF_PODS, *OF_KUBERNETES), "an engine has no pods; only Kubernetes has this"),
)


def environment(job: Job, rank: int) -> dict[str, str]:
    """Return a node's variables, without those of secrets."""
    return in_container(job) | counts(job) | rank_variables(job, rank) | master(job, node_name(job, 0))


def gpus_of(job: Job, rank: int) -> list[str]:
    """Return the numbers of the machine's GPUs for a node, so that no two nodes share a GPU."""
    count = job.resources.gpu
    return [str(number) for number in range(rank * count, (rank + 1) * count)]


def source_of(job: Job, volume: Volume) -> tuple[str, str]:
    """Return the type of a volume's mount, and its source."""
    return ("bind", volume.host_path) if volume.host_path else ("volume", claim_of(job, volume))


def mounts_of(job: Job, folder: object) -> list[tuple[str, str, str, bool]]:
    """Return all mounts of a node: type, source, target, and True if it is read-only."""
    files = [("bind", str(folder), JOB_FOLDER, True)] if folder else []
    return files + [(*source_of(job, volume), volume.mount_path, volume.read_only) for volume in job.volumes]
