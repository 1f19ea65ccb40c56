"""Packages that an installer would install, by its own dry run. Pure.

Sources: the output of uv 0.6 to 0.13 (`uv sync --dry-run`) and of Poetry 2 (`poetry install --dry-run`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_UV = re.compile(r"^ [+~] (?P<name>[\w.-]+)==(?P<version>[^\s(]+)", flags=re.MULTILINE)
_POETRY = re.compile(
    r"^\s*[-•] (?:Installing|Updating|Downgrading) (?P<name>[\w.-]+) \((?:\S+ -> )?(?P<version>[^\s)]+)[^)]*\)\s*$",
    flags=re.MULTILINE,
)
_QUIET = {"-q", "-qq", "--quiet", "--dry-run"}


@dataclass(frozen=True, kw_only=True)
class Installer:
    """A command that has a dry run. ``quiet`` are options that hide its result."""

    words: tuple[str, ...]
    line: re.Pattern[str]
    options: tuple[str, ...]


_BY_DRY_RUN = (
    Installer(words=("uv", "sync"), line=_UV, options=("--dry-run", "--color", "never")),
    Installer(words=("poetry", "install"), line=_POETRY, options=("--dry-run", "--no-ansi")),
    Installer(words=("poetry", "sync"), line=_POETRY, options=("--dry-run", "--no-ansi")),
)
# They accept `==2.10.0` and `==2.10.0+cu128` for 2.10.0+cu128, and read the image's constraints.
BY_CONSTRAINTS = (("pip", "install"), ("uv", "pip", "install"))
COMMANDS = (*(" ".join(one.words) for one in _BY_DRY_RUN), *map(" ".join, BY_CONSTRAINTS))


def installer_of(command: Sequence[str]) -> Installer | None:
    """Return the installer that a command starts, if it has a dry run."""
    return next((one for one in _BY_DRY_RUN if tuple(command[: len(one.words)]) == one.words), None)


def dry_run(installer: Installer, command: Sequence[str]) -> list[str]:
    """Return the command that shows what a command would do."""
    return [*(word for word in command if word not in _QUIET), *installer.options]


def to_install(installer: Installer, output: str) -> dict[str, str]:
    """Return the packages that a dry run would install, with their versions."""
    return {
        re.sub(r"[-_.]+", "-", match["name"]).lower(): match["version"] for match in installer.line.finditer(output)
    }
