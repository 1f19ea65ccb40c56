"""GPUs of the real engine: what it says where it has none, and that everything runs on them where it has."""

import json
from typing import Any, Literal

import docker
import pytest

from tests.e2e.beside import is_anothers
from tests.e2e.conftest import CUDA, Completed, torchbake
from torchbake.checks.gpu import probe
from torchbake.checks.smoke_run import Session
from torchbake.engine.client import Engine
from torchbake.engine.gpu import GpuAccess, look_for_gpu
from torchbake.engine.runner import OWNER, RUN

pytestmark = [pytest.mark.engine, pytest.mark.cuda]

ONLY = ("--only", "smoke.tensor*", "--only", "smoke.nccl*")


@pytest.fixture(scope="module")
def ref(built: dict[str, dict[str, Any]]) -> str:
    return str(built[CUDA]["ref"])


@pytest.fixture(scope="module")
def value(engine: docker.DockerClient, ref: str) -> GpuAccess:
    """The GPU access that containers of this engine really have."""
    ours = Engine(engine)
    return probe(ours, ref, look_for_gpu(ours), Session())


@pytest.fixture
def without(value: GpuAccess) -> None:
    if value.there:
        pytest.skip(f"the engine has a GPU: {value.reason}")


@pytest.fixture
def with_one(value: GpuAccess) -> None:
    if not value.there:
        pytest.skip(value.reason)


def checks_of(process: Completed) -> dict[str, dict[str, Any]]:
    assert process.stdout, process.stderr
    return {check["id"]: check for image in json.loads(process.stdout)["images"] for check in image["checks"]}


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("how", ["cdi", "runtime"])
def test_an_engine_that_does_not_keep_its_word_is_found_out(
    engine: docker.DockerClient, ref: str, how: Literal["cdi", "runtime"]
) -> None:
    gpu = probe(Engine(engine), ref, GpuAccess(how=how, reason="a stale file says so"), Session())
    assert gpu.how == "none"
    assert gpu.reason.startswith("a stale file says so, but it cannot start a container with it: ")
    assert "device" in gpu.reason.partition(": ")[2]  # the engine's own words
    containers = engine.containers.list(all=True, filters={"label": RUN, "ancestor": ref}, ignore_removed=True)
    assert [each for each in containers if not is_anothers(each.labels.get(OWNER, ""))] == []


@pytest.mark.usefixtures("without", "built")
def test_smoke_that_requires_one_starts_nothing() -> None:
    process = torchbake("smoke", CUDA, "--gpu", "require", "--payload", "tensor")
    assert process.returncode == 13
    assert "A GPU is required (--gpu require), but the engine has no nvidia runtime" in process.stderr
    assert process.stdout == ""


@pytest.mark.usefixtures("without", "built")
@pytest.mark.parametrize(
    ("mode", "outcome", "code", "reason"),
    [
        ("require", "failed", 13, "a GPU is required (--gpu require), but the engine has no nvidia runtime"),
        ("auto", "not-run", 0, "no GPU: the engine has no nvidia runtime"),
        ("off", "not-run", 0, "GPU checks are off (--gpu off)"),
    ],
)
def test_each_gpu_check_reports_its_outcome_in_each_mode(mode: str, outcome: str, code: int, reason: str) -> None:
    process = torchbake("test", CUDA, "--gpu", mode, *ONLY, "--format", "json")
    checks = checks_of(process)
    assert list(checks) == ["smoke.tensor[cpu]", "smoke.tensor[cuda]", "smoke.nccl[nccl,1xauto]"]
    assert [check["outcome"] for check in checks.values()] == ["passed", outcome, outcome]
    for name in ("smoke.tensor[cuda]", "smoke.nccl[nccl,1xauto]"):
        assert checks[name]["reason"].startswith(reason)
    assert process.returncode == code


@pytest.mark.usefixtures("with_one", "built")
def test_on_a_gpu_all_that_needs_only_a_gpu_passes() -> None:
    process = torchbake("test", CUDA, "--gpu", "require", "--only", "smoke.*", "--format", "json")
    on_gpu = {name: check["outcome"] for name, check in checks_of(process).items() if "cuda]" in name or "nccl" in name}
    assert process.returncode == 0, process.stdout
    assert {name for name, outcome in on_gpu.items() if outcome == "not-run"} == set()
