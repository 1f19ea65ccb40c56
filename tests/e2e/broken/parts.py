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
    "parts.gpus": Broken(
        what="the first machine code for GPUs in cuFFT is zeros",
        base="cuda",
        commands=(
            "cd /nvidia/nvidia/cufft/lib",
            # Behind the headers of a fat binary and of the first code in it; of a small library, for files.waste.
            r"at=$(LC_ALL=C grep -obUaPm1 '\x50\xed\x55\xba' libcufftw.so.11 | head -n 1 | cut -d: -f1)",
            "dd if=/dev/zero of=libcufftw.so.11 bs=1 seek=$((at + 80)) count=16 conv=notrunc",
        ),
    ),
}
