"""Container runtimes of Slurm: Apptainer, Pyxis with Enroot, or Slurm's own support of OCI bundles. Pure.

The image's entrypoint is called by its path: Apptainer and Slurm do not run it, and Pyxis only if the site enables it.

Sources: https://apptainer.org/docs/user/latest/bind_paths_and_mounts.html; NVIDIA/pyxis, args.c;
https://slurm.schedmd.com/containers.html
"""

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping

from torchbake.core.paths import JOB_FOLDER
from torchbake.errors import JobError
from torchbake.jobs.targets._apptainer import code_mount, made_once, split_once, without_tag
from torchbake.jobs.task import Task, rank_variables, workdir_of
from torchbake.matrix.spec import TOOLBOX
from torchbake.oci.reference import parse_reference

HOSTS = ("PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
# The PATH of a CUDA devel image, which has one folder more than other images.
_OWN = f"/opt/venv/bin:/pytorch/bin:/usr/local/cuda/bin:/packages/bin:{TOOLBOX}"
_PATH = f"{_OWN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Runtime(ABC):
    def before(self, task: Task) -> list[str]:
        """Return lines of the script before the nodes start."""
        return []

    @abstractmethod
    def command(self, task: Task) -> str:
        """Return the command for `srun`."""


class Apptainer(Runtime):
    """Runs a SIF file: an existing one, or one that the script converts once for all nodes and jobs.

    The code of a job is a separate small file, which Apptainer mounts. So an edit converts no image.

    The user's home is not mounted, since Python would find packages in ~/.local before those of the image.
    """

    def before(self, task: Task) -> list[str]:
        if task.job.slurm.image:
            return [f"image={shlex.quote(task.job.slurm.image)}"]
        if task.split:
            return split_once(task.job.name, task.image, task.split)
        return made_once(task.job.name, task.image)

    def command(self, task: Task) -> str:
        words = ["apptainer", "exec", "--no-mount", "home,cwd"]
        folder = workdir_of(task.job) or ("/app" if task.ours else "")
        words += ["--pwd", folder] if folder else []
        words += ["--nv"] if task.job.resources.gpu else []
        for source, target, read_only in _mounts(task):
            # Apptainer parses the value as CSV, with quotes.
            quoted = '"source={}"'.format(source.replace('"', '""'))
            words += ["--mount", f"type=bind,{quoted},destination={target}" + (",ro" if read_only else "")]
        code = f"{code_mount()} " if task.split else ""  # not quoted again: it has a variable of the script
        return f'{shlex.join(words)} {code}"$image" {shlex.join(_run(task))}'


class Pyxis(Runtime):
    """Pulls the image on each node, or runs a squashfs file that all nodes see."""

    def command(self, task: Task) -> str:
        mounts = _mounts(task)
        for source, target, _ in mounts:
            if re.search(r"[\s,:]", source + target):
                raise JobError(
                    f"{source} cannot be mounted by Pyxis, which takes no space, comma or colon in a path.",
                    hint="Give the folder another name, or use the runtime apptainer.",
                )
        words = [f"--container-image={task.job.slurm.image or _enroot_of(task.image)}"]
        texts = [f"{source}:{target}" + (":ro" if read_only else "") for source, target, read_only in mounts]
        words += [f"--container-mounts={','.join(texts)}"] if mounts else []
        words += [f"--container-workdir={workdir_of(task.job)}"] if workdir_of(task.job) else []
        words += ["--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint"]
        return shlex.join([*words, *_run(task)])


class Oci(Runtime):
    """Runs a bundle that all nodes see. Slurm replaces its environment, so the command sets the image's PATH again."""

    def command(self, task: Task) -> str:
        words = [f"--container={task.job.slurm.image}", "/usr/bin/env"]
        words += [f"--chdir={workdir_of(task.job)}"] if workdir_of(task.job) else []
        words += [f"PATH={_PATH}"] if task.ours else []
        return shlex.join([*words, *_run(task)])


RUNTIMES: Mapping[str, Runtime] = {"apptainer": Apptainer(), "pyxis": Pyxis(), "oci": Oci()}


def _run(task: Task) -> tuple[str, ...]:
    first = (f"{TOOLBOX}/entrypoint",) if task.ours else ()
    job = task.job
    if job.command and job.distributed and not job.elastic:  # torchrun does not read Slurm's own number of a node
        (name,) = rank_variables(job, 0)
        first = (*first, "sh", "-c", f'export {name}="$SLURM_NODEID"; exec "$@"', "sh")
    return (*first, *job.words)


def _mounts(task: Task) -> list[tuple[str, str, bool]]:
    """Return source, target, and True for a read-only mount. Slurm has no claims."""
    files = [(str(task.folder), JOB_FOLDER, True)] if task.folder else []
    return files + [(each.host_path, each.mount_path, each.read_only) for each in task.job.volumes if each.host_path]


def _enroot_of(image: str) -> str:
    """Return a reference as HOST#PATH:TAG; without a host Enroot asks Docker Hub."""
    reference = parse_reference(without_tag(image))
    host = "" if reference.repository.host == "docker.io" else f"{reference.repository.host}#"
    return host + reference.repository.path + (f"@{reference.digest}" if reference.digest else f":{reference.tag}")
