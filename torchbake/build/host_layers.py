"""The layers of an image that this machine packs itself, beside BuildKit, and what stands for them in its build.

A wheel's files depend on nothing that a build makes. The bytecode of torch's modules does, and is a small layer of its
own above them. BuildKit gets empty files of their names in place of the stages that install them, and their layers take
the place of what becomes of those.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeAlias, cast

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
from torchbake.oci.layer_archive import unpack
from torchbake.oci.layer_order import Made
from torchbake.render.dockerfile import dockerfile_path, render

_SIDE_BY_SIDE = 4  # some wait for their download, while two cores pack
_URGENT = 4  # torch's bytecode, and handing over, of two images: who hands over waits only for what began before


class Compiling(Protocol):
    """What compiles modules in a build of an image; see `Bakery.bytecode`."""

    def python(self, job: Job) -> str: ...

    def bytecode(self, job: Job, sources: Path, final: str, folder: Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A layer of a wheel that is being packed: its files, or their ``bytecode``. ``stage`` would install it."""

    stage: Stage
    pin: Pin
    packed: "Future[Packed]"
    bytecode: bool = False

    @property
    def command(self) -> str:
        """What the image's history calls its layer."""
        return self.stage.bytecode_command(self.pin) if self.bytecode else self.instead

    @property
    def instead(self) -> str:
        """The command whose layer it takes the place of, perhaps with others."""
        return self.stage.command(self.pin)


Packing: TypeAlias = Sequence[Wheel]


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """The layers of one image that are being packed. ``job`` is the build of all the rest."""

    job: Job
    layers: Packing


def packed_layers(layers: Packing) -> dict[str, list[Made]]:
    """The layers, the lowest first, by the command that would have made them one; waits for them. Raises BuildError."""
    packed = {wheel: wheel.packed.result() for wheel in layers}
    odd = next((wheel for wheel, one in packed.items() if not wheel.stage.holds(one.names)), None)
    if odd:
        raise BuildError(f"{odd.pin.name} has files where another layer's may be.")
    found: dict[str, list[Made]] = {}
    for wheel, one in packed.items():
        found.setdefault(wheel.instead, []).append((wheel.command, one.layer))
    return found


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

    def close(self) -> None:
        """The same, and wait until nothing is done any more."""
        self.stop()
        for pool in (self.pool, self.urgent):
            pool.shutdown(wait=True)

    def begin(self, job: Job, compiling: Compiling) -> HostWork | None:
        """Start to pack what can be packed here, and say how the rest is built; None where BuildKit builds it all.

        Raises BuildError where the build needs the files of layers that cannot be packed.
        """
        parts = sorted(self._parts(job), key=lambda part: not part.stage.bytecode)  # what has most to do comes first
        wheels = {part: self._begun(job, part, compiling) for part in parts}
        if not wheels:
            return None
        stand_ins: dict[str, StandIn] = {
            part.stage.name: StandIn(folder=self._stand_in(job, begun), rest=self._rest(part))
            for part, begun in wheels.items()
        }
        return HostWork(job=replace(job, stand_ins=stand_ins), layers=[*chain(*wheels.values())])

    def drop_damaged(self, job: Job) -> list[str]:
        """The wheels of an image whose layers were kept, and have changed since: they will be packed anew."""
        keys = {
            key: pin.name for part in self._parts(job) for pin in part.pins for key in self._keys(job, part.stage, pin)
        }
        return [*dict.fromkeys(name for key, name in keys.items() if self.store.drop_damaged(key))]

    def _keys(self, job: Job, stage: Stage, pin: Pin) -> tuple[str, ...]:
        packer = self._packer(job, stage)
        more = (packer.bytecode_key(pin, _base_id(job)),) if stage.bytecode else ()
        return (packer.key(pin), *more)

    def _parts(self, job: Job) -> tuple[Part, ...]:
        spec, lock = job.spec, find_lock(self.root, job.spec)
        if not isinstance(spec, ImageSpec) or lock is None:
            return ()
        if dockerfile_path(self.root, spec).read_text() != render(spec, lock):
            return ()  # a template of the user's own: its steps may want torch, which is not there while it is built
        return packable(lock)

    def _begun(self, job: Job, part: Part, compiling: Compiling) -> list[Wheel]:
        packer, wheel = self._packer(job, part.stage), partial(Wheel, stage=part.stage)
        begun = [wheel(pin=pin, packed=self.pool.submit(packer.packed, pin)) for pin in part.pins]
        if not part.stage.bytecode:
            return begun
        compiler = Compiler(
            base_id=_base_id(job),
            python_id=once(partial(compiling.python, job)),
            compile=partial(compiling.bytecode, job),
        )
        if not all(self.store.find(packer.bytecode_key(pin, compiler.base_id)) for pin in part.pins):
            self.urgent.submit(compiler.python_id)  # beside the packing; where it fails, who needs it asks again
        compiled = [self.urgent.submit(_compiled, packer, files, compiler) for files in begun]
        return begun + [
            wheel(pin=pin, bytecode=True, packed=packed) for pin, packed in zip(part.pins, compiled, strict=True)
        ]

    def _packer(self, job: Job, stage: Stage) -> WheelPacker:
        spec = cast(ImageSpec, job.spec)
        return WheelPacker(
            store=self.store,
            pip=self.pip,
            python=spec.base.python,
            root=stage.root,
            trim=spec.trim,
            indexes=self.pip.instead(spec) or spec.indexes,
            modules=stage.bytecode,
            stopping=self.stopping,
        )

    def _stand_in(self, job: Job, wheels: Packing) -> Path:
        """A folder as their stage would be, with empty files; without headers, only what is in each layer for sure."""
        headers = cast(ImageSpec, job.spec).headers
        files = {wheel.pin.name: wheel.packed.result() for wheel in wheels if not wheel.bytecode} if headers else {}
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
                unpack(self.store.sound(packed.headers), folder)

    def _rest(self, part: Part) -> Path | None:
        """A folder with the lock of what BuildKit installs all the same; None where that is nothing."""
        if not part.rest:
            return None
        text = pins_text(part.rest)
        folder = self.folder / f"lock-{digest([text]).removeprefix('sha256:')[:16]}"
        write_text(folder / f"locks/{part.stage.name}.lock", text)
        return folder


def _compiled(packer: WheelPacker, files: Wheel, compiler: Compiler) -> Packed:
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
