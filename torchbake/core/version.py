"""The version of this torchbake, and the requirement by which pip installs the same one."""

import subprocess

from torchbake import __version__
from torchbake.core.git import head_commit
from torchbake.core.paths import CHECKOUT, TOOLKIT

SOURCE = "https://github.com/torchbake/torchbake"
UNKNOWN = "0+checkout"


def version() -> str:
    """Return the version by PEP 440: of the installed package, or ``0+gCOMMIT`` of a checkout.

    A checkout's `_version.py` is as old as its last build, so it is not read. Raises UsageError if git refuses the
    checkout, or finds no repository at its `.git`.
    """
    if not CHECKOUT:
        return str(__version__)
    if not (TOOLKIT / ".git").exists():  # git would report a repository around this folder
        return UNKNOWN
    try:
        commit = head_commit(TOOLKIT, "--short=12", limit=10)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return f"0+g{commit}" if commit else UNKNOWN


def requirement(version: str, extra: str = "") -> str:
    """Return the requirement of this version for pip: a release of its index, or a commit of its repository.

    Never the bare name: a pipeline with the right to release would install any package that has it on the index.
    """
    name = f"torchbake[{extra}]" if extra else "torchbake"
    public, _, local = version.partition("+")
    if local.startswith("g"):
        return f"{name} @ git+{SOURCE}@{local[1:].partition('.')[0]}"
    return f"{name}=={public}" if tag(version) else f"{name} @ git+{SOURCE}"


def tag(version: str) -> str:
    """Return the tag of the toolkit's repository for a release's version; empty for any other version."""
    public, _, local = version.partition("+")
    return f"v{public}" if not local.startswith("g") and "dev" not in public and public != "0" else ""
