"""The layers of an image that this machine packs itself, beside BuildKit, and what stands for them in its build.

NVIDIA's wheels have no bytecode and are for any Python, so their layers depend on nothing that a build makes; of
torch's a build makes the bytecode alone. BuildKit gets empty files of their names in place of the stages that install
them, and their layers take the place of what becomes of those.
"""

import contextlib
import tarfile
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import zstandard

from torchbake.build.bakefile import Job, StandIn
from torchbake.build.layer_store import LayerStore, Packed
from torchbake.build.packable import Part, Stage, packable
from torchbake.build.wheel_packer import Compiler, WheelPacker
from torchbake.core.digest import digest
from torchbake.core.files import write_text
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import find_lock
from torchbake.lock.lockfile import Pin, pins_text
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import Layer
from torchbake.render.dockerfile import dockerfile_path, render

_SIDE_BY_SIDE = 4  # some wait for their download, while two cores pack
_URGENT = 4  # torch's layer, and handing over, of two images: who hands over waits only for what began before


class Compiling(Protocol):
    """What compiles modules in a build of an image; see `Bakery.bytecode`."""

    def bytecode(self, job: Job, sources: Path, final: str, folder: Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of an image that is being packed; ``stage`` would install it."""

    stage: Stage
    pin: Pin
    packed: "Future[Packed]"

    @property
    def command(self) -> str:
        """What the image's history calls its layer."""
        return self.stage.command(self.pin)


Packing: TypeAlias = Sequence[Wheel]


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """The layers of one image that are being packed. ``job`` is the build of all the rest."""

    job: Job
    layers: Packing


def packed_layers(layers: Packing) -> dict[str, Layer]:
    """The layers by the command that would have made each; waits for them. Raises BuildError."""
    packed = {wheel: wheel.packed.result() for wheel in layers}
    odd = next((wheel for wheel, one in packed.items() if not wheel.stage.holds(one.names)), None)
    if odd:
        raise BuildError(f"{odd.pin.name} has files where another layer's may be.")
    return {wheel.command: one.layer for wheel, one in packed.items()}


@dataclass(frozen=True, kw_only=True)
class HostLayers:
    """Packs layers for the images of one project. What stands in for a stage is kept in ``folder``."""

    store: LayerStore
    pip: PipConfig
    root: Path
    folder: Path
    stopping: threading.Event = field(default_factory=threading.Event)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_SIDE_BY_SIDE))
    urgent: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_URGENT))

    def stop(self) -> None:
        """End what is being packed, and pack no more."""
        self.stopping.set()
        for pool in (self.pool, self.urgent):
            pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, job: Job, compiling: Compiling) -> HostWork | None:
        """Start to pack what can be packed here, and say how the rest is built; None where BuildKit builds it all.

        Raises BuildError where the build needs the files of layers that cannot be packed.
        """
        wheels = {part: self._begun(job, part, compiling) for part in self._parts(job)}
        if not wheels:
            return None
        stand_ins: dict[str, StandIn] = {
            part.stage.name: StandIn(folder=self._stand_in(job, begun), rest=self._rest(part))
            for part, begun in wheels.items()
        }
        return HostWork(job=replace(job, stand_ins=stand_ins), layers=[*chain(*wheels.values())])

    def drop_damaged(self, job: Job) -> list[str]:
        """The wheels of an image whose layers were kept, and have changed since: they will be packed anew."""
        parts = [(self._packer(job, part.stage), part.pins) for part in self._parts(job)]
        return [pin.name for packer, pins in parts for pin in pins if self.store.drop_damaged(packer.key(pin))]

    def _parts(self, job: Job) -> tuple[Part, ...]:
        spec, lock = job.spec, find_lock(self.root, job.spec)
        if not isinstance(spec, ImageSpec) or lock is None:
            return ()
        if dockerfile_path(self.root, spec).read_text() != render(spec, lock):
            return ()  # a template of the user's own: its steps may want torch, which is not there while it is built
        return packable(spec, lock)

    def _begun(self, job: Job, part: Part, compiling: Compiling) -> list[Wheel]:
        packer = self._packer(job, part.stage, compiling)
        pool = self.urgent if part.stage.bytecode else self.pool
        return [Wheel(stage=part.stage, pin=pin, packed=pool.submit(packer.packed, pin)) for pin in part.pins]

    def _packer(self, job: Job, stage: Stage, compiling: Compiling | None = None) -> WheelPacker:
        """Without ``compiling`` for looking into the store alone."""
        spec, compiler = cast(ImageSpec, job.spec), None
        if stage.bytecode:
            compile_ = partial(compiling.bytecode, job) if compiling else _nothing
            compiler = Compiler(id=f"{spec.base.python} {spec.base.interpreter} {job.base.digest}", compile=compile_)
        return WheelPacker(
            store=self.store,
            pip=self.pip,
            python=spec.base.python,
            root=stage.root,
            trim=spec.trim,
            indexes=self.pip.instead(spec) or spec.indexes,
            compiler=compiler,
            patient=not stage.bytecode,
            stopping=self.stopping,
        )

    def _stand_in(self, job: Job, wheels: Packing) -> Path:
        """A folder as their stage would be, with empty files; without headers, only what is in each layer for sure."""
        headers = cast(ImageSpec, job.spec).headers
        files = {wheel.pin.name: wheel.packed.result() for wheel in wheels} if headers else {}
        decided = [f"{name} {packed.layer.diff_id} {packed.headers}" for name, packed in files.items()]
        places = {wheel.pin.name: wheel.stage.sure(wheel.pin) for wheel in wheels}
        named = [f"{name} {place}" for name, place in places.items()]
        folder = self.folder / digest([*named, *decided]).removeprefix("sha256:")[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.folder) as beside:
            if not folder.is_dir():
                self._write(Path(beside, "stage"), places, files)
                with contextlib.suppress(OSError):  # another build was quicker
                    Path(beside, "stage").rename(folder)
        return folder

    def _write(self, folder: Path, places: Mapping[str, str], files: Mapping[str, Packed]) -> None:
        (folder / "headers").mkdir(parents=True)
        for name, place in places.items():
            (folder / "layers" / name / place).mkdir(parents=True)
        for path in (folder / "layers" / name / file for name, packed in files.items() for file in packed.names):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for packed in files.values():
            if packed.headers:
                _unpack(self.store.path(packed.headers.digest), folder)

    def _rest(self, part: Part) -> Path | None:
        """A folder with the lock of what BuildKit installs all the same; None where that is nothing."""
        if not part.rest:
            return None
        text = pins_text(part.rest)
        folder = self.folder / f"lock-{digest([text]).removeprefix('sha256:')[:16]}"
        write_text(folder / f"locks/{part.stage.name}.lock", text)
        return folder


def _nothing(sources: Path, final: str, folder: Path) -> None:
    """In place of a compiler where a layer is looked for, and none is packed."""


def _unpack(archive: Path, folder: Path) -> None:
    with (
        archive.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(folder, filter="fully_trusted")  # an archive of our own
