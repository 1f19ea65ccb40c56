"""What trimming could have broken and no other check uses. Each line of layers/trim.toml names its checks."""

from tests.images.checks import check
from tests.images.tell import some


@check("parts.traces", "an error keeps its message when its C++ stack is asked for, which names torch's functions")
def test_traces(traces: list[str]) -> None:
    assert not traces, some(traces)


@check(
    "parts.triton", "Triton compiles a kernel to machine code, no GPU needed; its profiler loads", families=("cuda",)
)
def test_triton(triton: list[str]) -> None:
    assert not triton, some(triton)


@check("parts.nvidia", "NVRTC compiles, plug-ins load; a compiler finds CUDA and NVSHMEM's code", families=("cuda",))
def test_nvidia(nvidia: list[str]) -> None:
    assert not nvidia, some(nvidia)
