"""Pack the layer of one locked wheel, by the same code that trims wheels inside a build.

A build writes each file four times: unpacked, copied, archived, unpacked again. The packer writes it once, from the
wheel's archive to the layer's archive in one stream.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchbake.build.wheel_fetch import WheelArchive, fetch_wheel, find_archive, not_found
from torchbake.build.wheel_records import WheelRecords
from torchbake.core.digest import digest
from torchbake.core.paths import PACKAGE, TOOLKIT
from torchbake.core.processes import ProcessResult, run_to_end
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.lock.nvidia import nvidia_folder
from torchbake.matrix.spec import AMD64
from torchbake.oci.layer_archive import Member, tree_members, unpack, write_layer
from torchbake.render.wheel_groups import kept_rules
from torchbake.store.layers import LayerStore, PackedLayer, read_packed
from torchbake.ui.tool_environment import environment_of

_FORMAT = "4"  # of layers; after a change of the number all layers are packed again
_LIMIT = 3600.0  # seconds for a download
_PATIENT = 19  # the lowest priority of a process
_THREADS = 2  # for the compression of one layer
_WHEELS = TOOLKIT / "layers/wheels"
_MODULES = ("contents", "records", "strip", "tree", "trim")  # which decide the files of a layer
_TRIM = TOOLKIT / "layers/trim.toml"
_STREAM = ("-m", "torchbake.build.wheel_stream")
_NORMALISE = """\
from pathlib import Path
from layers.wheels.tree import normalise

for folder in Path("layers").iterdir():
    normalise(folder)
"""

# Without these settings malloc returns freed memory to the kernel, which clears each page for the next use.
# Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**28), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Compiles bytecode by an image's Python, which has two IDs.

    ``base_id`` is known without a build, and differs for each base. ``python_id`` needs a build, and is the same for
    one build of Python on all bases. Both differ for compilers that may write other bytecode.
    ``compile`` takes a folder of Python files, their folder in the image, and a folder for the bytecode. It and
    ``python_id`` raise BuildError.
    """

    base_id: str
    python_id: Callable[[], str]
    compile: Callable[[Path, str, Path], None]


