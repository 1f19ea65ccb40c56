"""Where a project's files are: the matrix's folder, and the toolkit's own."""

from dataclasses import dataclass
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
    tags: dict[str, tuple[str, ...]]  # each image's by id, most specific first

    @property
    def state(self) -> Path:
        """Bases, logs and plans: nothing that is committed, all of it can be made again."""
        return self.root / ".torchbake"

    @property
    def memory(self) -> Path:
        """What layers hold, by their digests, so that each is read once."""
        return self.state / "packages"


def load_project(path: Path) -> Project:
    """Read, validate and expand a matrix, and give out its tags. Raises MatrixError."""
    matrix, document = load_matrix(path)
    expansion = expand(matrix, document)
    tags = tags_of(expansion.specs, matrix.tags, document)
    return Project(root=path.absolute().parent, matrix=matrix, document=document, expansion=expansion, tags=tags)
