"""Where a project's files are: the matrix's folder, and the toolkit's own."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from torchbake.core.paths import gzip_layout_of, layout_of, state_of, templates_of
from torchbake.core.tracked import check_untracked
from torchbake.matrix.added_files import check_files
from torchbake.matrix.expand import Expansion, expand
from torchbake.matrix.model import Matrix, load_matrix
from torchbake.matrix.tags import tags_of
from torchbake.matrix.yaml_source import Document


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
        return state_of(self.root)

    @property
    def templates(self) -> Path | None:
        return templates_of(self.root)

    @property
    def layout(self) -> Path:
        """The folder of built images: one OCI image layout for all."""
        return layout_of(self.root)

    @property
    def gzip_layout(self) -> Path:
        """The folder of the same images, compressed by gzip."""
        return gzip_layout_of(self.root)

    @property
    def cache(self) -> Path:
        """What layers hold, by their digests, so that each is read once."""
        return self.state / "packages"


def run_folder(state: Path) -> Path:
    """Where a run that begins now keeps its logs and plans: an empty folder of its own, made here."""
    name = datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    for number in count(1):
        folder = state / "runs" / (name if number == 1 else f"{name}-{number:02}")  # still in the order of time
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("unreachable: counting has no end")


def load_project(path: Path) -> Project:
    """Read, validate and expand a matrix, and give out its tags.

    Raises MatrixError, and UsageError if git tracks the project's state.
    """
    matrix, document = load_matrix(path)
    check_untracked(path.absolute().parent)
    expansion = expand(matrix, document)
    check_files(matrix, document)
    tags = tags_of(expansion.specs, matrix.tags, document)
    return Project(root=path.absolute().parent, matrix=matrix, document=document, expansion=expansion, tags=tags)
