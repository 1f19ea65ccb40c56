"""The inputs digest: a SHA-256 over everything that decides an image's content."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torchbake.core.digest import digest
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.oci.tree import FORM

# Files of the toolkit by the kind of image: its programs in `entrypoints/`, and these in `layers/`.
_LAYERS = {"pytorch": ("apt-install", "install_uv.py", "trim.toml", "wheels"), "init": ("apt-install",)}
_OWN_FILES = "layers/own-files"  # for images with `files` or a project in the matrix


def inputs_digest(
    spec: Spec, *, dockerfile: str, lock_text: str, builder_lock: str, base_digest: str, own: Sequence[str] = (),
    debian_packages: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return the digest of the Dockerfile, locks, base, toolkit's files and ``own`` files, and of the layers' form.

    ``debian_packages`` are the lines of the base's lock for the image, if the base has one.

    The labels of revision and date are not in it, else every commit would build every image.
    """
    parts = [dockerfile, base_digest, str(FORM)]
    if spec.has_torch:
        parts += [lock_text, builder_lock]
    return digest((*parts, *(name + "\n" + toolkit_file(name) for name in toolkit_files(spec)), *own, *debian_packages))


def toolkit_files(spec: Spec) -> tuple[str, ...]:
    """Return the toolkit's files for an image, relative to the toolkit: its programs, and the tools for its layers."""
    folders = (f"entrypoints/{spec.kind}", *(f"layers/{name}" for name in _LAYERS[spec.kind]))
    own = spec.own.files or (isinstance(spec, ImageSpec) and spec.project)
    return (*(file for folder in folders for file in _files(folder)), *([_OWN_FILES] if own else []))


@cache
def _files(name: str) -> list[str]:
    """Return the file of this name, or all files of the folder."""
    whole = Path(TOOLKIT, name)
    paths = (path for path in (whole.rglob("*") if whole.is_dir() else [whole]) if path.is_file())
    return sorted(path.relative_to(TOOLKIT).as_posix() for path in paths if "__pycache__" not in path.parts)


@cache
def toolkit_file(name: str) -> str:
    return Path(TOOLKIT, name).read_text(encoding="utf-8")
