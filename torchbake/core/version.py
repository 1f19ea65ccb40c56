"""Which torchbake this is, and how pip gets the same."""

import subprocess

from torchbake import __version__
from torchbake.core.git import head_commit
from torchbake.core.paths import CHECKOUT, TOOLKIT

SOURCE = "https://github.com/torchbake/torchbake"
UNKNOWN = "0+checkout"


def version() -> str:
    """The version by PEP 440: the installed one, or ``0+gCOMMIT`` of a checkout.

    A checkout may hold the file of a build too, but that is as old as the build. Raises UsageError if git refuses the
    checkout.
    """
    if not CHECKOUT:
        return str(__version__)
    if not (TOOLKIT / ".git").exists():  # else git would tell of the repository around it
        return UNKNOWN
    try:
        commit = head_commit(TOOLKIT, "--short=12", limit=10)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return f"0+g{commit}" if commit else UNKNOWN


def requirement(version: str, extra: str = "") -> str:
    """What pip is told to install this version again: a release from its index, a commit from its repository.

    Never the bare name: a pipeline that may release would take whatever the index then has under it.
    """
    name = f"torchbake[{extra}]" if extra else "torchbake"
    public, _, local = version.partition("+")
    if local.startswith("g"):
        return f"{name} @ git+{SOURCE}@{local[1:].partition('.')[0]}"
    return f"{name}=={public}" if tag(version) else f"{name} @ git+{SOURCE}"


def tag(version: str) -> str:
    """The tag of the toolkit's repository that a release is made from; empty for anything else."""
    public, _, local = version.partition("+")
    return f"v{public}" if not local.startswith("g") and "dev" not in public and public != "0" else ""
