"""One locked wheel as a layer: installed by uv, trimmed by the same code as inside a build, and packed.

What a build writes four times (unpacked, copied, archived, unpacked again) is written once here: uv unpacks the wheel,
and its files go through one stream that hashes the archive, compresses it and hashes that.
"""

import os
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import zstandard

from torchbake.build.layer_store import LayerStore, Packed
from torchbake.core.digest import Digested, digest
from torchbake.core.paths import TOOLKIT
from torchbake.core.processes import run_to_end
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.lockfile import Pin, pins_text
from torchbake.lock.uv import PLATFORM, uv_environment
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob

_FORMAT = "1"  # of a layer: another one is packed anew
_LEVEL = 3  # as BuildKit's own
_CHUNK = 2**20
_MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+zstd"
_LIMIT = 3600.0  # seconds, of a download
_PATIENT = 19  # the lowest priority
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

for folder in (*Path("layers").iterdir(), Path("headers")):
    if folder.is_dir():
        normalise(folder)
"""
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TOOLKIT / "layers"), "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Makes bytecode by an image's own Python. ``id`` tells apart those that may make another one's.

    ``compile`` takes a folder of Python files, the folder where they will stand, and one for the bytecode. It raises
    BuildError.
    """

    id: str
    compile: Callable[[Path, str, Path], None]


@dataclass(frozen=True, kw_only=True)
class WheelPacker:
    """Packs wheels for a Python, into layers whose files stand below ``root``, a top-level folder of the image.

    ``indexes`` are asked for what the host's own indexes and folders lack. With a ``compiler`` modules get bytecode.
    One that is ``patient`` leaves the cores to whoever else wants them.
    """

    store: LayerStore
    pip: PipConfig
    python: str
    root: str
    trim: bool
    indexes: tuple[str, ...] = ()
    compiler: Compiler | None = None
    patient: bool = True
    stopping: threading.Event = field(default_factory=threading.Event)

    def key(self, pin: Pin) -> str:
        """The digest of all that decides the layer of a wheel."""
        rules = _TRIM.read_text() if self.trim else ""
        sources = [path.read_text() for path in sorted(_WHEELS.glob("*.py"))]
        compiler = [self.compiler.id] if self.compiler else []
        return digest((_FORMAT, pin.name, pin.version, *pin.hashes, self.python, self.root, rules, *sources, *compiler))

    def packed(self, pin: Pin) -> Packed:
        """The layer of a wheel, packed now unless the store has it. Raises BuildError."""
        key = self.key(pin)
        found = self.store.find(key)
        if found:
            return found
        with self.store.turn(key) as work:
            found = self.store.find(key)
            return found or self._pack(pin, key, work)

    def _pack(self, pin: Pin, key: str, work: Path) -> Packed:
        if self.patient:  # it counts for this thread, and what it starts
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PATIENT)
        self._install(pin, work)
        layer, headers = work / "layers" / pin.name, work / "headers"
        self._lay_out(pin, work, _LAY_OUT, *([str(_TRIM)] if self.trim else []))
        if self.compiler:
            self._compile(self.compiler, layer, work)
        self._lay_out(pin, work, _NORMALISE)
        packed = self._archive(layer, work / "layer.tar.zst", self.root.strip("/"))
        aside = self._archive(headers, work / "headers.tar.zst", "headers") if headers.is_dir() else None
        kept = Packed(layer=packed, names=tuple(_names(layer)), headers=aside.blob if aside else None)
        files = {packed.blob.digest: work / "layer.tar.zst"}
        self.store.add(key, kept, files | ({aside.blob.digest: work / "headers.tar.zst"} if aside else {}))
        return kept

    def _lay_out(self, pin: Pin, work: Path, program: str, *words: str) -> None:
        said = self._said((sys.executable, "-c", program, *words), work, _ENVIRONMENT)
        if said:
            raise BuildError(f"{pin.name} {pin.version} cannot be laid out: {said}")

    def _compile(self, compiler: Compiler, layer: Path, work: Path) -> None:
        """Put bytecode beside the modules, which a compiler gets alone: libraries are most of a wheel."""
        modules = [path.relative_to(layer) for path in layer.rglob("*.py")]
        for module in modules:
            (work / "modules" / module).parent.mkdir(parents=True, exist_ok=True)
            (work / "modules" / module).hardlink_to(layer / module)
        if modules:
            compiler.compile(work / "modules", self.root, work / "bytecode")
            shutil.copytree(work / "bytecode", layer, dirs_exist_ok=True)

    def _install(self, pin: Pin, work: Path) -> None:
        (work / "wheel.lock").write_text(pins_text([pin]))
        said = self._install_by(self.pip, work)
        if said and self.indexes:
            said = self._install_by(self.pip.with_indexes(self.indexes), work) and said
        if said:
            raise BuildError(f"{pin.name} {pin.version} cannot be installed by uv: {said}")

    def _install_by(self, pip: PipConfig, work: Path) -> str:
        """What uv says where it fails."""
        import uv  # noqa: PLC0415 - only a run that packs needs it

        (work / "uv.toml").write_text(uv_toml(pip))  # the folder is this user's alone
        command = [uv.find_uv_bin(), "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command += ["--python", sys.executable, "--python-version", self.python, "--python-platform", PLATFORM]
        command += ["--target", "staging", "--cache-dir", "cache", "--link-mode", "hardlink"]
        command += ["--quiet", "--config-file", "uv.toml", "--requirement", "wheel.lock"]
        return self._said(command, work, uv_environment(pip))

    def _said(self, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> str:
        """What a command says where it fails; it runs in ``work``, and ends when all is to stop."""
        done = run_to_end(command, env=environment, limit=_LIMIT, stopping=self.stopping, cwd=work)
        return (done.stderr.strip() or f"it ended with {done.code}") if done.code else ""

    def _archive(self, tree: Path, target: Path, root: str) -> Layer:
        """Pack the files of a folder in the order of their names, as root's, below a folder ``root``."""
        with target.open("wb") as file:
            compressed = Digested(file)
            # Workers of its own compress, while this thread hashes; how many there are makes no other archive.
            with zstandard.ZstdCompressor(level=_LEVEL, threads=1 if self.patient else -1).stream_writer(
                cast(IO[bytes], compressed), closefd=False
            ) as compressor:
                archive = Digested(compressor)
                with tarfile.open(
                    fileobj=cast(IO[bytes], archive), mode="w|", bufsize=_CHUNK, format=tarfile.PAX_FORMAT
                ) as tar:
                    tar.copybufsize = _CHUNK  # type: ignore[attr-defined]
                    for path in (tree, *sorted(tree.rglob("*"))):
                        self._add(tar, path, root + str(path)[len(str(tree)) :])
        blob = Blob(digest=compressed.digest, size=compressed.size, media_type=_MEDIA_TYPE)
        return Layer(blob=blob, diff_id=archive.digest)

    def _add(self, tar: tarfile.TarFile, path: Path, name: str) -> None:
        if self.stopping.is_set():
            raise KeyboardInterrupt
        info = tar.gettarinfo(path, name)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = int(info.mtime)
        if info.islnk():  # two names of one file of uv's cache
            info.type, info.size = tarfile.REGTYPE, path.stat().st_size
        if info.isreg():
            with path.open("rb") as file:
                tar.addfile(info, file)
        else:
            tar.addfile(info)


def _names(tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in sorted(tree.rglob("*")) if not path.is_dir()]
