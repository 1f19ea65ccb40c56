"""What docker and compose have in common: containers of one engine, on a network of their own. Pure."""

from torchbake.jobs.expressible import CHOICE_OF_FILES, OF_KUBERNETES, Cannot, cannot, restarts_unless_elastic
from torchbake.jobs.field_types import Volume
from torchbake.jobs.model import Job
from torchbake.jobs.task import claim_of, counts, in_container, master, node_name, ranked
from torchbake.jobs.validators import JOB_FOLDER

MOST_NODES = 1000  # a bridge of Linux has 1023 ports
_OF_KUBERNETES = "an engine has no pods; it is Kubernetes' alone"

CANNOT = (
    *CHOICE_OF_FILES,
    Cannot(key="files.configMap", why="an engine has no ConfigMaps; name the files by `folder` or `git`"),
    Cannot(key="volumes[].size", why="an engine's volumes have no size; name a volume by `claim`"),
    Cannot(key="volumes[].storageClass", why="an engine has one kind of volume"),
    Cannot(key="volumes[].accessMode", why="an engine's volumes can be written by all its containers"),
    restarts_unless_elastic("an engine would start a script again that failed by itself"),
    Cannot(key="priority", why=_OF_KUBERNETES),
    Cannot(key="nodeSelector", why=_OF_KUBERNETES),
    Cannot(key="tolerations", why=_OF_KUBERNETES),
    Cannot(key="affinity", why=_OF_KUBERNETES),
    Cannot(key="annotations", why="containers have labels alone"),
    Cannot(key="serviceAccount", why=_OF_KUBERNETES),
    Cannot(key="pullSecrets", why="log in by `docker login`"),
    *cannot(OF_KUBERNETES, _OF_KUBERNETES),
)


def environment(job: Job, rank: int) -> dict[str, str]:
    """A node's variables, but for those of secrets."""
    return in_container(job) | counts(job) | ranked(job, rank) | master(job, node_name(job, 0))


def gpus_of(job: Job, rank: int) -> list[str]:
    """Which GPUs of the machine a node gets, by number: several nodes must not share any."""
    count = job.resources.gpu
    return [str(number) for number in range(rank * count, (rank + 1) * count)]


def source_of(job: Job, volume: Volume) -> tuple[str, str]:
    """The type of a mount, and what is mounted."""
    return ("bind", volume.host_path) if volume.host_path else ("volume", claim_of(job, volume))


def mounts_of(job: Job, folder: object) -> list[tuple[str, str, str, bool]]:
    """All mounts of a node: type, source, target, and whether it is read-only."""
    files = [("bind", str(folder), JOB_FOLDER, True)] if folder else []
    return files + [(*source_of(job, volume), volume.mount_path, volume.read_only) for volume in job.volumes]
