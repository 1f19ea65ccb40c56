"""`store`: list or verify the store of this machine. It needs no engine and no registry."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from torchbake.commands import _options as opt
from torchbake.core.digest import short_digest
from torchbake.core.paths import gzip_layout_of, layers_folder, layers_limit, layout_of
from torchbake.core.sizes import human
from torchbake.errors import DamagedError
from torchbake.oci.manifest import Blob
from torchbake.store.blobs import Blobs, Entry
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.verify import Verified, remove_damaged, verify
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.progress_board import board

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
    kept, built, packed = layers.entries(), images.entries(), gzip.entries()
    if form == "json":
        console.show_json(
            {
                "layers": {**_totals(layers), "limit": layers_limit(), "layers": [_as_json(one) for one in kept]},
                "images": {**_totals(images), "images": [_as_json(one) for one in built]},
                "gzip": {**_totals(gzip), "images": [_as_json(one) for one in packed]},
            }
        )
        return
    last = dict[tuple[Blob, ...], Entry]()  # a layer can have several keys
    for one in kept:
        last.setdefault(one.blobs, one)
    layer_rows = [(short_digest(one.key), one.name, human(one.size), _day(one.used)) for one in last.values()]
    console.show_table(("layer", "of", "size", "last used"), layer_rows)
    console.say(f"layers: {human(_size(layers))} of at most {human(layers_limit())} in {layers.folder}")
    for store, entries, what in ((images, built, "images"), (gzip, packed, "images compressed by gzip")):
        if entries or store is images:
            rows = [(one.name, short_digest(one.key), human(one.size)) for one in entries]
            console.show_table(("image", "digest", "size"), rows)
            console.say(f"{what}: {human(_size(store))} in {store.folder}")


def _verify(stores: Sequence[Blobs], args: Arguments) -> None:
    total = sum(len(store.files()) for store in stores)
    started = time.monotonic()
    with board(1, doing="hashing") as shown:
        shown.start("store", f"{total} blobs")
        found = verify(stores, lambda path: shown.look("store", short_digest(path.name)))
        if found.damages and args.remove_damaged:
            remove_damaged(stores)
        text = f"{found.blobs} blobs, {human(found.bytes)}, in {time.monotonic() - started:.1f} s"
        shown.end("store", f"{len(found.damages)} damaged of {text}" if found.damages else text, good=not found.damages)
    _show(found, args)
    if found.damages and not args.remove_damaged:
        raise DamagedError(
            f"{len(found.damages)} blobs are damaged or missing.",
            hint=f"Run: {Command('store', 'verify --remove-damaged')}; the next build makes them again.",
        )


def _show(found: Verified, args: Arguments) -> None:
    removed = bool(found.damages) and args.remove_damaged
    if args.format == "json":
        console.show_json({**asdict(found), "removed": removed})
    elif found.damages:
        rows = [(short_digest(one.digest), one.what, ", ".join(one.needed_by), one.file) for one in found.damages]
        console.show_table(("blob", "what", "needed by", "file"), rows)
        if removed:
            console.say("They were removed; the next build makes them again.")


def _totals(store: Blobs) -> dict[str, Any]:
    return {"folder": str(store.folder), "bytes": _size(store)}


def _size(store: Blobs) -> int:
    return sum(path.stat().st_size for path in store.files())


def _as_json(entry: Entry) -> dict[str, Any]:
    shown: dict[str, Any] = {"key": entry.key, "name": entry.name, "bytes": entry.size}
    return shown | ({"used": entry.used} if entry.used is not None else {})


def _day(used: float | None) -> str:
    return datetime.fromtimestamp(used).strftime("%Y-%m-%d %H:%M") if used is not None else "not known"
