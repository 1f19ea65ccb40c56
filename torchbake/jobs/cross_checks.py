"""What keys of a job cannot say together: one sentence each. Pure."""

from collections.abc import Iterator

from torchbake.jobs.field_types import Volume
from torchbake.jobs.model import STANDALONE, Job
from torchbake.jobs.quantities import bytes_of
from torchbake.matrix.yaml_source import Location

Problem = tuple[Location, str]


def cross_checks(job: Job) -> list[Problem]:
    """Every contradiction, with the key to correct."""
    parts = (
        _what_runs,
        _command,
        _workdir,
        _who_runs,
        _files,
        _account,
        _volumes,
        _variables,
        _memory,
        _tolerations,
        _slurm,
    )
    return [problem for part in parts for problem in part(job)]


def _what_runs(job: Job) -> Iterator[Problem]:
    first, *more = [key for key in ("script", "module", "command") if getattr(job, key)] or [""]
    for key in more:
        yield (key,), f"is named besides `{first}`: keep one of them"
    if not first:
        yield (), "has none of `script`, `module` and `command`: name what runs"


def _command(job: Job) -> Iterator[Problem]:
    """`run` does not start a command, so that nothing reads what is for `run`."""
    if not job.command:
        return
    if job.args:
        yield ("args",), "are words of a script: write them in `command`"
    if job.files.git:
        yield ("files", "git"), "is fetched by `run`, which does not start a `command`: fetch it in the command"
    for key in ("rendezvous", "group"):
        if key in job.timeouts.model_fields_set:
            yield ("timeouts", key), "is of `run`, which does not start a `command`: leave it out"


def _workdir(job: Job) -> Iterator[Problem]:
    mounted = job.files.folder or job.files.config_map
    if job.workdir and not job.workdir.startswith("/") and not mounted:
        yield ("workdir",), f"{job.workdir} is relative, and no `files` are mounted: write an absolute path"


def _account(job: Job) -> Iterator[Problem]:
    for place, volume in enumerate(job.volumes):
        if job.account and volume.permissions:
            why = "makes a volume writable for a uid, and `account: cluster` leaves the uid open: keep one of them"
            yield ("volumes", place, "permissions"), why


def _who_runs(job: Job) -> Iterator[Problem]:
    if job.elastic and "nodes" in job.model_fields_set:
        yield ("elastic",), "lets nodes come and go, and `nodes` gives them fixed ranks: keep one of them"
    if job.mode != STANDALONE:
        return
    if job.elastic:
        yield ("mode",), "standalone is one process, and `elastic` asks for several: correct one of them"
    if job.nodes > 1:
        yield ("mode",), f"standalone is one process, and `nodes` asks for {job.nodes}: correct one of them"
    if job.processes not in (None, "1"):
        yield ("mode",), f"standalone is one process, and `processes` asks for {job.processes}: correct one of them"


def _files(job: Job) -> Iterator[Problem]:
    named = [key for key in ("folder", "config_map", "git") if getattr(job.files, key) is not None]
    if len(named) > 1:
        keys = " and ".join("configMap" if key == "config_map" else key for key in named)
        yield ("files",), f"names several sources, {keys}: keep one"
    for key in ("include", "exclude"):
        if getattr(job.files, key) and not job.files.folder:
            yield ("files", key), "chooses files of a `folder`, and there is none: name it, or remove this key"
    if job.files.git and "GIT_REPOSITORY" in job.secrets:
        yield ("secrets", "GIT_REPOSITORY"), "is the repository that `files.git` names too: keep one of them"
    if (job.files.folder or job.files.config_map) and "GIT_REPOSITORY" in job.secrets:
        yield ("secrets", "GIT_REPOSITORY"), "is a second source of files besides `files`: keep one of them"


def _volumes(job: Job) -> Iterator[Problem]:
    for place, volume in enumerate(job.volumes):
        yield from ((("volumes", place, key), text) for key, text in _volume(volume))
    taken = set[str]()
    for place, volume in enumerate(job.volumes):
        if volume.mount_path in taken:
            yield ("volumes", place, "mountPath"), f"{volume.mount_path} is the place of another volume: name another"
        taken.add(volume.mount_path)


def _volume(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.host_path and (volume.claim or volume.size):
        yield "hostPath", "is a folder of the host, and `claim` or `size` is a claim: keep one of them"
    if not (volume.host_path or volume.claim or volume.size):
        yield "mountPath", f"nothing says what is mounted at {volume.mount_path}: name claim, size or hostPath"
    made = {"storageClass": volume.storage_class, "accessMode": volume.access_mode}
    for key, value in made.items():
        if value and not volume.size:
            yield key, "is of a claim that is made: give its `size`, or leave this out"
    if volume.permissions and volume.read_only:
        yield "permissions", "makes the volume writable, and `readOnly` forbids to write: keep one of them"


def _variables(job: Job) -> Iterator[Problem]:
    for name in sorted(job.env.keys() & job.secrets.keys()):
        yield ("env", name), "is a variable of `secrets` too: keep one of them"


def _memory(job: Job) -> Iterator[Problem]:
    shm, memory = job.resources.shm, job.resources.memory
    if shm and memory and bytes_of(shm) > bytes_of(memory):
        yield ("resources", "shm"), f"{shm} is part of the memory, which is {memory}: correct one of them"


def _tolerations(job: Job) -> Iterator[Problem]:
    for place, toleration in enumerate(job.tolerations):
        if toleration.operator == "Exists" and toleration.value is not None:
            yield ("tolerations", place, "value"), "has no effect with the operator Exists: remove one of them"
        if toleration.operator == "Equal" and toleration.key is None:
            yield ("tolerations", place), "without a `key` bears any taint, with the operator Exists alone: write that"


def _slurm(job: Job) -> Iterator[Problem]:
    if job.slurm.runtime == "oci" and not job.slurm.image:
        yield ("slurm", "runtime"), "starts a bundle, a folder with config.json and rootfs: name it by slurm.image"
