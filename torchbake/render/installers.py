"""Configuration files of pip and uv in an image: constraints, exclusions and indexes. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import ImageSpec

CONSTRAINTS = "/etc/torchbake/constraints.txt"
UV_EXCLUDE = "/etc/torchbake/uv-exclude.txt"
CONSTRAINT_FILES = {"PIP_CONSTRAINT": CONSTRAINTS, "UV_CONSTRAINT": CONSTRAINTS, "UV_EXCLUDE": UV_EXCLUDE}

_WHY_CONSTRAINTS = """\
What this image was built and tested with, and the versions of torchvision and torchaudio that are built for its torch.
pip and uv keep to it, because PIP_CONSTRAINT and UV_CONSTRAINT name this file. To replace a package all the same:
PIP_CONSTRAINT= pip install ..., or UV_CONSTRAINT= UV_EXCLUDE= uv pip install ..."""
_WHY_EXCLUDE = """\
Packages that are installed outside of the virtual environment, where uv does not look: by UV_EXCLUDE it leaves them
alone, and does not install them again."""
_WHY_INDEX = """\
The index that matrix.yaml names for {}, as PyPI lacks its wheels. A file of yours in this place replaces this one,
and settings of a user, variables and options take precedence."""

# With `torch-backend` uv uses PyTorch's index for PyTorch's packages alone:
# https://docs.astral.sh/uv/guides/integration/pytorch/#automatic-backend-selection
_TORCH_BACKEND = re.compile(r"https://download\.pytorch\.org/whl/([a-z0-9.]+)/?")


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A small file of an image, with a comment at its start."""

    path: str
    comment: tuple[str, ...]
    lines: tuple[str, ...]


def installer_files(spec: ImageSpec, lock: Lock) -> tuple[TextFile, ...]:
    """Return the files with the constraints and the matrix's indexes, but no mirror of the builder.

    The indexes are in the system's files, which have the lowest precedence for both programs.
    """
    files = list[tuple[str, str, Iterable[str]]]()
    if spec.constraints:
        files.append((CONSTRAINTS, _WHY_CONSTRAINTS, lock.constraints))
        files.append((UV_EXCLUDE, _WHY_EXCLUDE, lock.pins_to_keep))
    if spec.indexes:
        why, indexes = _WHY_INDEX.format(spec.accelerator), " ".join(spec.indexes)
        files.append(("/etc/pip.conf", why, ("[global]", f"extra-index-url = {indexes}")))
        files.append(("/etc/uv/uv.toml", why, _uv_lines(spec.indexes)))
    return tuple(TextFile(path=path, comment=tuple(why.splitlines()), lines=tuple(lines)) for path, why, lines in files)


def _uv_lines(indexes: Sequence[str]) -> Iterator[str]:
    backends = [match[1] for match in map(_TORCH_BACKEND.fullmatch, indexes) if match]
    for url in indexes:
        if not _TORCH_BACKEND.fullmatch(url):
            yield from ("[[index]]", f"url = {json.dumps(url)}")
    if backends:
        yield from ("[pip]", f"torch-backend = {json.dumps(backends[0])}")
