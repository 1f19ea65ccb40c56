"""A project with images whose layers this machine packs, a store that has them already, and a build in memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from tests.unit.builds import BASE, preparation_of, small_project, spec_of
from tests.unit.conftest import cuda_pins, lock_for, pin
from tests.unit.layouts import archive, file, put, sha256
from torchbake.build.bakefile import BuildJob
from torchbake.build.buildx import BuildOutcome
from torchbake.build.host_layers import HostLayers, WheelLayer, _base_id
from torchbake.build.wheel_packer import WheelPacker
from torchbake.core.files import write_text
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import format_checked, lock_path
from torchbake.lock.lockfile import Pin
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob, Manifest
from torchbake.render.wheel_groups import wheel_groups
from torchbake.store.layers import LayerStore, PackedLayer
from torchbake.store.layout import Layout

CPU, CUDA, DEVEL = (
    "2.13.0-cpu-runtime-debian12",
    "2.10.0-cuda12.8-cudnn9-runtime-debian12",
    "2.10.0-cuda12.8-cudnn9-devel-debian12",
)
NVIDIA = ["nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-nccl-cu12"]
BYTECODE = "'s bytecode"
TORCH = ["torch", "triton"]
PACKED = sorted([*NVIDIA, *TORCH, *(f"{name}{BYTECODE}" for name in TORCH)])


def project_in(folder: Path) -> Project:
    """The small project with locks of its CUDA images too."""
    project = small_project(folder)
    nvcc = pin("nvidia-cuda-nvcc-cu12", "12.8.93")
    for name, more in ((CUDA, []), (DEVEL, [pin("ninja", "1.13"), nvcc])):
        _lock(project, name, more)
    return project


def _lock(project: Project, name: str, more: Iterable[Pin]) -> None:
    """Lock an image with the wheels of every CUDA image and these wheels."""
    spec = spec_of(project, name)
    assert isinstance(spec, ImageSpec)
    write_text(lock_path(project.root, spec), format_checked(spec, lock_for(spec, [*cuda_pins(), *more])))


def with_old_cusparselt(project: Project) -> str:
    """Lock the wheel for the CUDA image too, which has a folder beside `nvidia`; returns the name of the wheel."""
    old = pin("nvidia-cusparselt-cu12", "0.6.3", via=["torch"])
    _lock(project, CUDA, [old])
    return old.name


def host_of(folder: Path) -> HostLayers:
    return HostLayers(store=LayerStore(folder=folder / "layers"), pip=PipConfig())


def job_of(project: Project, name: str) -> BuildJob:
    return preparation_of(project).job(spec_of(project, name), BASE)


def keep(host: HostLayers, job: BuildJob, *files: str) -> dict[str, bytes]:
    """Put the layers of each wheel that is packed here into the store; their blobs by the names of the wheels."""
    assert job.lock
    kept_items = dict[str, bytes]()
    for group in wheel_groups(job.lock):
        packer = host._packer(job, group)
        for wheel in job.lock.layers[group.layer]:
            kept_items[wheel.name] = _keep(packer, packer.key(wheel), wheel, files)
            if group.bytecode:
                key = packer.bytecode_key(wheel, _base_id(job))
                kept_items[f"{wheel.name}{BYTECODE}"] = _keep_bytecode(packer, key, wheel)
    return kept_items


def _keep_bytecode(packer: WheelPacker, key: str, wheel: Pin) -> bytes:
    layer = archive(file(f"{wheel.name}{BYTECODE}"))
    data, path = zstandard.compress(layer), packer.store.folder / "layer"
    path.write_bytes(data)
    names = (f"{wheel.name}/__pycache__/a.pyc",)
    packed = PackedLayer(layer=Layer(blob=_blob(data), diff_id=sha256(layer)), names=names)
    packer.store.add(key, packed, {sha256(data): path})
    return data


def _keep(packer: WheelPacker, key: str, wheel: Pin, files: tuple[str, ...]) -> bytes:
    part = wheel.name if not wheel.name.startswith("nvidia-") else f"nvidia/{wheel.name.split('-')[1]}"
    names = files or (f"{part}/lib/lib{wheel.name}.so",)
    layer, headers = archive(file(wheel.name)), zstandard.compress(archive(file(f"headers/{part}/include/a.h")))
    data, folder = zstandard.compress(layer), packer.store.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "layer").write_bytes(data)
    (folder / "headers").write_bytes(headers)
    packed = PackedLayer(layer=Layer(blob=_blob(data), diff_id=sha256(layer)), names=names, headers=_blob(headers))
    packer.store.add(key, packed, {sha256(data): folder / "layer", sha256(headers): folder / "headers"})
    return data


def _blob(data: bytes) -> Blob:
    return Blob(digest=sha256(data), size=len(data), media_type="application/vnd.oci.image.layer.v1.tar+zstd")


def begin(host: HostLayers, job: BuildJob) -> list[WheelLayer]:
    """Return the layers that this machine packs for an image."""
    return host.begin(job, Build())


@dataclass
class Build:
    """A build by BuildKit that exports a layer for each step, or fails. It refuses to compile bytecode."""

    export: Path = Path()
    steps: tuple[str, ...] = ()
    outcome: BuildOutcome | None = None
    jobs: list[BuildJob] = field(default_factory=list)
    below: list[tuple[Manifest, BuildJob]] = field(default_factory=list)
    on_image: Callable[[], None] = lambda: None

    def image(self, job: BuildJob) -> BuildOutcome:
        self.jobs.append(job)
        self.on_image()
        if self.outcome:
            return self.outcome
        history = [{"created_by": step} for step in self.steps]
        layers = [archive(file("layer", step.encode())) for step in self.steps]
        digest = put(Layout(folder=self.export), *layers, config={"history": history})
        return BuildOutcome(seconds=1.0, digests=(digest,), errors=(), tail=())

    def above(self, job: BuildJob, whole: Layout, digest: str) -> BuildOutcome:
        self.below.append((whole.get(digest), job))
        return self.outcome or BuildOutcome(digests=(digest,))

    def python(self, job: BuildJob) -> str:
        raise BuildError("there is no builder here")

    def bytecode(self, job: BuildJob, sources: Path, final: str, folder: Path) -> None:
        raise BuildError("there is no builder here")
