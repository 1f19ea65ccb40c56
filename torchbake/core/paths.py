"""Where the toolkit's own files are: templates, layers, entrypoints, image checks; in a checkout and in a wheel."""

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
# What runs inside a PyTorch image; where none is, as on bare hosts, it is taken from here.
OWN_TOOLBOX = TOOLKIT / "entrypoints/pytorch"
OWN_BENCH = OWN_TOOLBOX / "bench"
_LAYERS_MAX = "50GB"


def state_of(root: Path) -> Path:
    """Where a project keeps what can be made again, by its folder, whether its matrix can be read or not."""
    return root / ".torchbake"


def layout_of(root: Path) -> Path:
    """Where a project keeps its images as they were built."""
    return state_of(root) / "layout"


def gzip_layout_of(root: Path) -> Path:
    """Return the folder of a project's images compressed by gzip, as `publish` sends them."""
    return state_of(root) / "layout-gzip"


def templates_of(root: Path) -> Path | None:
    """A project's own templates, which come before the toolkit's; in a checkout they are the toolkit's."""
    folder = root / "templates"
    return folder if folder.is_dir() and root != TOOLKIT else None


def layers_folder() -> Path:
    """Where layers are kept that this machine has packed, for all projects; TORCHBAKE_LAYERS names another place."""
    named = os.environ.get("TORCHBAKE_LAYERS")
    return Path(named).absolute() if named else cache_folder() / "packed-layers"


def layers_limit() -> int:
    """How many bytes of layers a build leaves there; TORCHBAKE_LAYERS_MAX names another size. Raises UsageError."""
    text = os.environ.get("TORCHBAKE_LAYERS_MAX", _LAYERS_MAX)
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"TORCHBAKE_LAYERS_MAX: {error}.") from None


def builder_folder() -> Path:
    """Where the builder's own wheels are kept, beside the layers."""
    return layers_folder() / "builder"


def cache_folder() -> Path:
    """Where the toolkit keeps what any project can use again; it need not be there, nor be writable."""
    if CHECKOUT:
        return state_of(TOOLKIT)
    named = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # `su` and containers keep HOME: code that is compiled in another user's home is never run.
    return (named if is_own(named) else _own_home() / ".cache") / "torchbake"


def _own_home() -> Path:
    """The home in the list of users; a folder that does not exist for a user without an entry."""
    import pwd  # noqa: PLC0415 - not on Windows, where setup says what to do

    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return Path("/nonexistent")
