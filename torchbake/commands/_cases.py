"""Which images are tested: rows of the matrix, and any others by their references."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from torchbake.build.plan import ref_of
from torchbake.checks.derived import Origin, named_row, origin_of, remark
from torchbake.engine.client import Engine
from torchbake.engine.image import Image
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Case:
    """An image that is asked for: its row, if it has one, and what the engine holds under its reference.

    ``origin`` is the image of ours that it is FROM, where it is; ``remark`` says how it is judged.
    """

    name: str
    ref: str
    spec: Spec | None
    image: Image | None
    origin: Origin | None = None
    remark: str = ""

    @property
    def judged_by(self) -> Spec | None:
        return self.origin.spec if self.origin else self.spec


def find_cases(project: Project, specs: Iterable[Spec], references: Iterable[str], engine: Engine) -> list[Case]:
    """The images that are asked for, each once. A reference that is a tag of the matrix has that row."""
    images = engine.images()
    cases = []
    for spec in specs:
        ref = ref_of(spec, project.tags[spec.id])
        cases.append(Case(name=spec.id, ref=ref, spec=spec, image=images.get(ref)))
    rows = {f"{spec.repository}:{tag}": spec for spec in project.expansion.specs for tag in project.tags[spec.id]}
    for ref in dict.fromkeys(references):
        image = images.get(ref) or _find(ref, engine, images.values())
        case = Case(name=ref, ref=ref, spec=rows.get(ref), image=image)
        cases.append(case if case.spec else _with_origin(case, project, images, engine))
    return cases


def _with_origin(case: Case, project: Project, images: Mapping[str, Image], engine: Engine) -> Case:
    """An image that is not a tag of the matrix, with the one of ours that it is FROM, if any."""
    if case.image is None:
        return case
    origin = origin_of(case.image, project, images, engine.layers)
    return replace(case, origin=origin, remark=remark(named_row(project, case.image.labels), origin))


def _find(ref: str, engine: Engine, images: Iterable[Image]) -> Image | None:
    """An image by what is not one of its tags as the engine writes them: a short name, a digest, an id."""
    digest = engine.find([ref])
    if digest is None:
        return None
    tagged = (image for image in images if image.digest == digest)
    return next(tagged, Image(digest=digest, tags=(), labels={}, size_bytes=0))
