"""Processes that write into one store. As a program: `kill` ends them at random moments, `share` lets them meet."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.unit.layouts import archive, file, put, sha256
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob
from torchbake.store.layers import LayerStore, PackedLayer
from torchbake.store.layout import Layout
from torchbake.store.verify import verify

DATA = b"a layer" * 99


def packed(data: bytes) -> PackedLayer:
    blob = Blob(digest=sha256(data), size=len(data), media_type="tar+zstd")
    return PackedLayer(layer=Layer(blob=blob, diff_id=sha256(b"archive")), names=("nvidia/a.so",))


def keep(store: LayerStore, key: str, data: bytes = DATA) -> None:
    with store.turn(key) as work:
        (work / "layer").write_bytes(data)
        store.add(key, packed(data), {sha256(data): work / "layer"})


def stores(folder: Path) -> tuple[LayerStore, Layout]:
    return LayerStore(folder=folder / "layers"), Layout(folder=folder / "layout")


def write_on(folder: Path, seed: int) -> None:
    """Pack layers, take images in and remove some, without an end."""
    random, (store, layout) = Random(seed), stores(folder)
    while True:
        data = random.randbytes(random.randrange(200_000))
        keep(store, sha256(data[:9]), data)
        with layout.write_lock() as exports:
            layout.take(exports / "image", put(Layout(folder=exports / "image"), archive(file("a", data[:99]))))
        store.tidy(2_000_000)
        layout.tidy([entry.key for entry in layout.entries()][-5:])


def pack_once(folder: Path) -> None:
    store, key = LayerStore(folder=folder), sha256(b"key")
    with store.turn(key) as work:
        if store.find(key) is None:
            (folder / f"packed-by-{os.getpid()}").touch()
            time.sleep(0.2)
            (work / "layer").write_bytes(DATA)
            store.add(key, packed(DATA), {sha256(DATA): work / "layer"})


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    return child


def kill(folder: Path, times: int) -> None:
    random = Random(41)
    for number in range(times):
        child = fork(lambda seed=number: write_on(folder, seed))  # type: ignore[misc]
        time.sleep(random.uniform(0.001, 0.025))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        value = verify(stores(folder), lambda path: None)
        if value.damages:
            raise SystemExit(f"{number}: {value.damages}")
    store, layout = stores(folder)
    print(json.dumps({"layers": len(store.entries()), "images": len(layout.entries())}))
    keep(store, sha256(b"key"))
    store.tidy(0)
    layout.tidy([])


def share(folder: Path, times: int) -> None:
    children = [fork(lambda: pack_once(folder)) for _ in range(times)]
    print(json.dumps([os.waitpid(child, 0)[1] for child in children]))


if __name__ == "__main__":
    {"kill": kill, "share": share}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
