"""The layers of an image that this machine packs itself, beside BuildKit, and what stands for them in its build.

NVIDIA's wheels have no bytecode and are for any Python, so their layers depend on nothing that a build makes. BuildKit
gets empty files of their names in place of the stage that installs them, and their layers take the place of what
becomes of those.
"""

import contextlib
import re
import tarfile
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

import zstandard
from packaging.version import Version

from torchbake.build.bakefile import Job, StandIn
from torchbake.build.layer_store import LayerStore, Packed
from torchbake.build.wheel_packer import WheelPacker
from torchbake.core.digest import digest
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import find_lock
from torchbake.lock.lockfile import Lock, Pin, pins_text
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import Layer
from torchbake.render.dockerfile import dockerfile_path

_SIDE_BY_SIDE = 3  # one waits for its download, while two cores pack
_ROOT = "/nvidia"
_CUSPARSELT_IN_NVIDIA = Version("0.7")  # older ones have a folder `cusparselt`
_OTHERS = (  # what else takes of the stage, and gets what it needs of its stand-in
    "--mount=type=bind,from=nvidia,source=/layers,target=/run/nvidia \\",
    "--mount=type=bind,from=nvidia,source=/headers,target=/run/headers \\",
    f"COPY --link --from=nvidia /headers {_ROOT}",
)


Packing: TypeAlias = Mapping[str, "Future[Packed]"]  # layers by the names of their wheels


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """The layers of one image that are being packed. ``job`` is the build of all the rest."""

    job: Job
    layers: Packing


def packed_layers(layers: Packing) -> dict[str, Layer]:
    """The layers by the command that would have made each; waits for them. Raises BuildError."""
    packed = {name: future.result() for name, future in layers.items()}
    odd = next((name for name, one in packed.items() if not all(map(_expected, one.names))), None)
    if odd:
        raise BuildError(f"{odd} has files that are not NVIDIA's.")
    return {f"COPY /layers/{name} {_ROOT} # buildkit": one.layer for name, one in packed.items()}


@dataclass(frozen=True, kw_only=True)
class HostLayers:
    """Packs layers for the images of one project. What stands in for a stage is kept in ``folder``."""

    store: LayerStore
    pip: PipConfig
    root: Path
    folder: Path
    stopping: threading.Event = field(default_factory=threading.Event)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_SIDE_BY_SIDE))

    def stop(self) -> None:
        """End what is being packed, and pack no more."""
        self.stopping.set()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, job: Job) -> HostWork | None:
        """Start to pack what can be packed here, and say how the rest is built; None where BuildKit builds it all.

        Raises BuildError where the build needs the files of layers that cannot be packed.
        """
        spec, lock = job.spec, find_lock(self.root, job.spec)
        if not isinstance(spec, ImageSpec) or lock is None:
            return None
        pins = _packable(spec, lock, dockerfile_path(self.root, spec).read_text())
        if not pins:
            return None
        packer = self._packer(spec)
        layers = {pin.name: self.pool.submit(packer.packed, pin) for pin in pins}
        files = {name: layer.result() for name, layer in layers.items()} if spec.headers else {}
        stand_in = StandIn(folder=self._stand_in(layers, files), rest=self._rest(lock, pins))
        return HostWork(job=replace(job, stand_in=stand_in), layers=layers)

    def drop_damaged(self, job: Job) -> list[str]:
        """The wheels of an image whose layers were kept, and have changed since: they will be packed anew."""
        spec, lock = job.spec, find_lock(self.root, job.spec)
        if not isinstance(spec, ImageSpec) or lock is None:
            return []
        packer = self._packer(spec)
        return [pin.name for pin in lock.layers["nvidia"] if self.store.drop_damaged(packer.key(pin))]

    def _packer(self, spec: ImageSpec) -> WheelPacker:
        return WheelPacker(
            store=self.store,
            pip=self.pip,
            python=spec.base.python,
            root=_ROOT,
            trim=spec.trim,
            indexes=self.pip.instead(spec) or spec.indexes,
            stopping=self.stopping,
        )

    def _stand_in(self, layers: Mapping[str, object], files: Mapping[str, Packed]) -> Path:
        """A folder as the stage would be, with empty files; without ``files`` only what is in each layer for sure."""
        decided = [f"{name} {packed.layer.diff_id} {packed.headers}" for name, packed in files.items()]
        folder = self.folder / digest([*layers, *decided]).removeprefix("sha256:")[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.folder) as beside:
            if not folder.is_dir():
                self._write(Path(beside, "stage"), layers, files)
                with contextlib.suppress(OSError):  # another build was quicker
                    Path(beside, "stage").rename(folder)
        return folder

    def _write(self, folder: Path, layers: Iterable[str], files: Mapping[str, Packed]) -> None:
        (folder / "headers").mkdir(parents=True)
        for name in layers:
            (folder / "layers" / name / "nvidia").mkdir(parents=True)
        for path in (folder / "layers" / name / file for name, packed in files.items() for file in packed.names):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for packed in files.values():
            if packed.headers:
                _unpack(self.store.path(packed.headers.digest), folder)

    def _rest(self, lock: Lock, packed: tuple[Pin, ...]) -> Path | None:
        """A folder with the lock of what BuildKit installs all the same; None where that is nothing."""
        rest = [pin for pin in lock.layers["nvidia"] if pin not in packed]
        if not rest:
            return None
        text = pins_text(rest)
        folder = self.folder / f"lock-{digest([text]).removeprefix('sha256:')[:16]}"
        write_text(folder / "locks/nvidia.lock", text)
        return folder


