"""The files of a job's folder that a manifest or a layer carries, and the reasons to refuse one."""

import os
from collections.abc import Sequence
from pathlib import Path

from torchbake.code.files import choose_files, folder_names, ignored_files, secret_reason, select_files, unused_patterns
from torchbake.errors import MatrixError, UsageError
from torchbake.jobs.expressible import Problem
from torchbake.jobs.field_types import Files

MOST_BYTES = 1_000_000  # a ConfigMap takes 1 MiB, with its metadata

_OTHER_WAYS = "use `files.layer` or `files.git`"


def read_files(folder: Path, files: Files, job_file: Path, problems: list[Problem]) -> dict[str, bytes]:
    """Return the files that a manifest carries, by their path within the folder.

    Hidden files and bytecode are never carried. Each file that no manifest can carry is added to ``problems``.
    Raises UsageError if git cannot read the repository of the folder.
    """
    try:
        names = folder_names(folder)
        for pattern in unused_patterns(files.include, names):
            place = files.include.index(pattern)
            problems.append((("files", "include", place), f"no file below {folder} is like this: correct it"))
        names = select_files(names, files.include, files.exclude, ignored_files(folder, names, job_file))
        return _read(folder, names, files.include, problems)
    except MatrixError as error:  # a pattern is malformed
        problems.append((("files",), error.sentence))
    except OSError as error:
        where = os.fsencode(error.filename or folder).decode(errors="replace")
        problems.append((("files", "folder"), f"{where}: {error.strerror}: correct it, or take it out of the folder"))
    return {}


def layer_files(folder: Path, files: Files, job_file: Path, problems: list[Problem]) -> tuple[str, ...]:
    """Return the files of `files.layer`, sorted, of any size. The reasons why there is no layer go to ``problems``."""
    try:
        return tuple(choose_files(folder, include=files.include, exclude=files.exclude, leave_out=job_file))
    except UsageError as error:
        problems.append((("files", "layer"), error.sentence))
    except OSError as error:
        where = os.fsencode(error.filename or folder).decode(errors="replace")
        problems.append((("files", "layer"), f"{where}: {error.strerror}: correct it, or take it out of the folder"))
    return ()


def _read(folder: Path, names: Sequence[str], include: Sequence[str], problems: list[Problem]) -> dict[str, bytes]:
    sizes = {name: _file(folder / name).stat().st_size for name in names}
    for name, size in sizes.items():
        if size > MOST_BYTES:
            large = f"{name} has {size} bytes, and a ConfigMap takes {MOST_BYTES}"
            problems.append((("files", "folder"), f"{large}: leave it out by `files.exclude`, {_OTHER_WAYS}"))
    if problems:
        return {}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        large = f"{folder} holds more than {MOST_BYTES} bytes, which no ConfigMap takes; its largest file is {largest}"
        problems.append((("files", "folder"), f"{large}: leave files out by `files.exclude`, {_OTHER_WAYS}"))
        return {}
    contents = {name: (folder / name).read_bytes() for name in names}
    for name, data in contents.items():
        if reason := secret_reason(name, data, include):
            secret = f"{reason}: leave it out by `files.exclude`, and use `secrets`"
            only_named = not secret_reason(name, data, (name,))
            more = "; if it is no secret, add its path to `files.include`" if only_named else ""
            problems.append((("files", "folder"), secret + more))
    return contents


def _file(path: Path) -> Path:
    """Return the path of a file that can be carried. Raises OSError for any other, which the job would miss."""
    if not path.is_file():
        kind = "is a link to no file" if path.is_symlink() else "is not a file"
        raise OSError(0, f"{kind}, and only files are carried", str(path))
    if not path.name.isprintable():
        raise OSError(0, "its name is not UTF-8, or holds control characters", str(path))
    return path
