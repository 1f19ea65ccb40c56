"""One locked wheel as a layer: laid out and trimmed by the same code as inside a build, and packed.

A build writes each file four times (unpacked, copied, archived, unpacked again). The packer writes it once: a wheel
goes from its archive to the layer's in one stream.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchbake.build.wheel_fetch import Archive, fetched, find_archive, not_found
from torchbake.build.wheel_records import WheelRecords
from torchbake.core.digest import digest
from torchbake.core.paths import PACKAGE, TOOLKIT
from torchbake.core.processes import Finished, run_to_end
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.lock.nvidia import nvidia_folder
from torchbake.oci.layer_archive import Member, tree_members, unpack, write_layer
from torchbake.store.layers import LayerStore, Packed, read_packed
from torchbake.ui.tool_environment import environment_of

_FORMAT = "4"  # of a layer: another one is packed anew
_LIMIT = 3600.0  # seconds, of a download
_PATIENT = 19  # the lowest priority
_THREADS = 2  # that compress a layer, of several at once
_WHEELS = TOOLKIT / "layers/wheels"
_TRIM = TOOLKIT / "layers/trim.toml"
_STREAM = ("-m", "torchbake.build.wheel_stream")
_NORMALISE = """\
from pathlib import Path
from layers.wheels.tree import normalise

for folder in Path("layers").iterdir():
    normalise(folder)
"""

# So that what is freed is used again: without, each megabyte is asked of the kernel anew, which clears it.
# Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**28), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Makes bytecode by an image's own Python, of which there are two names.

    ``base_id`` is known beforehand, and another on each base. ``python_id`` has to be asked for, and is the same for
    one build of Python wherever it is. Compilers that may make another bytecode have two other names.
    ``compile`` takes a folder of Python files, the folder where they will stand, and one for the bytecode. Both raise
    BuildError.
    """

    base_id: str
    python_id: Callable[[], str]
    compile: Callable[[Path, str, Path], None]


