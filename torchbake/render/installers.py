"""Files that pip and uv read where they run in an image: what stays as it is, and where more wheels are. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
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

# With this setting uv takes packages of PyTorch from its index, and asks that for nothing else:
# https://docs.astral.sh/uv/guides/integration/pytorch/#automatic-backend-selection
_TORCH_BACKEND = re.compile(r"https://download\.pytorch\.org/whl/([a-z0-9.]+)/?")


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A small file of an image: its path, the comment on top, and the lines."""

    path: str
    comment: tuple[str, ...]
    lines: tuple[str, ...]


def installer_files(spec: ImageSpec, lock: Lock) -> tuple[TextFile, ...]:
    """Constraints, and the indexes of the matrix. A mirror that the builder uses is no part of an image.

    The indexes are in the system's own files, which have the lowest rank with both programs.
    """
    why = _WHY_INDEX.format(spec.accelerator)
    return (
        *((_file(CONSTRAINTS, _WHY_CONSTRAINTS, lock.constraints),) if spec.constraints else ()),
        *((_file(UV_EXCLUDE, _WHY_EXCLUDE, lock.kept),) if spec.constraints else ()),
        *((_file("/etc/pip.conf", why, _pip_lines(spec.indexes)),) if spec.indexes else ()),
        *((_file("/etc/uv/uv.toml", why, _uv_lines(spec.indexes)),) if spec.indexes else ()),
    )


def _file(path: str, comment: str, lines: Iterator[str] | Sequence[str]) -> TextFile:
    return TextFile(path=path, comment=tuple(comment.splitlines()), lines=tuple(lines))


def _pip_lines(indexes: Sequence[str]) -> Sequence[str]:
    return ("[global]", f"extra-index-url = {' '.join(indexes)}")


def _uv_lines(indexes: Sequence[str]) -> Iterator[str]:
    backends = [match[1] for match in map(_TORCH_BACKEND.fullmatch, indexes) if match]
    for url in indexes:
        if not _TORCH_BACKEND.fullmatch(url):
            yield from ("[[index]]", f"url = {json.dumps(url)}")
    if backends:
        yield from ("[pip]", f"torch-backend = {json.dumps(backends[0])}")
