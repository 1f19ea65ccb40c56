"""How an image is put together of what BuildKit exports and of what is packed beside it, and in which order."""

import json
from pathlib import Path

from tests.unit.build.packing import BYTECODE, CUDA, DEVEL, NVIDIA, PACKED, TORCH, Build, job_of, keep
from tests.unit.builds import spec_of
from tests.unit.layouts import sha256
from torchbake.build.buildx import Outcome
from torchbake.build.composition import Composition, rank_by
from torchbake.build.host_layers import HostLayers
from torchbake.errors import EngineError
from torchbake.lock.image_lock import find_lock
from torchbake.matrix.project import Project
from torchbake.oci.layout import Layout

STEPS = (
    "bootstrap",
    "RUN python",
    *(f"COPY /layers/{name} /nvidia # buildkit" for name in NVIDIA),
    "COPY /layers/torch /pytorch # buildkit",
    "COPY /layers/triton /pytorch # buildkit",
    "COPY /links /pytorch # buildkit",
    "COPY /opt/venv /opt/venv # buildkit",
)


def steps_of(layout: Layout, digest: str) -> list[str]:
    manifest = layout.find(digest)
    assert manifest
    return [step["created_by"] for step in json.loads(layout.path(manifest.config.digest).read_text())["history"]]


def test_wheels_stand_below_the_base_and_cudas_own_lowest(packing: Project, tmp_path: Path) -> None:
    composition = Composition(root=packing.root, host=None)
    export = tmp_path / "export"
    outcome = composition.build(job_of(packing, CUDA), export, Build(export, STEPS))
    nccl = STEPS[4]  # released with CUDA, as cuDNN is not
    lower = [STEPS[2], nccl, STEPS[3], *STEPS[5:8]]
    assert steps_of(Layout(folder=export), outcome.digests[0]) == [*lower, *STEPS[:2], STEPS[8]]


def test_compilers_are_above_what_a_runtime_image_has_too(packing: Project) -> None:
    lock = find_lock(packing.root, spec_of(packing, DEVEL))
    assert lock
    rank = rank_by(lock)
    compilers = rank("COPY /layers/nvidia-cuda-nvcc-cu12 /nvidia # buildkit")
    links, headers = rank("COPY /links /pytorch # buildkit"), rank("COPY /headers /nvidia # buildkit")
    assert compilers is not None
    assert links is not None
    assert compilers > links == headers
    assert rank("COPY /usr/local/cuda /usr/local/cuda # buildkit") is None


def test_layers_that_were_packed_here_are_in_the_image(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    blobs, export = keep(host, job_of(packing, CUDA)), tmp_path / "export"
    outcome = Composition(root=packing.root, host=host).build(job_of(packing, CUDA), export, Build(export, STEPS))
    manifest = Layout(folder=export).find(outcome.digests[0])
    assert manifest
    assert sorted(blobs) == PACKED
    assert {sha256(data) for data in blobs.values()} < {layer.digest for layer in manifest.layers}
    for data in blobs.values():
        assert Layout(folder=export).path(sha256(data)).read_bytes() == data


def test_what_cannot_be_packed_here_is_built_by_buildkit(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    said, export = list[str](), tmp_path / "export"
    build = Build(export, STEPS)
    host.store.folder.write_text("a file, where the folder would be")
    outcome = Composition(root=packing.root, host=host, say=said.append).build(job_of(packing, CUDA), export, build)
    assert [bool(job.stand_ins) for job in build.jobs] == [True, False]
    assert outcome.ok
    assert sorted(steps_of(Layout(folder=export), outcome.digests[0])) == sorted(STEPS)
    assert "BuildKit makes all layers, as this machine cannot:" in said[0]


def test_a_failed_build_is_told_as_it_is(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    keep(host, job_of(packing, CUDA))
    failed = Outcome(seconds=1.0, digests=(), errors=("apt failed",), tail=())
    composition = Composition(root=packing.root, host=host)
    assert composition.build(job_of(packing, CUDA), tmp_path / "export", Build(outcome=failed)) is failed


def test_an_engine_gets_the_lowest_layers_before_the_image_that_stands_on_them(
    packing: Project, host: HostLayers, tmp_path: Path
) -> None:
    blobs, export, handed = keep(host, job_of(packing, CUDA)), tmp_path / "export", list[list[str]]()

    def ahead(layout: Layout, digest: str) -> None:
        manifest = layout.find(digest)
        assert manifest
        handed.append([layer.digest for layer in manifest.layers])

    composition = Composition(root=packing.root, host=host, ahead=ahead)
    outcome = composition.build(job_of(packing, CUDA), export, Build(export, STEPS))
    manifest = Layout(folder=export).find(outcome.digests[0])
    assert manifest
    layers = [layer.digest for layer in manifest.layers]
    assert handed[-1] == layers[: len(PACKED)]  # CUDA's, cuDNN, torch, its bytecode, triton, its bytecode
    assert handed[-1][3:] == [sha256(blobs[f"{name}{more}"]) for name in TORCH for more in ("", BYTECODE)]
    assert all(step == layers[: len(step)] for step in handed)
    assert set(handed[-1]) == set(map(sha256, blobs.values()))


def test_an_engine_that_takes_nothing_ahead_fails_no_build(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    keep(host, job_of(packing, CUDA))

    def ahead(layout: Layout, digest: str) -> None:
        raise EngineError("no space left")

    export = tmp_path / "export"
    composition = Composition(root=packing.root, host=host, ahead=ahead)
    assert composition.build(job_of(packing, CUDA), export, Build(export, STEPS)).ok
