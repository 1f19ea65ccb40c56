"""What is rendered of an image as files: its Dockerfile, and beside it what is left out of its build context."""

from collections.abc import Mapping
from pathlib import Path

from torchbake.core.files import read_text, write_text
from torchbake.errors import RenderError
from torchbake.matrix.ignored import read_ignore
from torchbake.render.build_context import ignore_file, own_sources


def stale(path: Path, dockerfile: str) -> dict[Path, str]:
    """What is to be written, by file, for a Dockerfile to be there as it is rendered; empty for: remove it.

    Raises RenderError for a Dockerfile of which nobody can say what it copies.
    """
    try:
        sources = own_sources(dockerfile)
    except RenderError as error:
        raise RenderError(f"{path.parent.name}: {error.message}", hint=error.hint) from None
    ignored = ignore_file(sources, read_ignore(path.parents[2])) if sources else ""
    wanted = {path: dockerfile, path.with_name(f"{path.name}.dockerignore"): ignored}
    return {file: text for file, text in wanted.items() if on_disk(file) != text}


def write(files: Mapping[Path, str]) -> None:
    for file, text in files.items():
        if text:
            write_text(file, text)
        else:
            file.unlink(missing_ok=True)


def on_disk(path: Path) -> str:
    """What is there; whatever is not text differs from all that is rendered."""
    try:
        return read_text(path)
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        return "(not UTF-8 text)\n"
