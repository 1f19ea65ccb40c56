"""Which layers this machine packs beside a build, and what the build gets in their place."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.build.packing import (
    BYTECODE,
    CPU,
    CUDA,
    DEVEL,
    NVIDIA,
    PACKED,
    TORCH,
    Build,
    begun,
    job_of,
    keep,
    with_old_cusparselt,
)
from tests.unit.conftest import pin
from tests.unit.layouts import sha256
from torchbake.build.bakefile import Options, bake_file, bytecode_file, exported, python_file, target_name
from torchbake.build.host_layers import HostLayers, Wheel, once, packed_layers
from torchbake.build.packable import has_folder_of_its_own
from torchbake.core.files import write_text
from torchbake.errors import BuildError
from torchbake.matrix.project import Project

OPTIONS = Options(output=exported(), created="2026-01-01T00:00:00+00:00", revision="c0ffee", exports=Path("/out"))


def name_of(wheel: Wheel) -> str:
    return f"{wheel.pin.name}{BYTECODE if wheel.bytecode else ''}"


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_image_without_wheels_is_all_buildkits(packing: Project, host: HostLayers) -> None:
    assert host.begin(job_of(packing, "volume-permissions"), Build()) is None


@pytest.mark.parametrize(("name", "names"), [(CPU, ["torch", f"torch{BYTECODE}"]), (CUDA, PACKED)])
def test_wheels_are_packed_here(name: str, names: list[str], packing: Project, host: HostLayers) -> None:
    keep(host, job_of(packing, name))
    work, _ = begun(host, job_of(packing, name))
    assert sorted(name_of(wheel) for wheel in work.layers) == names


def test_a_wheel_whose_folders_nobody_knows_is_locked_for_the_build(packing: Project, host: HostLayers) -> None:
    old = with_old_cusparselt(packing)
    keep(host, job_of(packing, CUDA))
    work, stand_ins = begun(host, job_of(packing, CUDA))
    assert sorted(name_of(wheel) for wheel in work.layers) == PACKED
    assert stand_ins["torch"].rest is None
    rest = stand_ins["nvidia"].rest
    assert rest
    assert (rest / "locks/nvidia.lock").read_text().startswith(f"{old}==0.6.3 \\\n    --hash")


def test_a_runtime_image_need_not_wait_for_the_names_of_files(packing: Project, host: HostLayers) -> None:
    keep(host, job_of(packing, CUDA))
    _, stand_ins = begun(host, job_of(packing, CUDA))
    for stage, names in (("nvidia", NVIDIA), ("torch", TORCH)):
        folder = stand_ins[stage].folder
        assert files_in(folder) == set()
        assert sorted(path.name for path in (folder / "layers").iterdir()) == names
        places = {name: "nvidia" if stage == "nvidia" else name for name in names}
        assert all((folder / "layers" / name / place).is_dir() for name, place in places.items())
        assert (folder / "headers").is_dir()


def test_an_image_with_headers_gets_them_and_an_empty_file_for_each_other(packing: Project, host: HostLayers) -> None:
    keep(host, job_of(packing, DEVEL))
    _, stand_ins = begun(host, job_of(packing, DEVEL))
    folder = stand_ins["nvidia"].folder
    assert files_in(folder) == {
        *(f"headers/nvidia/{part}/include/a.h" for part in ("cuda", "cudnn", "nccl")),
        *(f"layers/{name}/nvidia/{name.split('-')[1]}/lib/lib{name}.so" for name in NVIDIA),
    }
    assert all(path.stat().st_size == 0 for path in (folder / "layers").rglob("*.so"))
    assert files_in(stand_ins["torch"].folder) == {
        *(f"headers/{name}/include/a.h" for name in TORCH),
        *(f"layers/{name}/{name}/lib/lib{name}.so" for name in TORCH),
    }


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


@pytest.mark.parametrize("line", ["COPY --from=nvidia /layers /mine", "RUN python -c 'import torch'"])
def test_an_image_of_a_template_of_ones_own_is_all_buildkits(packing: Project, host: HostLayers, line: str) -> None:
    """Its steps find torch and CUDA as they will be in the image."""
    write_text(
        packing.root / "templates/pytorch.Dockerfile.j2",
        '{% extends "pytorch.Dockerfile.j2" %}{% block before_user %}\n' + line + "\n{% endblock %}",
    )
    assert host.begin(job_of(packing, CUDA), Build()) is None


@pytest.mark.parametrize("files", [("nvidia/a.so", "other/b.so"), ("torch/a.py", "nvidia/b.py")])
def test_files_that_another_layer_may_have_are_an_error(
    packing: Project, host: HostLayers, files: tuple[str, ...]
) -> None:
    keep(host, job_of(packing, CUDA), *files)
    work, _ = begun(host, job_of(packing, CUDA))
    with pytest.raises(BuildError, match="has files where another layer's may be"):
        packed_layers(work.layers)


def test_bytecode_is_another_layer_for_another_base_and_a_wheels_files_are_not(
    packing: Project, host: HostLayers
) -> None:
    """Python of another day may compile otherwise."""
    job = job_of(packing, CUDA)
    other = replace(job, base=replace(job.base, digest=f"sha256:{'e' * 64}"))
    keep(host, job)
    begun(host, job)
    work, _ = begun(host, other)
    failed = {name_of(wheel): wheel.packed.exception() is not None for wheel in work.layers}
    assert failed == {name: name.endswith(BYTECODE) for name in PACKED}


def test_damage_is_found_in_a_wheels_files_and_in_their_bytecode(packing: Project, host: HostLayers) -> None:
    job = job_of(packing, CUDA)
    blobs = keep(host, job)
    for name, wheel in ((f"torch{BYTECODE}", "torch"), ("torch", "torch"), (NVIDIA[0], NVIDIA[0])):
        path = host.store.path(sha256(blobs[name]))
        path.write_bytes(bytes(path.stat().st_size))
        assert host.drop_damaged(job) == [wheel]
        assert host.drop_damaged(job) == []


def test_headers_are_hashed_before_a_build_gets_them(packing: Project, host: HostLayers) -> None:
    job = job_of(packing, DEVEL)
    keep(host, job)
    records = [json.loads(path.read_text()) for path in (host.store.folder / "wheels").iterdir()]
    headers = next(record["headers"]["digest"] for record in records if record["headers"])
    blob = host.store.path(headers)
    blob.write_bytes(blob.read_bytes()[::-1])  # of the same size
    with pytest.raises(BuildError, match="was removed"):
        begun(host, job)


# --- what the build is told


def test_the_build_takes_the_stand_ins_for_its_stages(packing: Project, host: HostLayers) -> None:
    with_old_cusparselt(packing)
    keep(host, job_of(packing, CUDA))
    work, stand_ins = begun(host, job_of(packing, CUDA))
    plan = bake_file([work.job], OPTIONS, packing.root, {CUDA: {}})
    name = target_name(work.job.spec)
    assert plan["group"]["default"]["targets"] == [name]
    targets = (name, f"{name}-torch", f"{name}-nvidia", f"{name}-nvidia-rest")
    own, torch, whole, rest = (plan["target"][each] for each in targets)
    assert own["contexts"]["torch"] == f"target:{name}-torch"
    assert (torch["context"], torch["contexts"]) == (str(stand_ins["torch"].folder), {})
    assert own["contexts"]["nvidia"] == f"target:{name}-nvidia"
    assert own["output"] == [f"{exported()},dest=/out/{name}"]
    assert (whole["context"], whole["contexts"]) == (
        str(stand_ins["nvidia"].folder), {"rest": f"target:{name}-nvidia-rest"},
    )  # fmt: skip
    assert (rest["target"], rest["contexts"]["locks"]) == ("nvidia", str(stand_ins["nvidia"].rest))
    assert whole["output"] == rest["output"] == ["type=cacheonly"]
    assert {key: own["contexts"][key] for key in own["contexts"] if key not in stand_ins} == {
        key: rest["contexts"][key] for key in rest["contexts"] if key != "locks"
    }


def test_bytecode_is_made_by_the_images_python_and_comes_as_files(packing: Project, tmp_path: Path) -> None:
    job = job_of(packing, CPU)
    plan = bytecode_file(
        job, OPTIONS, packing.root, {}, sources=tmp_path / "from/modules", final="/pytorch", folder=tmp_path / "to"
    )
    name = target_name(job.spec)
    assert plan["group"]["default"]["targets"] == [f"{name}-bytecode"]
    own, interpreter = plan["target"][f"{name}-bytecode"], plan["target"][f"{name}-interpreter"]
    assert own["contexts"]["interpreter"] == f"target:{name}-interpreter"
    assert own["contexts"]["sources"] == str(tmp_path / "from/modules")
    assert own["context"] == str(tmp_path / "from")
    assert own["output"] == [f"type=local,dest={tmp_path / 'to'}"]
    assert " python3 -m wheels bytecode /run/sources /bytecode /pytorch" in own["dockerfile-inline"]
    assert (interpreter["target"], interpreter["output"]) == ("interpreter", ["type=cacheonly"])


def test_bytecode_is_made_by_the_python_that_a_base_brings(packing: Project, tmp_path: Path) -> None:
    job = job_of(packing, CPU)
    base = replace(job.spec.base, interpreter="/opt/python/bin/python3.11")  # which no PATH names
    job = replace(job, spec=replace(job.spec, base=base))
    plan = bytecode_file(job, OPTIONS, packing.root, {}, sources=tmp_path / "a/b", final="/pytorch", folder=tmp_path)
    assert f" {base.interpreter} -m wheels" in plan["target"][f"{target_name(job.spec)}-bytecode"]["dockerfile-inline"]


@pytest.mark.parametrize("interpreter", ["", "/opt/python/bin/python3.11"])
def test_the_python_that_is_asked_is_the_images(packing: Project, tmp_path: Path, interpreter: str) -> None:
    job = job_of(packing, CPU)
    job = replace(job, spec=replace(job.spec, base=replace(job.spec.base, interpreter=interpreter)))
    plan, name = python_file(job, OPTIONS, packing.root, {}, folder=tmp_path / "to"), target_name(job.spec)
    assert plan["group"]["default"]["targets"] == [f"{name}-python"]
    own = plan["target"][f"{name}-python"]
    assert own["contexts"] == {"interpreter": f"target:{name}-interpreter"}
    assert own["output"] == [f"type=local,dest={tmp_path / 'to'}"]
    assert f'\nRUN {interpreter or "python3"} -c "import os, sys; print(sys.version, ' in own["dockerfile-inline"]


def test_a_question_is_asked_once_by_however_many_and_again_where_it_failed() -> None:
    asked = list[str]()

    def ask() -> str:
        asked.append("again" if asked else "first")
        if asked == ["first"]:
            raise BuildError("no builder")
        return "3.11.2"

    answered = once(ask)
    with pytest.raises(BuildError, match="no builder"):
        answered()
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda _: answered(), range(4))] == ["3.11.2"] * 4
    assert asked == ["first", "again"]
