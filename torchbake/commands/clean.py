"""`clean`: frees what can be made again, and says how much of it there was."""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

from torchbake.build.layer_store import LayerStore
from torchbake.commands._options import Format, add_format
from torchbake.core.files import remove_folder, size_of
from torchbake.core.paths import layers_folder
from torchbake.core.sizes import human
from torchbake.matrix.project import load_project
from torchbake.ui import console

EXAMPLES = ("nox -s clean -- --dry-run", "nox -s clean", "nox -s clean -- --format json")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    matrix: Path
    dry_run: bool
    format: Format


@dataclass(frozen=True, kw_only=True)
class Freed:
    """A folder with what it is for, and the bytes that it held."""

    what: str
    folder: str
    bytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be freed; remove nothing")
    add_format(parser)


def run(args: Arguments) -> int:
    freed = [*_layers(dry_run=args.dry_run), *_of_project(args.matrix, dry_run=args.dry_run)]
    if args.format == "json":
        console.show_json({"freed": [asdict(each) for each in freed]})
        return 0
    console.show_table(("what", "size", "folder"), [(each.what, human(each.bytes), each.folder) for each in freed])
    total = human(sum(each.bytes for each in freed))
    console.say(f"{total} would be freed" if args.dry_run else f"freed {total}; the engine's images are as they were")
    return 0


def _layers(*, dry_run: bool) -> list[Freed]:
    folder = layers_folder()
    size = size_of(folder) if dry_run else LayerStore(folder=folder).clean()
    return [Freed(what="layers of wheels, of all projects", folder=str(folder), bytes=size)]


def _of_project(matrix: Path, *, dry_run: bool) -> list[Freed]:
    project = load_project(matrix)
    folders = {
        "stand-ins for those layers": project.state / "stand-ins",
        "wheels of this host's folders": project.state / "wheels",
        "images that were packed for `publish`": project.layout,
        "logs and plans of runs": project.state / "runs",
    }
    found = [Freed(what=what, folder=str(folder), bytes=size_of(folder)) for what, folder in folders.items()]
    if not dry_run:
        for folder in folders.values():
            remove_folder(folder)
    return found
