"""Which layers this machine packs beside a build, what the build gets in their place, and in which order they stand."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from tests.unit.builds import BASE, preparation_of, small_project, spec_of
from tests.unit.conftest import cuda_pins, lock_for, pin
from tests.unit.layouts import archive, file, put, sha256
from torchbake.build.bakefile import Job, Options, StandIn, bake_file, exported, target_name
from torchbake.build.buildx import Outcome
from torchbake.build.composition import Composition, rank_by
from torchbake.build.host_layers import HostLayers, HostWork, has_folder_of_its_own, packed_layers
from torchbake.build.layer_store import LayerStore, Packed
from torchbake.build.wheel_packer import WheelPacker
from torchbake.core.files import write_text
from torchbake.errors import BuildError, EngineError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import find_lock, format_checked, lock_path
from torchbake.lock.lockfile import Pin
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import Layer
from torchbake.oci.layout import Layout
from torchbake.oci.manifest import Blob

CPU, CUDA, DEVEL = (
    "2.13.0-cpu-runtime-debian12",
    "2.10.0-cuda12.8-cudnn9-runtime-debian12",
    "2.10.0-cuda12.8-cudnn9-devel-debian12",
)
PACKED = ["nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = small_project(tmp_path / "project")
    nvcc = pin("nvidia-cuda-nvcc-cu12", "12.8.93")
    for name, more in ((CUDA, []), (DEVEL, [pin("ninja", "1.13"), nvcc])):
        spec = spec_of(project, name)
        assert isinstance(spec, ImageSpec)
        write_text(lock_path(project.root, spec), format_checked(spec, lock_for(spec, [*cuda_pins(), *more])))
    return project


@pytest.fixture
def host(project: Project, tmp_path: Path) -> Iterator[HostLayers]:
    host = HostLayers(
        store=LayerStore(folder=tmp_path / "layers"), pip=PipConfig(), root=project.root, folder=tmp_path / "stand-ins"
    )
    yield host
    host.stop()


def job_of(project: Project, name: str) -> Job:
    return preparation_of(project).job(spec_of(project, name), BASE)


def blob(data: bytes) -> Blob:
    return Blob(digest=sha256(data), size=len(data), media_type="application/vnd.oci.image.layer.v1.tar+zstd")


@pytest.fixture
def kept(project: Project, host: HostLayers) -> Callable[..., dict[str, bytes]]:
    """Puts a layer for each wheel that is packed here into the store; their blobs by the names of the wheels."""

    def keep(name: str, *files: str) -> dict[str, bytes]:
        spec = spec_of(project, name)
        lock = find_lock(project.root, spec)
        assert lock
        assert isinstance(spec, ImageSpec)
        packer = WheelPacker(
            store=host.store, pip=PipConfig(), python=spec.base.python, root="/nvidia", trim=True, indexes=spec.indexes
        )
        blobs = {each.name: _keep(packer, each, files) for each in lock.layers["nvidia"] if each.name in PACKED}
        assert sorted(blobs) == PACKED
        return blobs

    return keep


def _keep(packer: WheelPacker, wheel: Pin, files: tuple[str, ...]) -> bytes:
    part = wheel.name.split("-")[1]
    names = files or (f"nvidia/{part}/lib/lib{part}.so.12",)
    layer, headers = archive(file(wheel.name)), zstandard.compress(archive(file(f"headers/nvidia/{part}/include/a.h")))
    data, folder = zstandard.compress(layer), packer.store.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "layer").write_bytes(data)
    (folder / "headers").write_bytes(headers)
    packed = Packed(layer=Layer(blob=blob(data), diff_id=sha256(layer)), names=names, headers=blob(headers))
    packer.store.add(packer.key(wheel), packed, {sha256(data): folder / "layer", sha256(headers): folder / "headers"})
    return data


def begun(host: HostLayers, project: Project, name: str) -> tuple[HostWork, StandIn]:
    """What is packed here for an image, and what its build gets in place of the stage."""
    work = host.begin(job_of(project, name))
    assert work
    assert work.job.stand_in
    return work, work.job.stand_in


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# --- what is packed here


def test_an_image_without_nvidias_wheels_is_all_buildkits(project: Project, host: HostLayers) -> None:
    assert host.begin(job_of(project, CPU)) is None
    assert host.begin(job_of(project, "volume-permissions")) is None


def test_wheels_that_no_rule_strips_are_packed_here_and_the_rest_is_locked_for_the_build(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]]
) -> None:
    kept(CUDA)
    work, stand_in = begun(host, project, CUDA)
    assert sorted(work.layers) == PACKED
    assert stand_in.rest
    assert (stand_in.rest / "locks/nvidia.lock").read_text().startswith("nvidia-nccl-cu12==2.27.5 \\\n    --hash")


def test_a_runtime_image_need_not_wait_for_the_names_of_files(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]]
) -> None:
    kept(CUDA)
    _, stand_in = begun(host, project, CUDA)
    folder = stand_in.folder
    assert files_in(folder) == set()
    assert sorted(path.name for path in (folder / "layers").iterdir()) == PACKED
    assert all((folder / "layers" / name / "nvidia").is_dir() for name in PACKED)
    assert (folder / "headers").is_dir()


def test_an_image_with_headers_gets_them_and_an_empty_file_for_each_other(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]]
) -> None:
    kept(DEVEL)
    _, stand_in = begun(host, project, DEVEL)
    folder = stand_in.folder
    assert files_in(folder) == {
        "headers/nvidia/cuda/include/a.h", "headers/nvidia/cudnn/include/a.h",
        "layers/nvidia-cuda-runtime-cu12/nvidia/cuda/lib/libcuda.so.12",
        "layers/nvidia-cudnn-cu12/nvidia/cudnn/lib/libcudnn.so.12",
    }  # fmt: skip
    assert all(path.stat().st_size == 0 for path in (folder / "layers").rglob("*.so.12"))


@pytest.mark.parametrize(
    ("name", "version", "odd"),
    [
        ("nvidia-cusparselt-cu12", "0.6.3", True),
        ("nvidia-cusparselt-cu12", "0.7.1", False),
        ("nvidia-cusparselt-cu13", "0.10.0", False),
        ("nvidia-cusparse-cu12", "0.6.3", False),
    ],
)
def test_old_wheels_of_cusparselt_have_a_folder_beside_nvidias(name: str, version: str, odd: bool) -> None:
    assert has_folder_of_its_own(pin(name, version)) == odd


@pytest.mark.parametrize(
    "line", ["COPY --from=nvidia /layers /mine", "RUN --mount=type=bind,from=nvidia,target=/run/nvidia true"]
)
def test_a_template_of_ones_own_that_takes_of_the_stage_gets_the_stage(
    project: Project, host: HostLayers, line: str
) -> None:
    write_text(
        project.root / "templates/pytorch.Dockerfile.j2",
        f'{{% extends "pytorch.Dockerfile.j2" %}}{{% block before_user %}}\n{line}\n{{% endblock %}}',
    )
    assert host.begin(job_of(project, CUDA)) is None


def test_files_that_are_not_nvidias_are_an_error(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]]
) -> None:
    kept(CUDA, "nvidia/a.so", "other/b.so")
    work = host.begin(job_of(project, CUDA))
    assert work
    with pytest.raises(BuildError, match="not NVIDIA's"):
        packed_layers(work.layers)


# --- what the build is told


def test_the_build_takes_the_stand_in_for_its_stage(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]]
) -> None:
    kept(CUDA)
    work, stand_in = begun(host, project, CUDA)
    options = Options(output=exported(), created="2026-01-01T00:00:00+00:00", revision="c0ffee", exports=Path("/out"))
    plan = bake_file([work.job], options, project.root, {CUDA: {}})
    name = target_name(work.job.spec)
    assert plan["group"]["default"]["targets"] == [name]
    own, whole, rest = (plan["target"][each] for each in (name, f"{name}-nvidia", f"{name}-rest"))
    assert own["contexts"]["nvidia"] == f"target:{name}-nvidia"
    assert own["output"] == [f"{exported()},dest=/out/{name}"]
    assert (whole["context"], whole["contexts"]) == (str(stand_in.folder), {"rest": f"target:{name}-rest"})
    assert (rest["target"], rest["contexts"]["locks"]) == ("nvidia", str(stand_in.rest))
    assert whole["output"] == rest["output"] == ["type=cacheonly"]
    assert {key: own["contexts"][key] for key in own["contexts"] if key != "nvidia"} == {
        key: rest["contexts"][key] for key in rest["contexts"] if key != "locks"
    }


# --- how it is put together

WHEELS = ("nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-nccl-cu12")
STEPS = [
    "bootstrap",
    "RUN python",
    *(f"COPY /layers/{name} /nvidia # buildkit" for name in WHEELS),
    "COPY /layers/torch /pytorch # buildkit",
    "COPY /layers/triton /pytorch # buildkit",
    "COPY /links /pytorch # buildkit",
    "COPY /opt/venv /opt/venv # buildkit",
]


def export_to(export: Path) -> Callable[[Job], Outcome]:
    def build(job: Job) -> Outcome:
        history = [{"created_by": step} for step in STEPS]
        layers = [archive(file("layer", step.encode())) for step in STEPS]
        digest = put(Layout(folder=export), *layers, config={"history": history})
        return Outcome(seconds=1.0, digests=(digest,), errors=(), tail=())

    return build


def steps_of(layout: Layout, digest: str) -> list[str]:
    manifest = layout.find(digest)
    assert manifest
    return [step["created_by"] for step in json.loads(layout.path(manifest.config.digest).read_text())["history"]]


def test_wheels_stand_below_the_base_and_cudas_own_lowest(project: Project, tmp_path: Path) -> None:
    composition = Composition(root=project.root, host=None)
    export = tmp_path / "export"
    outcome = composition.build(job_of(project, CUDA), export, export_to(export))
    assert steps_of(Layout(folder=export), outcome.digests[0]) == [*STEPS[2:8], *STEPS[:2], STEPS[8]]


def test_compilers_are_above_what_a_runtime_image_has_too(project: Project) -> None:
    lock = find_lock(project.root, spec_of(project, DEVEL))
    assert lock
    rank = rank_by(lock)
    compilers = rank("COPY /layers/nvidia-cuda-nvcc-cu12 /nvidia # buildkit")
    links, headers = rank("COPY /links /pytorch # buildkit"), rank("COPY /headers /nvidia # buildkit")
    assert compilers is not None
    assert links is not None
    assert compilers > links == headers
    assert rank("COPY /usr/local/cuda /usr/local/cuda # buildkit") is None


def test_layers_that_were_packed_here_are_in_the_image(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    blobs, export = kept(CUDA), tmp_path / "export"
    outcome = Composition(root=project.root, host=host).build(job_of(project, CUDA), export, export_to(export))
    manifest = Layout(folder=export).find(outcome.digests[0])
    assert manifest
    assert {sha256(data) for data in blobs.values()} < {layer.digest for layer in manifest.layers}
    for data in blobs.values():
        assert Layout(folder=export).path(sha256(data)).read_bytes() == data


def test_what_cannot_be_packed_here_is_built_by_buildkit(project: Project, host: HostLayers, tmp_path: Path) -> None:
    said, export, jobs = list[str](), tmp_path / "export", list[Job]()

    def build(job: Job) -> Outcome:
        jobs.append(job)
        return export_to(export)(job)

    host.store.folder.write_text("a file, where the folder would be")
    outcome = Composition(root=project.root, host=host, say=said.append).build(job_of(project, CUDA), export, build)
    assert [bool(job.stand_in) for job in jobs] == [True, False]
    assert outcome.ok
    assert sorted(steps_of(Layout(folder=export), outcome.digests[0])) == sorted(STEPS)
    assert "BuildKit makes all layers, as this machine cannot:" in said[0]


def test_a_failed_build_is_told_as_it_is(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    kept(CUDA)
    failed = Outcome(seconds=1.0, digests=(), errors=("apt failed",), tail=())
    composition = Composition(root=project.root, host=host)
    assert composition.build(job_of(project, CUDA), tmp_path / "export", lambda job: failed) is failed


def test_an_engine_gets_the_lowest_layers_before_the_image_that_stands_on_them(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    blobs, export, handed = kept(CUDA), tmp_path / "export", list[list[str]]()

    def ahead(layout: Layout, digest: str) -> None:
        manifest = layout.find(digest)
        assert manifest
        handed.append([layer.digest for layer in manifest.layers])

    composition = Composition(root=project.root, host=host, ahead=ahead)
    outcome = composition.build(job_of(project, CUDA), export, export_to(export))
    assert handed == [[sha256(blobs[name]) for name in PACKED]]
    manifest = Layout(folder=export).find(outcome.digests[0])
    assert manifest
    assert [layer.digest for layer in manifest.layers][: len(PACKED)] == handed[0]


def test_an_engine_that_takes_nothing_ahead_fails_no_build(
    project: Project, host: HostLayers, kept: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    kept(CUDA)

    def ahead(layout: Layout, digest: str) -> None:
        raise EngineError("no space left")

    export = tmp_path / "export"
    composition = Composition(root=project.root, host=host, ahead=ahead)
    assert composition.build(job_of(project, CUDA), export, export_to(export)).ok
