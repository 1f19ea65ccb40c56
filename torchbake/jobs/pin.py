"""The image of a job as a reference to one release: `repository:immutable-tag@digest`. Pure; look-ups are injected.

A target on this machine's engine uses the engine's image, so that an image of this machine alone can run there. For
any other target an image must be in a registry, or no other machine could pull it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torchbake.errors import JobError, RegistryError
from torchbake.jobs.expressible import Problem
from torchbake.jobs.foreign import lacks_run
from torchbake.jobs.load import job_problems
from torchbake.jobs.targets import compose, docker
from torchbake.jobs.task import Task
from torchbake.matrix.yaml_source import Document
from torchbake.oci.reference import Reference, names_host, parse_reference
from torchbake.oci.tag_names import parse_immutable

LEAVE = "or leave the image by its tag: --no-pin"
ON_THE_ENGINE = (docker.NAME, compose.NAME)  # the targets whose nodes run on this machine's engine


@dataclass(frozen=True, kw_only=True)
class ResolvedImage:
    """The image of a reference. ``tags`` are other tags of the same image in the same repository.

    An image of an engine has an empty ``digest`` if it came from no registry.
    An engine with the containerd store has a digest for every image, so ``sure`` is false: no registry may have it.
    The image has torchbake's label if ``ours`` is true; None means that its labels cannot be read.
    """

    digest: str
    tags: tuple[str, ...] = ()
    sure: bool = True
    ours: bool | None = None


Look = Callable[[Reference], ResolvedImage | None]


@dataclass(frozen=True, kw_only=True)
class Places:
    """The look-ups of images. ``registry`` raises RegistryError; ``engine`` finds nothing if no engine answers.

    ``here`` is true if the job runs on this engine, ``released`` if the user named a registry and so wants its release.
    """

    registry: Look
    engine: Look
    here: bool
    released: bool = False
    tell: Callable[[str], None] = field(default=lambda _: None)


def pin_task(task: Task, document: Document, places: Places) -> Task:
    """Return the task with pinned images.

    Raises JobError if an image cannot be pinned, and RegistryError if no registry answers.
    """
    problems: list[Problem] = []
    image, ours = _of_key(task.image, ("image",), places, problems)
    if ours is False and not task.job.command:
        problems.append((("module" if task.job.module else "script",), lacks_run(task.image)))
    asking = next((place for place, volume in enumerate(task.job.volumes) if volume.permissions), 0)
    init_image, _ = _of_key(task.init_image, ("volumes", asking, "permissions"), places, problems)
    if problems:
        raise job_problems(document, problems)
    return replace(task, image=image, init_image=init_image, ours=task.ours if ours is None else ours)


def _of_key(text: str, key: tuple[str | int, ...], places: Places, problems: list[Problem]) -> tuple[str, bool | None]:
    try:
        return pin(text, places) if text else ("", None)
    except JobError as error:
        problems.append((key, error.message))
        return text, None


def pin(text: str, places: Places) -> tuple[str, bool | None]:
    """Add the digest to a reference. Also return ``ours`` of its image.

    Raises JobError, and RegistryError if the registry does not answer.
    """
    reference = parse_reference(text)
    if reference.digest:
        return text, None
    local = None if places.released or (names_host(text) and not places.here) else places.engine(reference)
    if local and local.digest and (local.sure or places.here):
        return pin_reference(text, local), local.ours
    if local and places.here:
        places.tell(f"{text} came from no registry, so it has no digest there: it is run by its tag.")
        return text, local.ours
    try:
        stored = places.registry(reference)
    except RegistryError as error:
        if places.released or names_host(text):
            raise RegistryError(error.message, hint=f"{error.hint or 'Try again'}; {LEAVE}") from None
        # A name without a host may be of this machine alone; Docker Hub need not know it, nor be reachable.
        why = "" if local else f" ({error.message})"
        raise JobError(f"{_nowhere(text, reference, local)}, {LEAVE}{why}") from None
    if stored is None:
        raise JobError(f"{_nowhere(text, reference, local)}, {LEAVE}")
    return pin_reference(text, stored), stored.ours


def _nowhere(text: str, reference: Reference, local: ResolvedImage | None) -> str:
    if local:
        host = reference.repository.host
        alone = f"{text} is in this machine's engine, but {host} does not serve it, so no other machine can pull it"
        return f"{alone}: publish it and name its registry by --registry"
    return f"{reference.repository} serves no {reference.tag}: publish it, correct the name"


def pin_reference(text: str, image: ResolvedImage) -> str:
    """Add the digest to a reference, and replace its tag by the newest immutable tag of the image, if it has one."""
    tag = parse_reference(text).tag
    name = text.removesuffix(f":{tag}")
    revisions = sorted(filter(None, map(parse_immutable, (tag, *image.tags))), key=lambda each: each.revision)
    return f"{name}:{revisions[-1] if revisions else tag}@{image.digest}"
