"""`clean`: remove caches, and report how much space that frees."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from torchbake.commands import _options as opt
from torchbake.core.files import files_below, freed_by, remove_folder
from torchbake.core.paths import CONTENTS, cache_folder, layers_folder
from torchbake.core.sizes import human, parse_size
from torchbake.matrix.project import Project, load_project
from torchbake.store.blobs import Blobs
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.ui import console

EXAMPLES = ("--dry-run", "", "--keep-layers 20GB", "--format json")
# Folders that earlier versions wrote and that nothing reads.
_OLD = ("exports", "layers", "stand-ins", "unchanged")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    dry_run: bool = opt.option("say what would be freed; remove nothing")
    keep_layers: int = opt.option(
        "keep the layers of wheels that were used last, up to this size (default: 0)", type=_size, default=0,
        metavar="SIZE",
    )  # fmt: skip
    format: opt.Format = opt.result_format()


@dataclass(frozen=True, kw_only=True)
class FreedFolder:
    """A folder with its use, and the bytes that are free without it."""

    what: str
    folder: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class _RemovableFiles:
    """Files to remove. Files of a ``store`` stay if another process uses it."""

    what: str
    folder: Path
    files: Sequence[Path]
    remove: Callable[[], object]
    store: Blobs | None = None


def run(args: Arguments) -> int:
    parts = [*_parts(load_project(args.matrix), args.keep_layers)]
    sizes = freed_by(*(part.files for part in parts))
    freed = [
        FreedFolder(what=part.what, folder=str(part.folder), bytes=size)
        for part, size in zip(parts, sizes, strict=True)
    ]
    if not args.dry_run:
        freed = [each if _remove(part) else replace(each, bytes=0) for part, each in zip(parts, freed, strict=True)]
    if args.format == "json":
        console.show_json({"freed": [asdict(each) for each in freed]})
        return 0
    console.show_table(("what", "frees", "folder"), [(each.what, human(each.bytes), each.folder) for each in freed])
    total = human(sum(each.bytes for each in freed))
    console.say(f"{total} would be freed" if args.dry_run else f"freed {total}; the engine's images are as they were")
    return 0


def _parts(project: Project, keep: int) -> Iterator[_RemovableFiles]:
    layers, images = LayerStore(folder=layers_folder()), Layout(folder=project.layout)
    gzip = Layout(folder=project.gzip_layout)
    if keep:
        yield _RemovableFiles(
            what="layers of wheels, of all projects, that were used longest ago", folder=layers.folder, store=layers,
            files=layers.surplus(keep), remove=lambda: layers.remove_surplus(keep),
        )  # fmt: skip
    else:
        yield _folder("layers of wheels and the builder's uv, of all projects", layers.folder, layers)
    yield _folder("wheels of this host's folders", project.state / "wheels")
    yield _folder("locked Debian packages of images", project.state / "debs")
    yield _folder("images as they were built", images.folder, images)
    yield _folder("the same images, compressed by gzip for publish", gzip.folder, gzip)
    yield _folder("logs and plans of runs", project.state / "runs")
    yield _folder("what layers hold, of images that were compared", cache_folder() / CONTENTS)
    old = {project.state / name for name in _OLD} | {cache_folder() / "layers"}
    yield from (_folder("of an earlier version", folder) for folder in sorted(old) if folder.is_dir())


def _folder(what: str, folder: Path, store: Blobs | None = None) -> _RemovableFiles:
    return _RemovableFiles(
        what=what, folder=folder, files=files_below(folder), remove=partial(remove_folder, folder), store=store
    )


def _remove(part: _RemovableFiles) -> bool:
    """Remove a part; return whether this was done, and say so if it was not."""
    if part.store is None or not part.folder.is_dir():
        part.remove()
        return True
    try:
        with part.store.alone():
            part.remove()
            return True
    except BlockingIOError:
        console.say(f"{part.folder} stays: a build uses it", style="yellow")
        return False
