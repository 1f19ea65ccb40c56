"""The rendered files of an image: its Dockerfile, and the `.dockerignore` of its build context."""

from collections.abc import Mapping
from pathlib import Path

from torchbake.core.files import read_text, write_text
from torchbake.errors import RenderError
from torchbake.matrix.dockerignore import read_ignore
from torchbake.render.build_context import ignore_file, own_sources


def stale(path: Path, dockerfile: str) -> dict[Path, str]:
    """Return the texts of an image's files that differ from the files on disk; an empty text means to remove the file.

    Raises RenderError if the files that the Dockerfile copies are not certain.
    """
    try:
        sources = own_sources(dockerfile)
    except RenderError as error:
        raise RenderError(f"{path.parent.name}: {error.message}", hint=error.hint) from None
    ignored = ignore_file(sources, read_ignore(path.parents[2])) if sources else ""
    new_texts = {path: dockerfile, path.with_name(f"{path.name}.dockerignore"): ignored}
    return {file: text for file, text in new_texts.items() if on_disk(file) != text}


def write(files: Mapping[Path, str]) -> None:
    for file, text in files.items():
        if text:
            write_text(file, text)
        else:
            file.unlink(missing_ok=True)


def on_disk(path: Path) -> str:
    """Read a file; empty if it is missing. The text for a file in another encoding differs from all rendered texts."""
    try:
        return read_text(path)
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        return "(not UTF-8 text)\n"
