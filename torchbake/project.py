"""Where a project's files are: the matrix's folder, and the toolkit's own."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchbake.document import Document
from torchbake.expand import Expansion, expand
from torchbake.matrix import Matrix, load_matrix
from torchbake.tags import tags_of

TOOLKIT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Project:
    """A loaded matrix with all that is derived from it alone."""

    root: Path
    matrix: Matrix
    document: Document
    expansion: Expansion

    @cached_property
    def tags(self) -> dict[str, tuple[str, ...]]:
        """Each image's tags by id, most specific first. Raises MatrixError."""
        return tags_of(self.expansion.specs, self.matrix.tags)

    @property
    def state(self) -> Path:
        """Bases, logs and plans: nothing that is committed, all of it can be made again."""
        return self.root / ".torchbake"


def load_project(path: Path) -> Project:
    """Read, validate and expand a matrix. Raises MatrixError."""
    matrix, document = load_matrix(path)
    return Project(
        root=path.absolute().parent, matrix=matrix, document=document, expansion=expand(matrix, document)
    )
