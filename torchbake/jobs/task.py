"""A job with its images and files resolved, and the variables and values that all targets share. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from torchbake.core.paths import JOB_FOLDER
from torchbake.jobs.field_types import Volume
from torchbake.jobs.model import DISTRIBUTED, STANDALONE, Job
from torchbake.jobs.quantities import mebibytes_of

CAPABILITIES = ("CHOWN", "FOWNER", "DAC_OVERRIDE")  # all that volume-permissions needs
NODE_LOST = 89  # the exit code of `run` after a node vanished
_RUN_ENDS = 15  # seconds that `run` itself needs to end, after the script's own time


@dataclass(frozen=True, kw_only=True)
class CodeFolder:
    """The files of `files.layer`, which become a layer of the image: their sorted names below a folder."""

    folder: Path
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SplitImage:
    """An image with code as two references with digests: the image below, and an image of the code alone."""

    base: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """The input of a target: the job, its images as references, and the folder with the job's files.

    ``contents`` are the files of that folder by path, for a target that carries them in the manifest. If ``image``
    still lacks the layer of `files.layer`, ``code`` is set. ``uid`` is the user of an image of torchbake. If ``ours``
    is false, torchbake did not build the image, and its user is unknown. ``split`` is set if ``image`` has code and the
    launcher mounts it.
    """

    job: Job
    image: str
    init_image: str = ""
    uid: int = 1001
    ours: bool = True
    folder: Path | None = None
    code: CodeFolder | None = None
    split: SplitImage | None = None
    contents: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The uid and the group for which volume-permissions makes volumes writable."""
        return f"{self.uid}:{self.uid}"

    @property
    def known_uid(self) -> int | None:
        """The uid that a manifest sets; None if the image or the cluster chooses it."""
        return self.uid if self.ours and not self.job.account else None

    @property
    def fixed(self) -> list[Volume]:
        """The volumes that volume-permissions makes writable."""
        return [volume for volume in self.job.volumes if volume.permissions]


def in_container(job: Job) -> dict[str, str]:
    """Return the variables of a container under every launcher, without the numbers of nodes and processes.

    An image of CUDA asks for all GPUs, and gets them if NVIDIA's runtime is the engine's default: `void` hides them.
    """
    hidden = {} if job.resources.gpu else {"NVIDIA_VISIBLE_DEVICES": "void"}
    return hidden | variables(job)


def variables(job: Job) -> dict[str, str]:
    """Return the variables of `run` under every launcher, and the job's own. A command gets only the job's own."""
    if job.command:
        return dict(job.env)
    matches = {"MODE": DISTRIBUTED if job.distributed else STANDALONE, "STOP_GRACE": str(job.timeouts.stop)}
    if job.distributed:
        matches["RENDEZVOUS_TIMEOUT"] = str(job.timeouts.rendezvous)
        matches["GROUP_TIMEOUT"] = str(job.timeouts.group)
    if job.files.at_job:
        matches["JOB_DIR"] = JOB_FOLDER
    if job.files.git:
        matches["GIT_REPOSITORY"] = job.files.git.repository
        matches["GIT_REVISION"] = job.files.git.revision
    return matches | job.env


def counts(job: Job) -> dict[str, str]:
    """Return the numbers of nodes and processes, for a launcher that does not set them itself."""
    if not job.distributed:
        return {}
    nodes = elastic(job) if job.elastic else {"NNODES": str(job.nodes)}
    return read_by(job, nodes | {"NPROC_PER_NODE": job.per_node})


def elastic(job: Job) -> dict[str, str]:
    """Return the number of nodes of an elastic job, and how often torchrun restarts their ranks."""
    if not job.elastic:
        return {}
    restarts = {"PET_MAX_RESTARTS": str(job.restarts)}
    if job.command:
        return {"NNODES": job.elastic, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": job.name, **restarts}
    return {"ELASTIC": job.elastic, **restarts}


def read_by(job: Job, group: Mapping[str, str]) -> dict[str, str]:
    """Name variables as the program reads them: `run` its own names, torchrun in a command PET_ names."""
    if not job.command:
        return dict(group)
    return {name if name.startswith("PET_") else f"PET_{name}": value for name, value in group.items()}


def node_name(job: Job, rank: int) -> str:
    """Return the name of a node and its host, for a launcher that names none itself."""
    return job.name if job.most_nodes == 1 else f"{job.name}-{rank}"


def rank_variables(job: Job, rank: int | str) -> dict[str, str]:
    """Return the variable with the number of a node. Nodes of an elastic job get their numbers at the rendezvous."""
    return read_by(job, {"NODE_RANK": str(rank)}) if job.distributed and not job.elastic else {}


def master(job: Job, address: str, port: str = "") -> dict[str, str]:
    """Return the variables with the address of node 0. A job of one node needs none.

    ``port`` is the launcher's choice; without it, it is the job's.
    """
    if not job.distributed:
        return {}
    port = port or str(job.port)
    if job.elastic and job.command:
        return {"PET_RDZV_ENDPOINT": f"{address if job.most_nodes > 1 else '127.0.0.1'}:{port}"}
    host = {"MASTER_ADDR": address} if job.most_nodes > 1 else {}
    return read_by(job, host | {"MASTER_PORT": port})


def workdir_of(job: Job) -> str:
    """Return the working folder in the container; empty for the image's own. A command starts in the job's files."""
    files = JOB_FOLDER if job.files.at_job else ""
    if job.workdir:
        return str(PurePosixPath(files or "/", job.workdir))
    return files if job.command else ""


def shm_of(job: Job) -> str:
    """Return the size of /dev/shm."""
    if job.resources.shm:
        return job.resources.shm
    return f"{max(1, mebibytes_of(job.resources.memory) // 2)}Mi" if job.resources.memory else "2Gi"


def grace_of(job: Job) -> int:
    """Return the seconds between the launcher's SIGTERM and its SIGKILL."""
    return job.timeouts.stop + _RUN_ENDS


def claim_of(job: Job, volume: Volume) -> str:
    """Return the name of a volume's claim."""
    unnamed = [each for each in job.volumes if not (each.claim or each.host_path)]
    if volume.claim or volume not in unnamed:
        return volume.claim or ""
    place = unnamed.index(volume)
    return f"{job.name}-data" + (f"-{place + 1}" if place else "")
