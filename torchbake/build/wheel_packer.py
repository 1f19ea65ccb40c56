"""One locked wheel as a layer: trimmed by the same code as inside a build, and packed.

What a build writes four times (unpacked, copied, archived, unpacked again) is written once here. A wheel goes from its
archive to the layer's in one stream; what cannot be had or laid out so is installed by uv, and its files are packed.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from torchbake.build.wheel_fetch import Archive, fetched, find_archive
from torchbake.build.wheel_records import WheelRecords
from torchbake.build.wheel_stream import UNFIT, Job
from torchbake.core.digest import digest
from torchbake.core.paths import PACKAGE, TOOLKIT
from torchbake.core.processes import Finished, run_to_end
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.lockfile import Pin, pins_text
from torchbake.lock.nvidia import nvidia_folder
from torchbake.lock.uv import PLATFORM, uv_environment
from torchbake.oci.layer_archive import Member, tree_members, unpack, write_layer
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob
from torchbake.store.layers import LayerStore, Packed, read_packed
from torchbake.ui.tool_environment import environment_of

_FORMAT = "4"  # of a layer: another one is packed anew
_LIMIT = 3600.0  # seconds, of a download
_PATIENT = 19  # the lowest priority
_THREADS = 2  # that compress a layer, of several at once
_WHEELS = TOOLKIT / "layers/wheels"
_TRIM = TOOLKIT / "layers/trim.toml"
# As `layers/wheels` does it inside a build; processes of their own, as they tell what they trim.
_LAY_OUT = """\
import sys
from pathlib import Path
from wheels.tree import separate, set_interpreter
from wheels.trim import read_trim, trim

trim(Path("staging"), read_trim(Path(sys.argv[1]) if sys.argv[1:] else None), Path("headers"))
set_interpreter(Path("staging"), sys.executable)
separate(Path("staging"), Path("layers"))
"""
_NORMALISE = """\
from pathlib import Path
from wheels.tree import normalise

for folder in (*Path("layers").iterdir(), Path("headers"), Path("modules")):
    if folder.is_dir():
        normalise(folder)
"""
_PROGRAMS = """\
import sys
from pathlib import Path
from wheels.tree import set_interpreter

set_interpreter(Path("staging"), sys.executable)
"""
_STREAM = """\
import json, sys
from torchbake.build.wheel_stream import Job, Tools, main
from wheels.strip import stripped
from wheels.trim import read_trim, trim_rows

