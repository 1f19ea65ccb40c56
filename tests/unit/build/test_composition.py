"""The composition of an image: layers that BuildKit exports, layers that the host packs, and their order."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path

from tests.unit.build.packing import BYTECODE, CUDA, DEVEL, NVIDIA, PACKED, TORCH, Build, job_of, keep
from tests.unit.layouts import sha256
from torchbake.build.buildx import BuildOutcome
from torchbake.build.composition import Composition
from torchbake.build.host_layers import HostLayers
from torchbake.core.files import write_text
from torchbake.errors import EngineError
from torchbake.lock.lockfile import assign_layers
from torchbake.matrix.project import Project
from torchbake.oci.layer_stream import uncompressed
from torchbake.render.wheel_groups import HEAVY
from torchbake.store.layout import Layout

STEPS = ("bootstrap", "RUN python", "COPY /opt/venv /opt/venv # buildkit")


def steps_of(layout: Layout, digest: str) -> list[str]:
    manifest = layout.find(digest)
    assert manifest
    return [step["created_by"] for step in json.loads(layout.path(manifest.config.digest).read_text())["history"]]


def composed(packing: Project, host: HostLayers, export: Path, name: str = CUDA) -> list[str]:
    """The steps of an image that is put together."""
    build = Build(export, STEPS)
    outcome = Composition(host=host).build(job_of(packing, name), export, build)
    assert outcome.ok, outcome.errors
    assert [job.below for job in build.jobs] == ["rest"]
    return steps_of(Layout(folder=export), outcome.digests[0])


def test_wheels_stand_below_the_base_and_cudas_own_lowest(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    keep(host, job_of(packing, CUDA))
    assert composed(packing, host, tmp_path / "export") == [
        "COPY /layers/nvidia-cuda-runtime-cu12 /nvidia",
        "COPY /layers/nvidia-nccl-cu12 /nvidia",
        "COPY /layers/nvidia-cudnn-cu12 /nvidia",  # released with torch, as NCCL is not
        *(f"COPY /{kind}/{name} /pytorch" for name in TORCH for kind in ("layers", "bytecode")),
        "COPY /links /pytorch",
        *STEPS,
    ]


def test_a_devel_image_has_compilers_and_headers_on_top(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    keep(host, job_of(packing, CUDA))
    keep(host, job_of(packing, DEVEL))
    runtime, devel = (composed(packing, host, tmp_path / name, name) for name in (CUDA, DEVEL))
    wheels = runtime[: runtime.index("COPY /links /pytorch")]
    assert devel == [
        *wheels, "COPY /layers/nvidia-cuda-nvcc-cu12 /nvidia", "COPY /links /pytorch",
        "COPY /headers /nvidia", "COPY /headers /pytorch", "COPY /usr/local/cuda /usr/local/cuda", *STEPS,
    ]  # fmt: skip


def test_large_wheels_are_above_shared_wheels(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    job = job_of(packing, DEVEL)
    assert job.lock
    job = replace(job, lock=replace(job.lock, layers=assign_layers(job.lock.pins.values(), heavy={"numpy"})))
    keep(host, job)
    outcome = Composition(host=host).build(job, tmp_path / "export", Build(tmp_path / "export", STEPS))
    steps = steps_of(Layout(folder=tmp_path / "export"), outcome.digests[0])
    first = steps.index("COPY /layers/nvidia-cuda-nvcc-cu12 /nvidia")
    assert steps[first + 1 : first + 5] == [
        *(f"COPY /{kind}/numpy /packages" for kind in ("layers", "bytecode")),
        *(f"COPY /links {root}" for root in ("/pytorch", "/packages")),
    ]
    links = entries_of(Layout(folder=tmp_path / "export"), outcome.digests[0], "COPY /links /packages")
    assert links == {"packages/nvidia": "/nvidia/nvidia"}
    assert not host._packer(job, HEAVY).trim, "rules of trim.toml would pack them again after a change"


def entries_of(layout: Layout, digest: str, command: str) -> dict[str, str]:
    """Return the files and links of the layer that a command made, with the links' targets."""
    manifest = layout.find(digest)
    assert manifest
    blob = manifest.layers[steps_of(layout, digest).index(command)]
    with (
        layout.path(blob.digest).open("rb") as packed,
        uncompressed(packed, b"\x28\xb5\x2f\xfd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        return {entry.name: entry.linkname for entry in tar if not entry.isdir()}


def test_links_lead_to_files_of_the_wheels_and_to_their_headers(
    packing: Project, host: HostLayers, tmp_path: Path
) -> None:
    keep(host, job_of(packing, DEVEL))
    layout = Layout(folder=tmp_path / "export")
    (digest,) = Composition(host=host).build(
        job_of(packing, DEVEL), layout.folder, Build(layout.folder, STEPS)
    ).digests  # fmt: skip
    assert entries_of(layout, digest, "COPY /links /pytorch") == {"pytorch/nvidia": "/nvidia/nvidia"}
    home = entries_of(layout, digest, "COPY /usr/local/cuda /usr/local/cuda")
    headers = entries_of(layout, digest, "COPY /headers /nvidia")
    assert sorted(headers) == sorted(f"nvidia/nvidia/{name.split('-')[1]}/include/a.h" for name in NVIDIA)
    assert home["usr/local/cuda/include/a.h"].strip("/") in headers
    name = "libnvidia-cuda-nvcc-cu12.so"
    assert home[f"usr/local/cuda/lib64/{name}"] == f"/nvidia/nvidia/cuda/lib/{name}"


def test_a_torch_wheel_with_a_file_at_a_link_is_an_error(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    keep(host, job_of(packing, CUDA), "nvidia/a.so")
    outcome = Composition(host=host).build(
        job_of(packing, CUDA), tmp_path / "export", Build(tmp_path / "export", STEPS)
    )
    assert "/pytorch/nvidia" in outcome.errors[0]


def test_layers_that_were_packed_here_are_in_the_image(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    blobs, export = keep(host, job_of(packing, CUDA)), tmp_path / "export"
    outcome = Composition(host=host).build(job_of(packing, CUDA), export, Build(export, STEPS))
    manifest = Layout(folder=export).find(outcome.digests[0])
    assert manifest
    assert sorted(blobs) == PACKED
    assert {sha256(data) for data in blobs.values()} < {layer.digest for layer in manifest.layers}
    for data in blobs.values():
        assert Layout(folder=export).path(sha256(data)).read_bytes() == data


def block(text: str, name: str = "before_user") -> str:
    return '{% extends "pytorch.Dockerfile.j2" %}{% block ' + name + " %}\n" + text + "\n{% endblock %}"


def test_a_template_without_commands_leaves_the_wheels_apart(
    packing: Project, host: HostLayers, tmp_path: Path
) -> None:
    write_text(packing.root / "templates/pytorch.Dockerfile.j2", block("ENV A=b\nCOPY --from=nvidia /layers /mine"))
    keep(host, job_of(packing, CUDA))
    assert composed(packing, host, tmp_path / "export")[0] == "COPY /layers/nvidia-cuda-runtime-cu12 /nvidia"


def test_commands_of_a_template_are_built_above_packed_wheels(
    packing: Project, host: HostLayers, tmp_path: Path
) -> None:
    """Its steps find torch and CUDA as they will be in the image."""
    write_text(packing.root / "templates/pytorch.Dockerfile.j2", block("RUN python -c 'import torch'"))
    blobs, export = keep(host, job_of(packing, CUDA)), tmp_path / "export"
    build = Build(export, STEPS)
    assert Composition(host=host).build(job_of(packing, CUDA), export, build).ok
    assert [(job.target, job.below) for job in build.jobs] == [("rest", "")]
    ((whole, job),) = build.below
    assert (job.target, job.below) == ("", "")
    assert {sha256(data) for data in blobs.values()} < {layer.digest for layer in whole.layers}
    assert len(whole.layers) == len(PACKED) + 1 + len(STEPS), "the wheels, the links of torch, and the rest"


def test_a_failed_build_below_a_template_ends_the_image(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    write_text(packing.root / "templates/pytorch.Dockerfile.j2", block("RUN true"))
    keep(host, job_of(packing, CUDA))
    failed = BuildOutcome(errors=("apt failed",))
    build = Build(outcome=failed)
    assert Composition(host=host).build(job_of(packing, CUDA), tmp_path / "export", build) is failed
    assert not build.below


def test_a_whole_template_of_the_project_is_all_buildkits(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    write_text(packing.root / "templates/pytorch.Dockerfile.j2", "FROM {{ spec.base.image }}\nRUN true")
    export, build = tmp_path / "export", Build(tmp_path / "export", STEPS)
    assert Composition(host=host).build(job_of(packing, CUDA), export, build).ok
    assert [(job.target, job.below) for job in build.jobs] == [("", "")]


def test_an_unwritable_store_fails_the_image_with_a_reason(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    export = tmp_path / "export"
    host.store.folder.write_text("a file, where the folder would be")
    outcome = Composition(host=host).build(job_of(packing, CUDA), export, Build(export, STEPS))
    assert not outcome.ok
    assert str(host.store.folder) in outcome.errors[0]


def test_a_failed_build_is_told_as_it_is(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    keep(host, job_of(packing, CUDA))
    failed = BuildOutcome(seconds=1.0, digests=(), errors=("apt failed",), tail=())
    composition = Composition(host=host)
    assert composition.build(job_of(packing, CUDA), tmp_path / "export", Build(outcome=failed)) is failed


def test_an_engine_gets_the_lowest_layers_before_the_image(packing: Project, host: HostLayers, tmp_path: Path) -> None:
    blobs, export, handed = keep(host, job_of(packing, CUDA)), tmp_path / "export", list[list[str]]()

    def ahead(layout: Layout, digest: str) -> None:
        manifest = layout.find(digest)
        assert manifest
        handed.append([layer.digest for layer in manifest.layers])

    composition = Composition(host=host, ahead=ahead)
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
    composition = Composition(host=host, ahead=ahead)
    assert composition.build(job_of(packing, CUDA), export, Build(export, STEPS)).ok
