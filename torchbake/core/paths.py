"""Paths of the toolkit's files, in a checkout and in a wheel, and of a project's state and caches."""

import os
from pathlib import Path

from torchbake.core.ownership import is_own
from torchbake.core.sizes import parse_size
from torchbake.errors import UsageError

PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = PACKAGE / "_data"  # in a wheel; pyproject.toml says what goes there
CHECKOUT = not _SHIPPED.is_dir()
# A folder with `templates/`, `layers/`, `entrypoints/`, `tests/images/` and `pyproject.toml`, as in the repository.
TOOLKIT = PACKAGE.parent if CHECKOUT else _SHIPPED
# The programs of a PyTorch image. Bare hosts and tests run them from here.
OWN_TOOLBOX = TOOLKIT / "entrypoints/pytorch"
OWN_BENCH = OWN_TOOLBOX / "bench"
CONTENTS = "contents"  # in the folder of caches: what the layers of any image hold
_LAYERS_MAX = "50GB"
JOB_FOLDER = "/job"  # the place of a job's files in its containers


def state_of(root: Path) -> Path:
    """Return the folder of a project's state, which commands can create again."""
    return root / ".torchbake"


def layout_of(root: Path) -> Path:
    """Return the folder of a project's built images."""
    return state_of(root) / "layout"


def gzip_layout_of(root: Path) -> Path:
    """Return the folder of a project's images compressed by gzip, as `publish` sends them."""
    return state_of(root) / "layout-gzip"


def wheels_of(root: Path) -> Path:
    """Return the folder of a project's own wheels, which may be missing."""
    return root / "wheels"


def templates_of(root: Path) -> Path | None:
    """Return the folder of a project's own templates, if it has one. In a checkout `templates/` is the toolkit's."""
    folder = root / "templates"
    return folder if folder.is_dir() and root != TOOLKIT else None


def layers_folder() -> Path:
    """Return the folder of this machine's packed layers, for all projects: TORCHBAKE_LAYERS, or one in the cache."""
    name = os.environ.get("TORCHBAKE_LAYERS")
    return Path(name).absolute() if name else cache_folder() / "packed-layers"


def layers_limit() -> int:
    """Return the bytes of packed layers that a build keeps: TORCHBAKE_LAYERS_MAX, or 50 GB. Raises UsageError."""
    text = os.environ.get("TORCHBAKE_LAYERS_MAX", _LAYERS_MAX)
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"TORCHBAKE_LAYERS_MAX: {error}.") from None


def builder_folder() -> Path:
    """Return the folder of the wheels of the builder stage."""
    return layers_folder() / "builder"


def debian_folder() -> Path:
    """Return the folder of the locked Debian packages of this machine."""
    return layers_folder() / "debian"


def cache_folder() -> Path:
    """Return the folder of caches for all projects; it may be missing or read-only."""
    if CHECKOUT:
        return state_of(TOOLKIT)
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if is_own(path):
        return path / "torchbake"
    # `su` and containers keep HOME. Compiled code in another user's home must never run here.
    import pwd  # noqa: PLC0415 - not on Windows, where setup says what to do

    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a user without an entry
        home = Path("/nonexistent")
    return home / ".cache/torchbake"


def path_of(text: str) -> Path:
    """Return a path that somebody typed, with `~` for a home folder; of an unknown user it stays, as in a shell."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
