"""Images that were trimmed of something that somebody needs."""

from tests.e2e.broken import Broken

BROKEN = {
    "parts.traces": Broken(
        what="an error's message is lost when its C++ stack is asked for",
        entrypoint=("unset TORCH_DISABLE_ADDR2LINE",),
    ),
    "parts.triton": Broken(
        what="the functions that Triton's kernels call are gone, and its books say so",
        base="cuda",
        commands=(
            "rm /pytorch/triton/backends/nvidia/lib/libdevice.10.bc",
            "sed -i '/libdevice.10.bc/d' /pytorch/triton-*.dist-info/RECORD",
        ),
    ),
    "parts.nvidia": Broken(
        what="NVRTC's built-in functions are gone, and its books say so",
        base="cuda",
        commands=(
            "rm /nvidia/nvidia/*/lib/libnvrtc-builtins.so.*",
            "sed -i '/libnvrtc-builtins/d' /nvidia/nvidia_cuda_nvrtc*.dist-info/RECORD",
        ),
    ),
}
