"""`clean`: frees what can be made again, and says how much of it there was."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torchbake.commands._options import Format, add_format
from torchbake.core.files import freed_by, remove_folder
from torchbake.core.paths import layers_folder
from torchbake.core.sizes import human
from torchbake.matrix.project import Project, load_project
from torchbake.ui import console

EXAMPLES = ("nox -s clean -- --dry-run", "nox -s clean", "nox -s clean -- --format json")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    matrix: Path
    dry_run: bool
    format: Format


@dataclass(frozen=True, kw_only=True)
class Freed:
    """A folder with its use, and the bytes that are free without it."""

    what: str
    folder: str
    bytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be freed; remove nothing")
    add_format(parser)


def run(args: Arguments) -> int:
    freed = _freed(_folders(load_project(args.matrix)))
    if not args.dry_run:
        for each in freed:
            remove_folder(Path(each.folder))
    if args.format == "json":
        console.show_json({"freed": [asdict(each) for each in freed]})
        return 0
    console.show_table(("what", "frees", "folder"), [(each.what, human(each.bytes), each.folder) for each in freed])
    total = human(sum(each.bytes for each in freed))
    console.say(f"{total} would be freed" if args.dry_run else f"freed {total}; the engine's images are as they were")
    return 0


def _folders(project: Project) -> dict[str, Path]:
    return {
        "layers of wheels and the builder's uv, of all projects": layers_folder(),
        "stand-ins for those layers": project.state / "stand-ins",
        "wheels of this host's folders": project.state / "wheels",
        "images that were packed reproducibly": project.layout,
        "other images, as they were built": project.exports,
        "logs and plans of runs": project.state / "runs",
    }


def _freed(folders: Mapping[str, Path]) -> list[Freed]:
    sizes = freed_by(*folders.values())
    return [
        Freed(what=what, folder=str(folder), bytes=size)
        for (what, folder), size in zip(folders.items(), sizes, strict=True)
    ]
