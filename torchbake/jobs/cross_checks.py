"""Contradictions between keys of a job, one sentence each. Pure."""

from collections.abc import Iterator

from torchbake.core.paths import JOB_FOLDER
from torchbake.jobs.field_types import Volume
from torchbake.jobs.model import STANDALONE, Job
from torchbake.jobs.quantities import bytes_of
from torchbake.matrix.yaml_source import Location

Problem = tuple[Location, str]


def cross_checks(job: Job) -> list[Problem]:
    """Return every contradiction, with the key to correct."""
    checks = (_program, _nodes, _files, _volumes, _tolerations)
    matches = [problem for check in checks for problem in check(job)]
    for name in sorted(job.env.keys() & job.secrets.keys()):
        matches.append((("env", name), "is a variable of `secrets` too: keep one of them"))
    shm, memory = job.resources.shm, job.resources.memory
    if shm and memory and bytes_of(shm) > bytes_of(memory):
        matches.append((("resources", "shm"), f"{shm} is part of the memory, which is {memory}: correct one of them"))
    if job.slurm.runtime == "oci" and not job.slurm.image:
        why = "starts a bundle, a folder with config.json and rootfs: name the bundle in slurm.image"
        matches.append((("slurm", "runtime"), why))
    return matches


def _program(job: Job) -> Iterator[Problem]:
    first, *more = [key for key in ("script", "module", "command") if getattr(job, key)] or [""]
    for key in more:
        yield (key,), f"is named besides `{first}`: keep one of them"
    if not first:
        yield (), "has none of `script`, `module` and `command`: name the program"
    if job.workdir and not job.workdir.startswith("/") and not job.files.at_job:
        yield ("workdir",), f"{job.workdir} is relative, and no `files` are at {JOB_FOLDER}: write an absolute path"
    if not job.command:
        return
    if job.args:
        yield ("args",), "are arguments of a script: write them in `command`"
    if job.files.git:
        yield ("files", "git"), "is fetched by `run`, which does not start a `command`: fetch it in the command"
    for key in ("rendezvous", "group"):
        if key in job.timeouts.model_fields_set:
            yield ("timeouts", key), "is a limit of `run`, which does not start a `command`: remove it"


def _nodes(job: Job) -> Iterator[Problem]:
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
    files = job.files
    sources = {"folder": files.folder, "layer": files.layer, "configMap": files.config_map, "git": files.git}
    keys = [key for key, source in sources.items() if source is not None]
    if len(keys) > 1:
        yield ("files",), f"names several sources, {' and '.join(keys)}: keep one"
    for key in ("include", "exclude"):
        if getattr(files, key) and not (files.folder or files.layer):
            yield ("files", key), "selects files of a `folder` or a `layer`: set one of them, or remove this key"
    if files.git and "GIT_REPOSITORY" in job.secrets:
        yield ("secrets", "GIT_REPOSITORY"), "is the repository that `files.git` names too: keep one of them"
    if files.at_job and "GIT_REPOSITORY" in job.secrets:
        yield ("secrets", "GIT_REPOSITORY"), "is a second source of files besides `files`: keep one of them"


def _volumes(job: Job) -> Iterator[Problem]:
    mounted = set[str]()
    for place, volume in enumerate(job.volumes):
        yield from ((("volumes", place, key), text) for key, text in _volume(volume, job.account))
        if volume.mount_path in mounted:
            yield ("volumes", place, "mountPath"), f"{volume.mount_path} is the place of another volume: name another"
        mounted.add(volume.mount_path)


def _volume(volume: Volume, account: str | None) -> Iterator[tuple[str, str]]:
    if volume.host_path and (volume.claim or volume.size):
        yield "hostPath", "is a folder of the host, and `claim` or `size` is a claim: keep one of them"
    if not (volume.host_path or volume.claim or volume.size):
        yield "mountPath", f"{volume.mount_path} has no source: set `claim`, `size` or `hostPath`"
    for key, value in (("storageClass", volume.storage_class), ("accessMode", volume.access_mode)):
        if value and not volume.size:
            yield key, "is for a claim that the job creates: set its `size`, or remove this key"
    if volume.permissions and volume.read_only:
        yield "permissions", "makes the volume writable, and `readOnly` forbids to write: keep one of them"
    if volume.permissions and account:
        why = "makes a volume writable for a uid, and `account: cluster` leaves the uid open: keep one of them"
        yield "permissions", why


def _tolerations(job: Job) -> Iterator[Problem]:
    for place, toleration in enumerate(job.tolerations):
        if toleration.operator == "Exists" and toleration.value is not None:
            yield ("tolerations", place, "value"), "has no effect with the operator Exists: remove one of them"
        if toleration.operator == "Equal" and toleration.key is None:
            why = "tolerates any taint only with the operator Exists: set the operator, or a `key`"
            yield ("tolerations", place), why
