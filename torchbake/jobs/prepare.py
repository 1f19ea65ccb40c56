"""The preparation of a job for a target: its images by the matrix, and its files. Reads files, asks no network."""

import os
import posixpath
from collections.abc import Callable, Collection
from pathlib import Path

from torchbake.errors import SelectorError, UsageError
from torchbake.jobs.expressible import Problem, Target
from torchbake.jobs.job_files import layer_files, read_files
from torchbake.jobs.load import job_problems
from torchbake.jobs.model import Job
from torchbake.jobs.task import CodeFolder, Task
from torchbake.matrix.platforms import one_of_each_tag, platform_tag
from torchbake.matrix.project import Project
from torchbake.matrix.select import select
from torchbake.matrix.spec import ImageSpec, Spec, pytorch_of
from torchbake.matrix.yaml_source import Document
from torchbake.oci.reference import is_reference, parse_reference
from torchbake.oci.tag_names import parse_immutable

Refer = Callable[[Spec], str]


def prepare(job: Job, document: Document, target: Target, project: Project | None, refer: Refer) -> Task:
    """Resolve the images and the files of a job. Raises JobError.

    ``refer`` returns the reference of an image of the matrix. Without a project the job must name a reference itself.
    """
    problems: list[Problem] = []
    image, spec = _image(job, project, refer, problems)
    ours = not job.command or not is_reference(job.image)
    folder = _folder(job, "folder", document, problems)
    code = _code(job, document, problems)
    init_image = _init_image(job, project, refer, problems)
    contents = _contents(job, document, folder, problems) if folder and target.CARRIES_FILES and not problems else {}
    if problems:
        raise job_problems(document, problems)
    uid = spec.own.user.uid if spec else 1001
    return Task(
        job=job, image=image, init_image=init_image, uid=uid, ours=ours, folder=folder, code=code, contents=contents
    )


def _image(job: Job, project: Project | None, refer: Refer, problems: list[Problem]) -> tuple[str, ImageSpec | None]:
    """Return the image's reference, and its spec if it is an image of the matrix."""
    try:
        spec = _of_reference(job.image, project) if is_reference(job.image) else _of_words(job.image, project)
    except (SelectorError, UsageError) as error:
        problems.append((("image",), error.sentence))
        return "", None
    if spec and job.resources.gpu and spec.family == "cpu":
        problems.append((("resources", "gpu"), f"{job.resources.gpu} for {spec.id}, a CPU image: choose a CUDA one"))
    return (refer(spec) if spec and not is_reference(job.image) else job.image), spec


def _of_reference(text: str, project: Project | None) -> ImageSpec | None:
    """Return the matrix's image that a reference names in any registry."""
    reference = parse_reference(text)
    if project is None:
        return None
    name, tag = reference.repository.path.rpartition("/")[2], reference.tag
    ours = [spec for spec in pytorch_of(project.expansion.specs) if name == spec.repository.rpartition("/")[2]]
    return next((spec for spec in ours if tag in project.tags[spec.id] or _is_release(tag, spec)), None)


def _is_release(tag: str, spec: ImageSpec) -> bool:
    """Return whether a tag is that of a release of an image, or of the index of its platforms."""
    release = parse_immutable(tag)
    return release is not None and release.name in (spec.own_tag, platform_tag(spec))


def _of_words(text: str, project: Project | None) -> ImageSpec:
    """Return the image with a rolling tag, or the only image that a selector chooses."""
    if project is None:
        raise UsageError(
            f"{text!r} names an image of a matrix, but no matrix was found: name its file, or write a reference"
        )
    specs = pytorch_of(project.expansion.specs)
    holder = next((spec for spec in specs if text in project.tags[spec.id]), None)
    if holder:
        return holder
    image_specs = one_of_each_tag(pytorch_of(select(project.expansion.specs, text.split(), project.tags).specs))
    if len(image_specs) != 1:
        names = ", ".join(spec.id for spec in image_specs[:3]) + (", …" if len(image_specs) > 3 else "")
        raise SelectorError(f"{text!r} means {len(image_specs)} images ({names}): name one")
    return image_specs[0]


def _init_image(job: Job, project: Project | None, refer: Refer, problems: list[Problem]) -> str:
    """Return the matrix's volume-permissions if a volume needs it, else an empty text."""
    asking = next((place for place, volume in enumerate(job.volumes) if volume.permissions), None)
    if asking is None:
        return ""
    for spec in project.expansion.specs if project else ():
        if spec.template == "volume-permissions":
            return refer(spec)
    text = "needs the init image volume-permissions, which the matrix does not have: add it"
    problems.append((("volumes", asking, "permissions"), text))
    return ""


def _folder(job: Job, key: str, document: Document, problems: list[Problem]) -> Path | None:
    """Return the folder of a key of `files`. It must have the script."""
    text = getattr(job.files, key)
    if not text:
        return None
    folder = Path(os.path.normpath(document.path.absolute().parent / text))
    if not os.path.isdir(folder):  # noqa: PTH112 - unlike Path.is_dir it is never an error
        problems.append((("files", key), f"{folder} is not a folder, or cannot be read: correct the path"))
    elif job.script and not os.path.isfile(folder / job.script) and not job.script.startswith("/"):  # noqa: PTH113
        problems.append((("script",), f"{job.script} is not in {folder}"))
    return folder


def _contents(job: Job, document: Document, folder: Path, problems: list[Problem]) -> dict[str, bytes]:
    """Return the files that the manifest carries. A script that is left out is a problem."""
    contents = read_files(folder, job.files, document.path.absolute(), problems)
    _check_script(job, contents, f"{folder}, but none of the files that the manifest carries", problems)
    return contents


def _code(job: Job, document: Document, problems: list[Problem]) -> CodeFolder | None:
    """Return the files of `files.layer`. A layer without the script is a problem."""
    folder = _folder(job, "layer", document, problems)
    if folder is None or problems:
        return None
    names = layer_files(folder, job.files, document.path.absolute(), problems)
    _check_script(job, names, f"{folder}, but none of the files of the layer", problems)
    return CodeFolder(folder=folder, names=names)


def _check_script(job: Job, names: Collection[str], where: str, problems: list[Problem]) -> None:
    script = posixpath.normpath(job.script or "/")
    if not problems and not script.startswith("/") and script not in names:
        why = "add its path to `files.include`, or correct `files`, .gitignore or .dockerignore"
        problems.append((("script",), f"{script} is in {where}: {why}"))
