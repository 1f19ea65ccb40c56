"""The choice of layers that this machine packs in parallel to a build."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.build.packing import (
    BYTECODE,
    CPU,
    CUDA,
    DEVEL,
    PACKED,
    begin,
    job_of,
    keep,
    with_old_cusparselt,
)
from torchbake.build.bakefile import BuildOptions, bytecode_file, export_spec, python_file, target_name
from torchbake.build.host_layers import HostLayers, WheelLayer, _base_id, once
from torchbake.core.files import write_text
from torchbake.errors import BuildError
from torchbake.matrix.project import Project, load_project
from torchbake.render.wheel_groups import DEVEL as DEVEL_GROUP
from torchbake.render.wheel_groups import NVIDIA as NVIDIA_GROUP

OPTIONS = BuildOptions(
    output=export_spec(), created="2026-01-01T00:00:00+00:00", revision="c0ffee", exports=Path("/out")
)


def name_of(wheel: WheelLayer) -> str:
    return f"{wheel.pin.name}{BYTECODE if wheel.bytecode else ''}"


@pytest.mark.parametrize(("name", "names"), [(CPU, ["torch", f"torch{BYTECODE}"]), (CUDA, PACKED)])
def test_wheels_are_packed_here(name: str, names: list[str], packing: Project, host: HostLayers) -> None:
    keep(host, job_of(packing, name))
    assert sorted(map(name_of, begin(host, job_of(packing, name)))) == names


def test_compilers_are_packed_as_they_are(packing: Project, host: HostLayers) -> None:
    job = job_of(packing, DEVEL)
    assert host._packer(job, NVIDIA_GROUP).trim
    assert not host._packer(job, DEVEL_GROUP).trim


def test_an_older_cusparselt_is_a_layer_like_any_other(packing: Project, host: HostLayers) -> None:
    old = with_old_cusparselt(packing)
    keep(host, job_of(packing, CUDA))
    assert old in map(name_of, begin(host, job_of(packing, CUDA)))


def test_another_base_changes_bytecode_layers_but_not_wheels(packing: Project, host: HostLayers) -> None:
    """Python of another day may compile otherwise."""
    job = job_of(packing, CUDA)
    other = replace(job, base=replace(job.base, digest=f"sha256:{'e' * 64}"))
    keep(host, job)
    begin(host, job)
    failed = {name_of(wheel): wheel.packed.exception() is not None for wheel in begin(host, other)}
    assert failed == {name: name.endswith(BYTECODE) for name in PACKED}


# --- what the build is told


def test_bytecode_is_made_by_the_python_of_the_image(packing: Project, tmp_path: Path) -> None:
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


def test_once_asks_once_for_all_threads_and_again_after_failure() -> None:
    queries = list[str]()

    def ask() -> str:
        queries.append("again" if queries else "first")
        if queries == ["first"]:
            raise BuildError("no builder")
        return "3.11.2"

    answered = once(ask)
    with pytest.raises(BuildError, match="no builder"):
        answered()
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda _: answered(), range(4))] == ["3.11.2"] * 4
    assert queries == ["first", "again"]


def test_a_template_above_the_base_keeps_the_keys_of_bytecode(packing: Project) -> None:
    """Steps on the base may change its Python, so they ask it again."""
    keys = {}
    for block in ("", "before_user", "stages", "after_base"):
        text = f'{{% extends "pytorch.Dockerfile.j2" %}}{{% block {block} %}}\nENV A=b\n{{% endblock %}}'
        text = text.replace("ENV", "FROM scratch AS own\nENV") if block == "stages" else text
        if block:
            write_text(packing.root / "templates/pytorch.Dockerfile.j2", text)
        keys[block] = _base_id(job_of(load_project(packing.root / "matrix.yaml"), CUDA))
    assert keys[""] == keys["before_user"] == keys["stages"] != keys["after_base"]
