"""Parts that trimming could break and that no other check uses. Each line of layers/trim.toml names its checks."""

from typing import Any

from tests.images.checks import check
from tests.images.entries import Tree
from tests.images.originals import Originals, altered, without_license
from tests.images.tell import some


@check("parts.traces", "an error keeps its message when its C++ stack is asked for, which names torch's functions")
def test_traces(traces: list[str]) -> None:
    assert not traces, some(traces)


@check(
    "parts.triton",
    "Triton compiles a kernel, and the C module that starts it, without a GPU; its profiler loads",
    families=("cuda",),
)
def test_triton(triton: list[str]) -> None:
    assert not triton, some(triton)


@check("parts.nvidia", "NVRTC compiles, plug-ins load; a compiler finds CUDA and NVSHMEM's code", families=("cuda",))
def test_nvidia(nvidia: list[str]) -> None:
    assert not nvidia, some(nvidia)


@check("parts.unaltered", "NVIDIA's licenses allow to pass on whole files only: each is as the locked wheel has it")
def test_unaltered(originals: Originals, merged: Tree, figures: dict[str, Any]) -> None:
    figures["files"] = sum(map(len, originals.values()))
    wrong = list(altered(originals, merged))
    assert not wrong, f"not as the wheels have it: {some(wrong)}"


@check("parts.licenses", "who passes NVIDIA's files on passes their license texts on: each wheel's own is there")
def test_licenses(originals: Originals, merged: Tree) -> None:
    wrong = list(without_license(originals, merged))
    assert not wrong, f"not there: {some(wrong)}"
