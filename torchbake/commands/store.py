"""`store`: list or verify the store of this machine. It needs no engine and no registry."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from torchbake.commands import _options as opt
from torchbake.commands._subcommands import Subcommand
from torchbake.core.digest import short_digest
from torchbake.core.paths import gzip_layout_of, layers_folder, layers_limit, layout_of
from torchbake.core.sizes import human
from torchbake.errors import DamagedError
from torchbake.oci.manifest import Blob
from torchbake.store.blobs import Blobs, StoreEntry
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.verify import VerifyResult, remove_damaged, verify
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.progress_board import board

SUBCOMMANDS = {
    "ls": Subcommand(summary="list the layers of wheels, of all projects, and the images of this project"),
    "verify": Subcommand(summary="hash every blob, and show what is damaged"),
}
EXAMPLES = ("ls", "ls --format json", "verify", "verify --remove-damaged")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    action: Literal["ls", "verify"] = opt.argument(
        "ls (default): the layers of wheels, of all projects, and this project's images; verify: hash every blob",
        nargs="?", choices=("ls", "verify"), default="ls",
    )  # fmt: skip
    remove_damaged: bool = opt.option("verify: remove what is damaged; the next build makes it again", of=("verify",))
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    opt.refuse_unused(args, "store", args.action)
    root, layers = args.matrix.absolute().parent, LayerStore(folder=layers_folder())
    images, gzip = Layout(folder=layout_of(root)), Layout(folder=gzip_layout_of(root))
    if args.action == "ls":
        _list(layers, images, gzip, args.format)
    else:
        _verify((layers, images, gzip), args)
    return 0


def _list(layers: LayerStore, images: Layout, gzip: Layout, form: opt.Format) -> None:
    layer_entries, image_entries, gzip_entries = layers.entries(), images.entries(), gzip.entries()
    if form == "json":
        console.show_json(
            {
                "layers": {
                    **_totals(layers),
                    "limit": layers_limit(),
                    "layers": [_as_json(one) for one in layer_entries],
                },
                "images": {**_totals(images), "images": [_as_json(one) for one in image_entries]},
                "gzip": {**_totals(gzip), "images": [_as_json(one) for one in gzip_entries]},
            }
        )
        return
    last = dict[tuple[Blob, ...], StoreEntry]()  # a layer can have several keys
    for one in layer_entries:
        last.setdefault(one.blobs, one)
    layer_rows = [(short_digest(one.key), one.name, human(one.size), _day(one.last_use)) for one in last.values()]
    console.show_table(("layer", "of", "size", "last used"), layer_rows)
    console.say(f"layers: {human(_size(layers))} of at most {human(layers_limit())} in {layers.folder}")
    for store, entries, what in ((images, image_entries, "images"), (gzip, gzip_entries, "images compressed by gzip")):
        if entries or store is images:
            rows = [(one.name, short_digest(one.key), human(one.size)) for one in entries]
            console.show_table(("image", "digest", "size"), rows)
            console.say(f"{what}: {human(_size(store))} in {store.folder}")


def _verify(stores: Sequence[Blobs], args: Arguments) -> None:
    total = sum(len(store.files()) for store in stores)
    start = time.monotonic()
    with board(1, doing="hashing") as progress:
        progress.start("store", f"{total} blobs")
        value = verify(stores, lambda path: progress.look("store", short_digest(path.name)))
        if value.damages and args.remove_damaged:
            remove_damaged(stores)
        text = f"{value.blobs} blobs, {human(value.bytes)}, in {time.monotonic() - start:.1f} s"
        progress.end(
            "store", f"{len(value.damages)} damaged of {text}" if value.damages else text, good=not value.damages
        )
    _show(value, args)
    if value.damages and not args.remove_damaged:
        raise DamagedError(
            f"{len(value.damages)} blobs are damaged or missing.",
            hint=f"Run: {Command('store', 'verify --remove-damaged')}; the next build makes them again.",
        )


def _show(result: VerifyResult, args: Arguments) -> None:
    removed = bool(result.damages) and args.remove_damaged
    if args.format == "json":
        console.show_json({**asdict(result), "removed": removed})
    elif result.damages:
        rows = [(short_digest(one.digest), one.what, ", ".join(one.needed_by), one.file) for one in result.damages]
        console.show_table(("blob", "what", "needed by", "file"), rows)
        if removed:
            console.say("They were removed; the next build makes them again.")


def _totals(store: Blobs) -> dict[str, Any]:
    return {"folder": str(store.folder), "bytes": _size(store)}


def _size(store: Blobs) -> int:
    return sum(path.stat().st_size for path in store.files())


def _as_json(entry: StoreEntry) -> dict[str, Any]:
    rows: dict[str, Any] = {"key": entry.key, "name": entry.name, "bytes": entry.size}
    return rows | ({"used": entry.last_use} if entry.last_use is not None else {})


def _day(moment: float | None) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M") if moment is not None else "not known"
