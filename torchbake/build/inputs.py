"""The inputs digest: one sha256 over everything that decides an image's content."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torchbake.core.digest import digest
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.spec import Spec
from torchbake.oci.tree import FORM

# What each kind of image takes from the toolkit: all that runs inside it, and what builds its layers.
_LAYERS = {"pytorch": ("apt-install", "install_uv.py", "trim.toml", "wheels"), "init": ("apt-install",)}
_OWN_FILES = "layers/own-files"  # of images that have such files alone


def inputs_digest(
    spec: Spec, *, dockerfile: str, lock_text: str, builder_lock: str, base_digest: str, own: Sequence[str] = ()
) -> str:
    """``sha256:…`` of the rendered Dockerfile, the lock, the toolkit's files in the image, the base, and ``own`` files.

    Also of the form of the layers that torchbake writes.

    Not in it: the revision and date labels, else every commit would build every image.
    """
    parts = [dockerfile, base_digest, str(FORM)]
    if spec.has_torch:
        parts += [lock_text, builder_lock]
    return digest((*parts, *(name + "\n" + toolkit_file(name) for name in toolkit_files(spec)), *own))


def toolkit_files(spec: Spec) -> tuple[str, ...]:
    """The toolkit's files that an image takes, as paths below it: those inside it, and what builds its layers."""
    return (*_of_kind(spec.kind), *([_OWN_FILES] if spec.own.files else []))


@cache
def _of_kind(kind: str) -> tuple[str, ...]:
    return (*_files(f"entrypoints/{kind}"), *(name for entry in _LAYERS[kind] for name in _files(f"layers/{entry}")))


def _files(name: str) -> list[str]:
    """The file of this name, or all below the folder."""
    whole = Path(TOOLKIT, name)
    paths = (path for path in (whole.rglob("*") if whole.is_dir() else [whole]) if path.is_file())
    return sorted(path.relative_to(TOOLKIT).as_posix() for path in paths if "__pycache__" not in path.parts)


@cache
def toolkit_file(name: str) -> str:
    return Path(TOOLKIT, name).read_text(encoding="utf-8")
