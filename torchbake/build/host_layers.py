"""The layers of wheels that this machine packs, beside the build of all the rest.

A wheel's files depend on nothing that a build makes. The bytecode of torch's modules depends on the image's Python. It
is a small layer above them.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Protocol, cast

from torchbake.build.bakefile import Job
from torchbake.build.wheel_packer import Compiler, WheelPacker
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Lock, Pin
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import Made
from torchbake.render.wheel_groups import Group, wheel_groups, wheel_order
from torchbake.store.layers import LayerStore, Packed

_SIDE_BY_SIDE = 4  # some wait for their download, while two cores pack
_URGENT = 4  # torch's bytecode, and pulling ahead, of two images: who pulls waits only for what began before


class Compiling(Protocol):
    """What compiles modules in a build of an image; see `Bakery.bytecode`."""

    def python(self, job: Job) -> str: ...

    def bytecode(self, job: Job, sources: Path, final: str, folder: Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class WheelLayer:
    """A layer of a wheel that is being packed: its files, or their ``bytecode``."""

    group: Group
    pin: Pin
    packed: "Future[Packed]"
    bytecode: bool = False

    @property
    def made(self) -> Made:
        """The layer, and what the image's history calls it; waits for it. Raises BuildError."""
        folder = "bytecode" if self.bytecode else "layers"
        return f"COPY /{folder}/{self.pin.name} {self.group.root}", self.packed.result().layer


@dataclass(frozen=True, kw_only=True)
class HostLayers:
    """Packs layers for the images of one project."""

    store: LayerStore
    pip: PipConfig
    stopping: threading.Event = field(default_factory=threading.Event)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_SIDE_BY_SIDE))
    urgent: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_URGENT))

    def stop(self) -> None:
        """End what is being packed, and pack no more."""
        self.stopping.set()
        for pool in (self.pool, self.urgent):
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """The same, and wait until nothing is done any more."""
        self.stop()
        for pool in (self.pool, self.urgent):
            pool.shutdown(wait=True)

    def begin(self, job: Job, compiling: Compiling) -> list[WheelLayer]:
        """Start to pack the wheels of an image; their layers, the lowest first."""
        lock = cast(Lock, job.lock)
        layers: dict[str, list[WheelLayer]] = {}
        # What has most to do comes first.
        for group in sorted(wheel_groups(lock), key=lambda group: not group.bytecode):
            layers |= self._begun(job, group, lock.layers[group.layer], compiling)
        return [layer for pin in wheel_order(lock) for layer in layers[pin.name]]

    def _begun(
        self, job: Job, group: Group, pins: Sequence[Pin], compiling: Compiling
    ) -> Mapping[str, list[WheelLayer]]:
        """The layers of each wheel of a group, by its name."""
        packer, layer = self._packer(job, group), partial(WheelLayer, group=group)
        begun = [layer(pin=pin, packed=self.pool.submit(packer.packed, pin)) for pin in pins]
        if not group.bytecode:
            return {files.pin.name: [files] for files in begun}
        compiler = Compiler(
            base_id=_base_id(job),
            python_id=once(partial(compiling.python, job)),
            compile=partial(compiling.bytecode, job),
        )
        if not all(self.store.find(packer.bytecode_key(pin, compiler.base_id)) for pin in pins):
            self.urgent.submit(compiler.python_id)  # beside the packing; where it fails, who needs it asks again
        compiled = {
            files.pin.name: self.urgent.submit(_compiled, packer, files, compiler) for files in begun
        }  # fmt: skip
        return {
            files.pin.name: [files, layer(pin=files.pin, bytecode=True, packed=compiled[files.pin.name])]
            for files in begun
        }

    def _packer(self, job: Job, group: Group) -> WheelPacker:
        spec = cast(ImageSpec, job.spec)
        return WheelPacker(
            store=self.store,
            pip=self.pip,
            python=spec.base.python,
            root=group.root,
            trim=spec.trim and group.trim,
            indexes=self.pip.instead(spec) or spec.indexes,
            modules=group.bytecode,
            stopping=self.stopping,
        )


def _compiled(packer: WheelPacker, files: WheelLayer, compiler: Compiler) -> Packed:
    files.packed.result()  # by the thread that packs it: one that did so leaves the cores to others for good
    return packer.compiled(files.pin, compiler)


def _base_id(job: Job) -> str:
    base = cast(ImageSpec, job.spec).base
    return f"{base.python} {base.interpreter} {job.base.digest}"


def once(ask: Callable[[], str]) -> Callable[[], str]:
    """The same question, which is asked once; several threads may."""
    turn, answer = threading.Lock(), cache(ask)

    def answered() -> str:
        with turn:
            return answer()

    return answered
