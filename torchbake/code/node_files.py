"""The files that jobs of Slurm make of images in a shared folder, and the removal of old ones.

`torchbake.jobs.targets._apptainer` writes the lines that make them. A job sets the modification of a file that it uses.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchbake.errors import UsageError

_DAY = 86_400
# An image's file, the mark that nothing is in its folder /job, and code; locks and parts are of killed jobs.
_NAME = re.compile(
    r"(?:[A-Za-z0-9._-]+-sha256-[0-9a-f]{64}\.sif(?:\.free)?|code-sha256-[0-9a-f]{64}\.squashfs)(?:\.lock|\.part-[0-9]+)?"
)


@dataclass(frozen=True, kw_only=True)
class NodeFile:
    """A file of an image or of code, its bytes, and the days since its last use."""

    path: Path
    size: int
    days: int


def list_node_files(folder: Path, *, now: float) -> tuple[NodeFile, ...]:
    """Return the files that jobs made in a folder, the oldest first. Raises UsageError if there is no such folder."""
    try:
        files = [*_files(folder, now)]
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}.", hint="Name the folder where the jobs were submitted."
        ) from None
    return tuple(sorted(files, key=lambda each: (-each.days, each.path)))


def prune_node_files(folder: Path, *, days: int, now: float, dry_run: bool) -> tuple[NodeFile, ...]:
    """Delete the files that no job has used for more than a number of days, and return them. Raises UsageError."""
    old = tuple(each for each in list_node_files(folder, now=now) if each.days > days)
    for each in () if dry_run else old:
        try:
            each.path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"{each.path} cannot be deleted: {error.strerror}.", hint="Ask its owner to do this."
            ) from None
    return old


def _files(folder: Path, now: float) -> Iterator[NodeFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                age = int((now - status.st_mtime) // _DAY)
                yield NodeFile(path=Path(entry.path), size=status.st_size, days=age)
