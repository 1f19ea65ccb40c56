"""A project: its matrix, and the paths of its folders."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path

from torchbake.core.paths import gzip_layout_of, layout_of, state_of, templates_of
from torchbake.core.tracked import check_untracked
from torchbake.matrix.added_files import check_files
from torchbake.matrix.base_lock import base_lock_path, check_known, read_base_lock, with_locked_bases
from torchbake.matrix.expand import Expansion, expand
from torchbake.matrix.model import Matrix, load_matrix
from torchbake.matrix.tags import tags_of
from torchbake.matrix.yaml_source import Document


@dataclass(frozen=True, kw_only=True)
class Project:
    """A loaded matrix, its images and their tags."""

    root: Path
    matrix: Matrix
    document: Document
    expansion: Expansion
    tags: dict[str, tuple[str, ...]]  # each image's by id, most specific first

    @property
    def state(self) -> Path:
        """The folder of bases, logs and plans, which are not committed and can be created again."""
        return state_of(self.root)

    @property
    def templates(self) -> Path | None:
        return templates_of(self.root)

    @property
    def layout(self) -> Path:
        """The folder of built images, an OCI image layout."""
        return layout_of(self.root)

    @property
    def gzip_layout(self) -> Path:
        """The folder of the same images, compressed by gzip."""
        return gzip_layout_of(self.root)

    @property
    def cache(self) -> Path:
        """The folder with the packages of each layer by its digest, so that each layer is read once."""
        return self.state / "packages"


def run_folder(state: Path) -> Path:
    """Create an empty folder for the logs and plans of a run that starts now."""
    name = datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    for number in count(1):
        folder = state / "runs" / (name if number == 1 else f"{name}-{number:02}")  # sorted by time
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("unreachable: counting has no end")


def load_project(path: Path, *, locked_bases: bool = True) -> Project:
    """Read, validate and expand a matrix, and assign its tags.

    The bases are those of `images/bases.lock`; without ``locked_bases`` they are as in the matrix. Raises MatrixError,
    LockError if that lock does not fit the matrix, and UsageError if git tracks the project's state.
    """
    matrix, document = load_matrix(path)
    check_untracked(path.absolute().parent)
    expansion, root = expand(matrix, document), path.absolute().parent
    check_files(matrix, document)
    tags = tags_of(expansion.specs, matrix.tags, document)
    if locked_bases and (bases := read_base_lock(root)):
        check_known(bases, matrix.bases, base_lock_path(root))
        expansion = replace(expansion, specs=with_locked_bases(expansion.specs, bases, base_lock_path(root)))
    return Project(root=root, matrix=matrix, document=document, expansion=expansion, tags=tags)