def _packable(spec: ImageSpec, lock: Lock, dockerfile: str) -> tuple[Pin, ...]:
    """The wheels whose layers need nothing of a build: no bytecode, and nothing of binutils.

    None where the Dockerfile takes of their stage what a template of the user's own asks for.
    """
    pins = lock.layers["nvidia"]
    known = {*_OTHERS, *(f"COPY --link --from=nvidia /layers/{pin.name} {_ROOT}" for pin in pins)}
    lines = (line.strip() for line in dockerfile.splitlines() if re.search(r"\bfrom=nvidia\b", line))
    if any(line not in known for line in lines) or "\nFROM builder AS nvidia\n" not in dockerfile:
        return ()
    stripped = _stripped() if spec.trim else frozenset()
    return tuple(pin for pin in pins if _part(pin) not in stripped and not has_folder_of_its_own(pin))


def is_stripped(pin: Pin) -> bool:
    """Whether binutils strips libraries of this wheel, where an image's wheels are trimmed."""
    return _part(pin) in _stripped()


def has_folder_of_its_own(pin: Pin) -> bool:
    """Whether a wheel of NVIDIA's has files beside `nvidia/`: which, only the wheel itself tells."""
    return _part(pin) == "cusparselt" and Version(pin.version) < _CUSPARSELT_IN_NVIDIA


def _part(pin: Pin) -> str:
    """A wheel's part of CUDA, `cublas` of `nvidia-cublas-cu12`."""
    return re.sub(r"^nvidia-|-cu\d+$", "", pin.name)


@cache
def _stripped() -> frozenset[str]:
    """The parts of `nvidia/` in which a rule of trim.toml strips libraries."""
    rules = tomllib.loads((TOOLKIT / "layers/trim.toml").read_text())["drop"]
    paths = (path for rule in rules if rule.get("to") in ("strip", "functions") for path in rule["paths"])
    return frozenset(path.split("/")[1] for path in paths if path.startswith("nvidia/"))


def _expected(name: str) -> bool:
    return name.startswith("nvidia/") or name.partition("/")[0].endswith(".dist-info")


def _unpack(archive: Path, folder: Path) -> None:
    with (
        archive.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(folder, filter="fully_trusted")  # an archive of our own
