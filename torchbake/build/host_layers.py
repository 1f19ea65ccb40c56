"""Pack the layers of an image's wheels on this machine, in parallel with the build of the other layers.

A wheel's files do not depend on the build. The bytecode of torch's modules depends on the image's Python, so it is a
small layer above them.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Protocol, cast

from torchbake.build.bakefile import BuildJob
from torchbake.build.wheel_packer import Compiler, WheelPacker
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Lock, Pin
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import CommandLayer
from torchbake.render.wheel_groups import WheelGroup, wheel_groups, wheel_order
from torchbake.store.layers import LayerStore, PackedLayer

_PARALLEL = 4  # some wheels wait for their download, while two cores pack others
_URGENT = 4  # torch's bytecode and pulls of two images


class Compiling(Protocol):
    """A compiler of modules by a build of an image; see `Bakery.bytecode`."""

    def python(self, job: BuildJob) -> str: ...

    def bytecode(self, job: BuildJob, sources: Path, final: str, folder: Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class WheelLayer:
    """A future layer of a wheel: its files, or their ``bytecode``."""

    group: WheelGroup
    pin: Pin
    packed: "Future[PackedLayer]"
    bytecode: bool = False

    @property
    def made_layer(self) -> CommandLayer:
        """The layer with its step in the image's history, when it is packed. Raises BuildError."""
        folder = "bytecode" if self.bytecode else "layers"
        return f"COPY /{folder}/{self.pin.name} {self.group.root}", self.packed.result().layer


@dataclass(frozen=True, kw_only=True)
class HostLayers:
    """Packs layers for the images of one project."""

    store: LayerStore
    pip: PipConfig
    stopping: threading.Event = field(default_factory=threading.Event)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_PARALLEL))
    urgent: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_URGENT))

    def stop(self) -> None:
        """Stop packing."""
        self.stopping.set()
        for pool in (self.pool, self.urgent):
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Stop packing, and wait for its end."""
        self.stop()
        for pool in (self.pool, self.urgent):
            pool.shutdown(wait=True)

    def begin(self, job: BuildJob, compiling: Compiling) -> list[WheelLayer]:
        """Start to pack the wheels of an image, and return their layers, lowest first."""
        lock = cast(Lock, job.lock)
        layers: dict[str, list[WheelLayer]] = {}
        # The group with bytecode first, since it takes longest.
        for group in sorted(wheel_groups(lock), key=lambda group: not group.bytecode):
            layers |= self._start(job, group, lock.layers[group.layer], compiling)
        return [layer for pin in wheel_order(lock) for layer in layers[pin.name]]

    def _start(
        self, job: BuildJob, group: WheelGroup, pins: Sequence[Pin], compiling: Compiling
    ) -> Mapping[str, list[WheelLayer]]:
        """Start to pack the wheels of a group, and return the layers of each wheel by its name."""
        packer, layer = self._packer(job, group), partial(WheelLayer, group=group)
        packing = [layer(pin=pin, packed=self.pool.submit(packer.pack, pin)) for pin in pins]
        if not group.bytecode:
            return {files.pin.name: [files] for files in packing}
        compiler = Compiler(
            base_id=_base_id(job),
            python_id=once(partial(compiling.python, job)),
            compile=partial(compiling.bytecode, job),
        )
        if not all(self.store.find(packer.bytecode_key(pin, compiler.base_id)) for pin in pins):
            self.urgent.submit(compiler.python_id)  # in parallel with the packing; after a failure it is called again
        futures = [self.urgent.submit(_compile, packer, files, compiler) for files in packing]
        return {
            files.pin.name: [files, layer(pin=files.pin, bytecode=True, packed=bytecode)]
            for files, bytecode in zip(packing, futures, strict=True)
        }

    def _packer(self, job: BuildJob, group: WheelGroup) -> WheelPacker:
        spec = cast(ImageSpec, job.spec)
        return WheelPacker(
            store=self.store,
            pip=self.pip.for_image(spec),
            python=spec.base.python,
            root=group.root,
            trim=spec.trim and group.trim,
            platform=spec.platform,
            indexes=self.pip.instead(spec) or spec.indexes,
            modules=group.bytecode,
            stopping=self.stopping,
        )


def _compile(packer: WheelPacker, files: WheelLayer, compiler: Compiler) -> PackedLayer:
    files.packed.result()  # not by this thread: packing lowers the priority of its thread
    return packer.compile(files.pin, compiler)


def _base_id(job: BuildJob) -> str:
    base = cast(ImageSpec, job.spec).base
    # Steps that a template adds to the base may change its Python, by files that only the inputs' digest covers.
    changes = f" {job.inputs}" if job.effect.changes_base else ""
    return f"{base.python} {base.interpreter} {(job.native or job.base).digest}{changes}"


def once(ask: Callable[[], str]) -> Callable[[], str]:
    """Return a thread-safe function that calls ``ask`` once and caches its result."""
    lock, cached = threading.Lock(), cache(ask)

    def answer() -> str:
        with lock:
            return cached()

    return answer
