"""Which torchbake this is."""

import subprocess

from torchbake import __version__
from torchbake.core.paths import CHECKOUT, TOOLKIT

UNKNOWN = "0+checkout"


def version() -> str:
    """The version by PEP 440: the installed one, or ``0+gCOMMIT`` of a checkout that nobody has installed."""
    if __version__ != UNKNOWN or not CHECKOUT:
        return str(__version__)
    command = ["git", "-C", str(TOOLKIT), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return f"0+g{done.stdout.strip()}" if done.returncode == 0 else UNKNOWN