@dataclass(frozen=True, kw_only=True)
class WheelPacker:
    """Packs wheels for a Python and a platform into layers with files below ``root``, a top-level folder of the image.

    ``indexes`` are used for wheels that the host's indexes and folders lack. With ``modules`` Python files are also
    packed for `compiled`. Packing has the lowest priority.
    """

    store: LayerStore
    pip: PipConfig
    python: str
    root: str
    trim: bool
    platform: str = AMD64
    indexes: tuple[str, ...] = ()
    modules: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)

    def key(self, pin: Pin) -> str:
        """Return the digest of the inputs of a wheel's layer; Python and platform decide the archive."""
        # The key of amd64 is as before: packed layers stay in use.
        target = () if self.platform == AMD64 else (self.platform, *self._keep_rules)
        return self._key(pin, *pin.hashes, self.python, *target)

    def _key(self, pin: Pin, *what: str) -> str:
        rules = _TRIM.read_text() if self.trim else ""
        sources = [(_WHEELS / f"{name}.py").read_text() for name in _MODULES]
        aside = ["modules"] if self.modules else []
        return digest((_FORMAT, pin.name, pin.version, *what, self.root, rules, *sources, *aside))

    @property
    def _keep_rules(self) -> tuple[str, ...]:
        return kept_rules(self.platform) if self.trim else ()

    def bytecode_key(self, pin: Pin, compiler: str) -> str:
        """Return the digest of the inputs of a layer with a wheel's bytecode."""
        return digest((self.key(pin), compiler))

    def pack(self, pin: Pin) -> PackedLayer:
        """Return the layer of a wheel from the store, or pack it. Raises BuildError."""
        return self._keep(self.key(pin), lambda _: self._of_archive(pin))

    def compile(self, pin: Pin, compiler: Compiler) -> PackedLayer:
        """Return the layer with the bytecode of a wheel's modules, or compile it. Raises BuildError."""

        def by_python(_: Path) -> PackedLayer:
            key = self.bytecode_key(pin, compiler.python_id())
            return self._keep(key, lambda work: self._compile(pin, compiler, work))

        return self._keep(self.bytecode_key(pin, compiler.base_id), by_python)

    def _keep(self, key: str, make: Callable[[Path], PackedLayer]) -> PackedLayer:
        """Return the layer of a key from the store, or fetch or make it: the files of `PackedLayer.files`, in a folder.

        Files that are not in the folder must be in the store.
        """
        layer = self.store.find(key)
        if layer:
            return layer
        with self.store.turn(key) as work:
            layer = self.store.find(key)
            if layer:
                return layer
            packed = self.store.fetch(key, work, self._go_on) or make(work)
            files = {blob.digest: work / name for name, blob in packed.files.items()}
            self.store.add(key, packed, {digest: file for digest, file in files.items() if file.exists()})
            return packed

    def _of_archive(self, pin: Pin) -> PackedLayer:
        """Return the layer of a wheel's archive, which is fetched once for all versions of Python that it fits."""
        # For this thread and its child processes.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PATIENT)
        archive = find_archive(pin, self.pip, self.python, self.indexes, self.platform)
        if archive is None:
            raise not_found(pin)
        key = self._key(pin, *archive.hashes, archive.name, *self._keep_rules)
        return self._keep(key, lambda work: self._stream(pin, archive, work))

    def _stream(self, pin: Pin, archive: WheelArchive, work: Path) -> PackedLayer:
        with fetch_wheel(archive, self.pip, work / "wheel.whl", self.stopping) as source_archive:
            job = {
                "wheel": str(source_archive.path.absolute()), "root": self.root.strip("/"), "threads": _THREADS,
                "rules": str(_TRIM) if self.trim else "", "modules": self.modules, "keep": self._keep_rules,
            }  # fmt: skip
            result = self._run(work, *_STREAM, json.dumps(job))
            if result.code:
                raise BuildError(
                    f"{source_archive.name} cannot be packed: {result.last_words or f'it ended with {result.code}'}"
                )
            if nvidia_folder(pin.name) is not None:  # `parts.unaltered` compares its files
                WheelRecords(folder=self.store.records).keep(source_archive)
        return read_packed(json.loads(result.stdout))

    def _compile(self, pin: Pin, compiler: Compiler, work: Path) -> PackedLayer:
        modules, layer = self.pack(pin).modules, work / "layers" / pin.name
        layer.mkdir(parents=True)
        if modules:
            unpack(self.store.sound(modules), work)
            compiler.compile(work / "modules", self.root, layer)
            _check_compiled(pin, work / "modules", layer)
        result = self._run(work, "-c", _NORMALISE)
        if result.code:
            raise BuildError(f"the bytecode of {pin.name} cannot be packed: {result.last_words}")
        members = self._going_on(tree_members(layer, self.root.strip("/")))
        packed = write_layer(work / "layer.tar.zst", members, threads=_THREADS)
        return PackedLayer(layer=packed, names=tuple(_names(layer)))

    def _run(self, work: Path, *words: str) -> ProcessResult:
        """Run a Python with the packages `layers` and `torchbake` in the folder ``work``."""
        path = os.pathsep.join((str(TOOLKIT), str(PACKAGE.parent)))
        env = {**environment_of("python"), **_KEEP_MEMORY, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return run_to_end((sys.executable, *words), env=env, limit=_LIMIT, stopping=self.stopping, cwd=work)

    def _going_on(self, members: Iterable[Member]) -> Iterator[Member]:
        for member in members:
            self._go_on()
            yield member

    def _go_on(self) -> None:
        if self.stopping.is_set():
            raise KeyboardInterrupt


def _check_compiled(pin: Pin, modules: Path, layer: Path) -> None:
    """Raise BuildError unless a layer has only bytecode of these modules, some of which may have syntax errors."""
    found_paths = [path.relative_to(layer) for path in layer.rglob("*.pyc")]
    # __pycache__/NAME.TAG.pyc
    sources = [path.parent.with_name(f"{path.name.rsplit('.', 2)[0]}.py") for path in found_paths]
    others = sorted(str(source) for source in sources if not (modules / source).is_file())
    if others or (not sources and modules.is_dir()):
        raise BuildError(f"the bytecode of {pin.name} is not its own: {', '.join(others[:3]) or 'there is none'}")


def _names(tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in sorted(tree.rglob("*")) if not path.is_dir()]
