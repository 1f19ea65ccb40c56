"""The images that `test` checks: rows of the matrix, and other images by their references."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchbake.build.plan import refs_of
from torchbake.checks.derived import ParentImage, named_row, origin_of, remark
from torchbake.checks.other_matrix import OtherMatrix, other_matrix
from torchbake.engine.client import Engine
from torchbake.engine.image import EngineImage
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.matrix.tags import engine_tags
from torchbake.ui import console


@dataclass(frozen=True, kw_only=True)
class ImageCase:
    """An image to test, with its row and the engine's image, if there are any.

    ``origin`` is the matrix's image that it is built FROM; ``remark`` says by which row it is checked. An image of
    another matrix is checked by no row.
    """

    name: str
    ref: str
    spec: Spec | None
    image: EngineImage | None
    origin: ParentImage | None = None
    remark: str = ""
    other: OtherMatrix | None = None

    @property
    def judged_by(self) -> Spec | None:
        return self.origin.spec if self.origin else self.spec

    @property
    def platform(self) -> str:
        """The platform of its row; "" without a row."""
        return self.judged_by.platform if self.judged_by else ""


def find_cases(project: Project, specs: Sequence[Spec], references: Collection[str], engine: Engine) -> list[ImageCase]:
    """Find the images to test, each once. A reference that is a tag of the matrix gets the row of that tag."""
    refs = refs_of(specs, project.tags)
    # A digest or an origin is found in all.
    images = engine.images() if references else engine.tagged_images(refs.values())
    cases = [ImageCase(name=spec.id, ref=refs[spec.id], spec=spec, image=images.get(refs[spec.id])) for spec in specs]
    rows = {
        f"{spec.repository}:{tag}": spec
        for spec in project.expansion.specs
        for tag in engine_tags(spec, project.tags[spec.id])
    }
    for ref in dict.fromkeys(references):
        image = images.get(ref) or _find(ref, engine, images.values())
        case = ImageCase(name=ref, ref=ref, spec=rows.get(ref), image=image)
        cases.append(_with_other(case if case.spec else _with_origin(case, project, images, engine), project))
    return cases


def _with_other(case: ImageCase, project: Project) -> ImageCase:
    """Take the row from an image of another matrix, and say whose image it is."""
    if case.image is None or case.origin:
        return case
    other = other_matrix(case.image, project, has_our_tag=case.spec is not None, say=console.say)
    return replace(case, spec=None, other=other, remark=other.message(project)) if other else case


def _with_origin(case: ImageCase, project: Project, images: Mapping[str, EngineImage], engine: Engine) -> ImageCase:
    """Add the matrix's image that a foreign image is built FROM, if there is one."""
    if case.image is None:
        return case
    origin = origin_of(case.image, project, images, engine.layers)
    return replace(case, origin=origin, remark=remark(named_row(project, case.image.labels), origin))


def _find(ref: str, engine: Engine, images: Iterable[EngineImage]) -> EngineImage | None:
    """Find an image by a short name, a digest or an id, where the engine lists full tags."""
    digest = engine.find([ref])
    if digest is None:
        return None
    tagged = (image for image in images if image.digest == digest)
    return next(tagged, EngineImage(digest=digest, tags=(), labels={}, size_bytes=0))
