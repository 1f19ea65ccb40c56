"""Derived images, which are FROM an image of the matrix. Their own packages are not compared with its lock."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.engine.image import EngineImage
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.matrix.tags import engine_tags
from torchbake.oci.labels import ID

Layers = Callable[[str], Sequence[str]]  # returns an image's layers by its digest, lowest first


@dataclass(frozen=True, kw_only=True)
class ParentImage:
    """The parent of a derived image: its reference, and its row in the matrix."""

    ref: str
    spec: Spec


def named_row(project: Project, labels: Mapping[str, str]) -> Spec | None:
    """Return the row that an image's labels name. A derived image has the labels of its parent."""
    return next((spec for spec in project.expansion.specs if spec.id == labels.get(ID)), None)


def origin_of(
    image: EngineImage, project: Project, images: Mapping[str, EngineImage], layers_of: Layers
) -> ParentImage | None:
    """Return the parent of an image; ``images`` are the engine's, by tag.

    Return None if the labels name no row, or if the engine has no other image of that row whose layers the image begins
    with. If the parent has several names, prefer the name in the row's repository.
    """
    spec = named_row(project, image.labels)
    if spec is None:
        return None
    tags, own = engine_tags(spec, project.tags[spec.id]), layers_of(image.digest)
    ours = {
        ref: other.digest
        for ref, other in images.items()
        if other.digest != image.digest and other.labels.get(ID) == spec.id and is_tag_of(ref, tags)
    }
    layers = {ref: list(layers_of(digest)) for ref, digest in ours.items()}
    lengths = {ref: len(below) for ref, below in layers.items() if below and list(own[: len(below)]) == below}
    ref = max(sorted(lengths), key=lambda ref: (lengths[ref], ref.startswith(f"{spec.repository}:")), default=None)
    return ParentImage(ref=ref, spec=spec) if ref else None


def is_tag_of(ref: str, tags: Iterable[str]) -> bool:
    """Check if a reference has one of a row's tags, or the tag of a release (``…-r3``), in any repository."""
    return re.sub(r"-r\d+$", "", ref.rpartition(":")[2]) in tags


def remark(spec: Spec | None, origin: ParentImage | None) -> str:
    """Return a note on how an image was checked whose tag is not in the matrix, or an empty text."""
    if origin:
        return f"FROM {origin.ref}: its additions are not compared with the lock"
    if spec is None:
        return ""
    return (
        f"checked as {spec.id} itself, which its labels name. If it is FROM that image, pull that image, too "
        "(docker pull), and test again"
    )