@dataclass(frozen=True, kw_only=True)
class WheelPacker:
    """Packs wheels for a Python, into layers whose files stand below ``root``, a top-level folder of the image.

    ``indexes`` are asked for what the host's own indexes and folders lack. With ``modules`` Python files are kept aside
    too, as `compiled` wants them. To pack leaves the cores to whoever else wants them.
    """

    store: LayerStore
    pip: PipConfig
    python: str
    root: str
    trim: bool
    indexes: tuple[str, ...] = ()
    modules: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)

    def key(self, pin: Pin) -> str:
        """The digest of all that decides the layer of a wheel: the Python too, which decides what wheel it is."""
        return self._key(pin, *pin.hashes, self.python)

    def _key(self, pin: Pin, *what: str) -> str:
        rules = _TRIM.read_text() if self.trim else ""
        sources = [path.read_text() for path in sorted(_WHEELS.glob("*.py"))]
        aside = ["modules"] if self.modules else []
        return digest((_FORMAT, pin.name, pin.version, *what, self.root, rules, *sources, *aside))

    def bytecode_key(self, pin: Pin, compiler: str) -> str:
        """The digest of all that decides the layer of a wheel's bytecode."""
        return digest((self.key(pin), compiler))

    def packed(self, pin: Pin) -> Packed:
        """The layer of a wheel, packed now unless the store has it. Raises BuildError."""
        return self._kept(self.key(pin), lambda _: self._of_archive(pin))

    def compiled(self, pin: Pin, compiler: Compiler) -> Packed:
        """The layer of the bytecode of a wheel's modules, to stand above the wheel's own. Raises BuildError."""
        return self._kept(self.bytecode_key(pin, compiler.base_id), lambda _: self._by_python(pin, compiler))

    def _by_python(self, pin: Pin, compiler: Compiler) -> Packed:
        key = self.bytecode_key(pin, compiler.python_id())
        return self._kept(key, lambda work: self._compile(pin, compiler, work))

    def _kept(self, key: str, make: Callable[[Path], Packed]) -> Packed:
        """Return the layer of a key from the store; else fetch or make it in a folder, as files of `Packed.files`.

        A file that is not in the folder is in the store already.
        """
        found = self.store.find(key)
        if found:
            return found
        with self.store.turn(key) as work:
            found = self.store.find(key)
            if found:
                return found
            packed = self.store.fetch(key, work, self._go_on) or make(work)
            files = {blob.digest: work / name for name, blob in packed.files.items()}
            self.store.add(key, packed, {digest: file for digest, file in files.items() if file.exists()})
            return packed

    def _of_archive(self, pin: Pin) -> Packed:
        """The layer depends on the archive and not on Python: an archive that fits several is fetched once."""
        # It counts for this thread, and what it starts.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PATIENT)
        archive = find_archive(pin, self.pip, self.python, self.indexes)
        if archive is None:
            raise not_found(pin)
        key = self._key(pin, *archive.hashes, archive.name)
        return self._kept(key, lambda work: self._streamed(pin, archive, work))

    def _streamed(self, pin: Pin, archive: Archive, work: Path) -> Packed:
        with fetched(archive, self.pip, work / "wheel.whl", self.stopping) as found:
            job = {
                "wheel": str(found.path.absolute()), "root": self.root.strip("/"), "threads": _THREADS,
                "rules": str(_TRIM) if self.trim else "", "modules": self.modules,
            }  # fmt: skip
            done = self._run(work, *_STREAM, json.dumps(job))
            if done.code:
                raise BuildError(f"{found.name} cannot be packed: {done.last_words or f'it ended with {done.code}'}")
            if nvidia_folder(pin.name) is not None:  # `parts.unaltered` compares its files
                WheelRecords(folder=self.store.records).keep(found)
        return read_packed(json.loads(done.stdout))

    def _compile(self, pin: Pin, compiler: Compiler, work: Path) -> Packed:
        modules, layer = self.packed(pin).modules, work / "layers" / pin.name
        layer.mkdir(parents=True)
        if modules:
            unpack(self.store.sound(modules), work)
            compiler.compile(work / "modules", self.root, layer)
            _check_compiled(pin, work / "modules", layer)
        done = self._run(work, "-c", _NORMALISE)
        if done.code:
            raise BuildError(f"the bytecode of {pin.name} cannot be packed: {done.last_words}")
        members = self._going_on(tree_members(layer, self.root.strip("/")))
        packed = write_layer(work / "layer.tar.zst", members, threads=_THREADS)
        return Packed(layer=packed, names=tuple(_names(layer)))

    def _run(self, work: Path, *words: str) -> Finished:
        """How a Python ends that has the package of `layers/`; it runs in ``work``, and is ended if all is to stop."""
        return run_to_end((sys.executable, *words), env=_environment(), limit=_LIMIT, stopping=self.stopping, cwd=work)

    def _going_on(self, members: Iterable[Member]) -> Iterator[Member]:
        for member in members:
            self._go_on()
            yield member

    def _go_on(self) -> None:
        if self.stopping.is_set():
            raise KeyboardInterrupt


def _environment() -> dict[str, str]:
    """Of a Python that has the package of `layers/`, and the toolkit's."""
    path = os.pathsep.join((str(TOOLKIT), str(PACKAGE.parent)))
    return {**environment_of("python"), **_KEEP_MEMORY, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _check_compiled(pin: Pin, modules: Path, layer: Path) -> None:
    """Raise BuildError unless a layer holds bytecode of these modules alone; some may have syntax errors."""
    compiled = [path.relative_to(layer) for path in layer.rglob("*.pyc")]
    # __pycache__/NAME.TAG.pyc
    sources = [path.parent.with_name(f"{path.name.rsplit('.', 2)[0]}.py") for path in compiled]
    others = sorted(str(source) for source in sources if not (modules / source).is_file())
    if others or (not sources and modules.is_dir()):
        raise BuildError(f"the bytecode of {pin.name} is not its own: {', '.join(others[:3]) or 'there is none'}")


def _names(tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in sorted(tree.rglob("*")) if not path.is_dir()]
