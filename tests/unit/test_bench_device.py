"""The device of `bench` and of the payloads, with a torch that has no GPU to give."""

import importlib
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from entrypoints.pytorch.payloads.verdict import NotRun

MODULE = "entrypoints.pytorch.payloads.device"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """In the place of torch: one GPU, which everything is done on without a word."""
    fake = MagicMock()
    fake.cuda.device_count.return_value = 1
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.fixture
def device(torch: MagicMock, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))  # afterwards it is as before, whatever that was
    del sys.modules[MODULE]
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return importlib.import_module(MODULE)


def test_a_gpu_is_taken(torch: MagicMock, device: Any) -> None:
    assert device.find_device("cuda") is torch.device.return_value
    torch.device.assert_called_with("cuda", 0)


@pytest.mark.parametrize(("call", "start"), [("init", "no GPU can be used"), ("set_device", "GPU 0 cannot be used")])
def test_a_gpu_that_refuses_is_told_in_a_sentence(torch: MagicMock, device: Any, call: str, start: str) -> None:
    getattr(torch.cuda, call).side_effect = RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be")
    with pytest.raises(NotRun, match=f"^{start}: CUDA error: out of memory; "):
        device.find_device("cuda")