main(Job(**json.loads(sys.argv[1])), Tools(read_trim=read_trim, trim_rows=trim_rows, strip=stripped))
"""


# So that what is freed is used again: without, each megabyte is asked of the kernel anew, which clears it.
# Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**28), "MALLOC_TRIM_THRESHOLD_": str(2**30)}

Made = TypeVar("Made", Packed, Packed | None)


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
        return self._kept(self.key(pin), lambda work: self._packed(pin, work))

    def compiled(self, pin: Pin, compiler: Compiler) -> Packed:
        """The layer of the bytecode of a wheel's modules, to stand above the wheel's own. Raises BuildError."""
        return self._kept(self.bytecode_key(pin, compiler.base_id), lambda _: self._by_python(pin, compiler))

    def _by_python(self, pin: Pin, compiler: Compiler) -> Packed:
        key = self.bytecode_key(pin, compiler.python_id())
        return self._kept(key, lambda work: self._compile(pin, compiler, work))

    def _kept(self, key: str, make: Callable[[Path], Made]) -> Packed | Made:
        """What the store has under a key; else it is made in a folder, as files of the names of its blobs.

        Those that are not there are in the store already. Nothing is kept where ``make`` makes none.
        """
        found = self.store.find(key)
        if found:
            return found
        with self.store.turn(key) as work:
            found = self.store.find(key)
            if found:
                return found
            packed = make(work)
            if packed:
                made = {"layer": packed.layer.blob, "headers": packed.headers, "modules": packed.modules}
                files = {blob.digest: work / f"{name}.tar.zst" for name, blob in made.items() if blob}
                self.store.add(key, packed, {digest: file for digest, file in files.items() if file.exists()})
            return packed

    def _packed(self, pin: Pin, work: Path) -> Packed:
        # It counts for this thread, and what it starts.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PATIENT)
        return self.streamed(pin) or self.installed(pin, work)

    def _compile(self, pin: Pin, compiler: Compiler, work: Path) -> Packed:
        modules, layer = self.packed(pin).modules, work / "layers" / pin.name
        layer.mkdir(parents=True)
        if modules:
            unpack(self.store.sound(modules), work)
            compiler.compile(work / "modules", self.root, layer)
            _check_compiled(pin, work / "modules", layer)
        self._lay_out(pin, work, _NORMALISE)
        packed = self._archive(layer, work / "layer.tar.zst", self.root.strip("/"))
        return Packed(layer=packed, names=tuple(_names(layer)))

    def streamed(self, pin: Pin) -> Packed | None:
        """The layer, straight from the wheel's archive; None where only uv can lay it out. Raises BuildError.

        It depends on the archive and not on Python: an archive that fits several is fetched and packed for one.
        """
        archive = find_archive(pin, self.pip, self.python, self.indexes)
        if archive is None:
            return None
        return self._kept(self._key(pin, archive.digest), lambda work: self._streamed(pin, archive, work))

    def _streamed(self, pin: Pin, archive: Archive, work: Path) -> Packed | None:
        with fetched(archive, self.pip, work / "wheel.whl", self.stopping) as wheel:
            if wheel is None or (self.modules and not self._made(pin, wheel, work)):
                return None
            told = self._stream("layer", wheel, work)
            if told is not None and nvidia_folder(pin.name) is not None:  # `parts.unaltered` compares its files
                WheelRecords(folder=self.store.records).keep(archive, wheel)
        return None if told is None else read_packed(json.loads(told))

    def _made(self, pin: Pin, wheel: Path, work: Path) -> bool:
        """Whether a wheel's programs could be made, of the little that decides them; it may have none."""
        if self._stream("programs", wheel, work) is None:
            return False
        programs = [*(work / "programs").glob("*.whl")]
        if programs and self._installs(self.pip, work, "--no-index", str(programs[0])):
            return False
        if programs:
            self._lay_out(pin, work, _PROGRAMS)
        return True

    def _stream(self, what: str, wheel: Path, work: Path) -> str | None:
        """What was said by that which was done with a wheel; None where only uv can. Raises BuildError."""
        rules = str(_TRIM) if self.trim else ""
        job = Job(
            what=what, wheel=str(wheel.absolute()), root=self.root.strip("/"), threads=_THREADS, rules=rules,
            modules=self.modules,
        )  # fmt: skip
        done = self._run((sys.executable, "-c", _STREAM, json.dumps(asdict(job))), work, _environment())
        if done.code not in (0, UNFIT):  # nobody would notice that all took longer
            raise BuildError(f"{wheel.name} cannot be packed: {done.last_words or f'it ended with {done.code}'}")
        return None if done.code else done.stdout

    def installed(self, pin: Pin, work: Path) -> Packed:
        """The layer, written into ``work`` of the files that uv installs. Raises BuildError."""
        self._install(pin, work)
        layer = work / "layers" / pin.name
        self._lay_out(pin, work, _LAY_OUT, *([str(_TRIM)] if self.trim else []))
        for module in layer.rglob("*.py") if self.modules else ():
            aside = work / "modules" / module.relative_to(layer)
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.hardlink_to(module)
        self._lay_out(pin, work, _NORMALISE)
        packed = self._archive(layer, work / "layer.tar.zst", self.root.strip("/"))
        headers, modules = (self._aside(work, name) for name in ("headers", "modules"))
        return Packed(layer=packed, names=tuple(_names(layer)), headers=headers, modules=modules)

    def _aside(self, work: Path, name: str) -> Blob | None:
        """The archive of a folder; None where it is not there."""
        return self._archive(work / name, work / f"{name}.tar.zst", name).blob if (work / name).is_dir() else None

    def _lay_out(self, pin: Pin, work: Path, program: str, *words: str) -> None:
        said = self._said((sys.executable, "-c", program, *words), work, _environment())
        if said:
            raise BuildError(f"{pin.name} {pin.version} cannot be laid out: {said}")

    def _install(self, pin: Pin, work: Path) -> None:
        (work / "wheel.lock").write_text(pins_text([pin]))
        words = ("--require-hashes", "--requirement", "wheel.lock")
        said = self._installs(self.pip, work, *words)
        if said and self.indexes:
            said = self._installs(self.pip.with_indexes(self.indexes), work, *words) and said
        if said:
            raise BuildError(f"{pin.name} {pin.version} cannot be installed by uv: {said}")

    def _installs(self, pip: PipConfig, work: Path, *words: str) -> str:
        """Install into `staging`; what uv says where it fails."""
        import uv  # noqa: PLC0415 - only a run that packs needs it

        (work / "uv.toml").write_text(uv_toml(pip))  # the folder is this user's alone
        command = [uv.find_uv_bin(), "pip", "install", "--no-deps", "--only-binary", ":all:"]
        command += ["--python", sys.executable, "--python-version", self.python, "--python-platform", PLATFORM]
        command += ["--target", "staging", "--cache-dir", "cache", "--link-mode", "hardlink"]
        return self._said([*command, "--quiet", "--config-file", "uv.toml", *words], work, uv_environment(pip))

    def _said(self, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> str:
        """What a command says where it fails."""
        done = self._run(command, work, environment)
        return (done.stderr.strip() or f"it ended with {done.code}") if done.code else ""

    def _run(self, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> Finished:
        """How a command ends; it runs in ``work``, and is ended when all is to stop."""
        return run_to_end(command, env=environment, limit=_LIMIT, stopping=self.stopping, cwd=work)

    def _archive(self, tree: Path, target: Path, root: str) -> Layer:
        """Pack the files of a folder below a folder ``root``."""
        return write_layer(target, self._going_on(tree_members(tree, root)), threads=_THREADS)

    def _going_on(self, members: Iterable[Member]) -> Iterator[Member]:
        for member in members:
            if self.stopping.is_set():
                raise KeyboardInterrupt
            yield member


def _environment() -> dict[str, str]:
    """Of a Python that has the modules of `layers/`, and the toolkit's."""
    path = os.pathsep.join((str(TOOLKIT / "layers"), str(PACKAGE.parent)))
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
