"""Images of another matrix: torchbake has made them, but this matrix's lock does not describe them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torchbake.build.base_image import BaseImage, find_base
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.derived import named_row
from torchbake.engine.image import EngineImage
from torchbake.errors import TorchbakeError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import BASE_DIGEST, ID, INPUTS, REVISION, SOURCE

OTHER_MATRIX = "another matrix"  # the word in `Verdict.how`


@dataclass(frozen=True, kw_only=True)
class OtherMatrix:
    """The labels of an image of another matrix: its id there, the matrix's source and the commit."""

    id: str
    source: str
    revision: str
    reason: str

    def message(self, project: Project) -> str:
        """Say whose image it is, and what is compared."""
        place = f" of {self.source}" if self.source else ""
        commit = f" at {self.revision}" if self.revision else ""
        return (
            f"its labels name {self.id}{place}{commit}; {self.reason}. Nothing of {project.document.path} is compared "
            "with it, so no package is. To compare it with its own matrix: --matrix FILE. If it is FROM an image of "
            "this matrix, pull that image, too (docker pull), and test again"
        )


def other_matrix(
    image: EngineImage, project: Project, *, has_our_tag: bool, say: Callable[[str], None]
) -> OtherMatrix | None:  # fmt: skip
    """Return the other matrix of an image; None if it is of this matrix, or if its labels do not name one.

    An image is this matrix's if its inputs digest is that of today's files on the image's base. If it is not, and the
    image is under a tag of this matrix (``has_our_tag``), it may be an earlier build, unless its source is another.
    """
    labels = image.labels
    if not labels.get(ID):
        return None
    item = OtherMatrix(id=labels[ID], source=labels.get(SOURCE, ""), revision=labels.get(REVISION, ""), reason="")
    spec = named_row(project, labels)
    if spec is None:
        return replace(item, reason="this matrix has no such image")
    inputs = labels.get(INPUTS, "")
    todays = _inputs(spec, image, project, say) if inputs else ""
    if inputs and inputs == todays:
        return None
    if item.source != spec.source:
        return replace(item, reason=f"this matrix's source is {spec.source or 'not set'}")
    if todays and not has_our_tag:
        return replace(item, reason="this matrix makes that image of other inputs today")
    return None


def _inputs(spec: Spec, image: EngineImage, project: Project, say: Callable[[str], None]) -> str:
    """Return the inputs digest of today's files on the image's base; "" if it is not known, or if they have errors.

    An init image has no label of its base, so this machine's is taken.
    """
    recorded = find_base(spec.base, project.state)
    digest = image.labels.get(BASE_DIGEST, "") or (recorded.digest if recorded else "")
    if not digest:
        return ""
    base = BaseImage(name=spec.base.id, image=spec.base.image, source="registry", digest=digest, created="")
    try:
        return ImagePreparation.to_ask(project, say).job(spec, base).inputs
    except TorchbakeError:
        return ""
