"""Images that are FROM one of ours: which one that is, so that what they add is not held against its lock."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.engine.image import Image
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import ID

Layers = Callable[[str], Sequence[str]]  # an image's layers by its digest, lowest first


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The image of ours that another one is FROM: its reference, and its row."""

    ref: str
    spec: Spec


def named_row(project: Project, labels: Mapping[str, str]) -> Spec | None:
    """The row that an image says it is of; one that is FROM ours has the labels of that, too."""
    return next((spec for spec in project.expansion.specs if spec.id == labels.get(ID)), None)


def origin_of(image: Image, project: Project, images: Mapping[str, Image], layers_of: Layers) -> Origin | None:
    """What the image is FROM; ``images`` are the engine's, by tag.

    None where its labels are not ours, or the engine has no other image of that row with whose layers it begins. Of
    several names the one in the row's own repository counts first.
    """
    spec = named_row(project, image.labels)
    if spec is None:
        return None
    tags, own = project.tags[spec.id], layers_of(image.digest)
    ours = {
        ref: other.digest
        for ref, other in images.items()
        if other.digest != image.digest and other.labels.get(ID) == spec.id and is_tag_of(ref, tags)
    }
    lengths = {ref: len(below) for ref, digest in ours.items() if _begins(own, below := layers_of(digest))}
    ref = max(sorted(lengths), key=lambda ref: (lengths[ref], ref.startswith(f"{spec.repository}:")), default=None)
    return Origin(ref=ref, spec=spec) if ref else None


def is_tag_of(ref: str, tags: Iterable[str]) -> bool:
    """Whether a reference, in whatever repository, has one of a row's tags, or that of a release: ``…-r3``."""
    plain = re.sub(r"-r\d+$", "", ref.rpartition(":")[2])
    return plain in tags


def _begins(layers: Sequence[str], below: Sequence[str]) -> bool:
    return bool(below) and list(layers[: len(below)]) == list(below)


def remark(spec: Spec | None, origin: Origin | None) -> str:
    """How an image is judged that is not a tag of the matrix and says that it is of a row; else empty."""
    if origin:
        return f"FROM {origin.ref}: what it adds is its own"
    if spec is None:
        return ""
    return (
        f"judged as {spec.id} itself, as its labels say so. Where it is FROM that image, fetch the image too "
        "(docker pull), and test again"
    )
