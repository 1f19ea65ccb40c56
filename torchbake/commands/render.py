"""`render`: write the Dockerfiles, or check that the committed ones are up to date."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from rich.syntax import Syntax

from torchbake.commands import _options as opt
from torchbake.commands._selection import load_selection, lock_of
from torchbake.errors import RenderError
from torchbake.render.dockerfile import dockerfile_path, render
from torchbake.render.rendered_files import on_disk, stale, write
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = ("all", "--check", "cuda12 --check")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    check: bool = opt.option("change nothing; show drift as a diff (default: all images)")


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors or (["all"] if args.check else []))
    differ = 0
    for spec in selection.specs:
        files = stale(dockerfile_path(project.root, spec), render(spec, lock_of(project, spec), project.templates))
        differ += bool(files)
        if args.check:
            for path, text in files.items():
                _show_diff(path.relative_to(project.root), on_disk(path), text)
        else:
            write(files)
    if args.check and differ:
        raise RenderError(
            f"{differ} of {len(selection.specs)} Dockerfiles are not as the matrix renders them.",
            hint=f"Run: {Command('render', 'all')}",
        )
    state = "rendered" if not args.check else "differ"
    console.say(f"{differ} {state}, {len(selection.specs) - differ} up to date")
    return 0


def _show_diff(path: Path, current: str, text: str) -> None:
    lines = difflib.unified_diff(
        current.splitlines(), text.splitlines(), f"{path} (on disk)", f"{path} (rendered)", lineterm=""
    )
    console.out().print(Syntax("\n".join(lines), "diff", theme="ansi_dark", background_color="default"))
