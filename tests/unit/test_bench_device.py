"""The device of `bench` and of the payloads, with a torch that has no GPU to give, or no fast type on its CPU."""

import importlib
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from entrypoints.pytorch.payloads.verdict import NotRun

MODULE = "entrypoints.pytorch.payloads.device"
MACHINE, VERSIONS = "entrypoints.pytorch.throughput.machine", "entrypoints.pytorch.payloads.versions"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """In the place of torch: one GPU, which everything is done on without a word."""
    fake = MagicMock()
    fake.cuda.device_count.return_value = 1
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.fixture
def device(torch: MagicMock, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return _imported(MODULE, monkeypatch)


@pytest.fixture
def machine(torch: MagicMock, monkeypatch: pytest.MonkeyPatch) -> Any:
    _imported(VERSIONS, monkeypatch)
    return _imported(MACHINE, monkeypatch)


def _imported(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # afterwards it is as before, whatever that was
    del sys.modules[name]
    return importlib.import_module(name)


def test_a_gpu_is_taken(torch: MagicMock, device: Any) -> None:
    assert device.find_device("cuda") is torch.device.return_value
    torch.device.assert_called_with("cuda", 0)


@pytest.mark.parametrize(("call", "start"), [("init", "no GPU can be used"), ("set_device", "GPU 0 cannot be used")])
def test_a_gpu_that_refuses_is_told_in_a_sentence(torch: MagicMock, device: Any, call: str, start: str) -> None:
    getattr(torch.cuda, call).side_effect = RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be")
    with pytest.raises(NotRun, match=f"^{start}: CUDA error: out of memory; "):
        device.find_device("cuda")


@pytest.mark.parametrize(("dtype", "fast"), [("float16", True), ("float16", False), ("bfloat16", False)])
def test_a_type_that_the_cpu_computes_slowly_is_told(torch: MagicMock, machine: Any, dtype: str, fast: bool) -> None:
    queries = {"float16": "_is_mkldnn_fp16_supported", "bfloat16": "_is_mkldnn_bf16_supported"}
    getattr(torch.ops.mkldnn, queries[dtype]).return_value = fast
    assert ("many times as long as in float32: choose --dtype float32." in machine.slow_type(dtype)) is not fast
    assert machine.slow_type("float32") == ""
    del torch.ops.mkldnn  # as torch's own, an attribute that is not there raises
    torch.ops.mkldnn = object()
    assert machine.slow_type(dtype) == ""
