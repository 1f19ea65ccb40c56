"""Run a part of an image that trimming could have broken, without a GPU. One JSON document on stdout.

The argument is the name of the part; the document is the list of its problems.
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH118, PTH120, PTH123, PTH207

import ctypes
import glob
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from types import ModuleType

# Through libdevice's bitcode, LLVM, the PTX of one generation of GPUs and ptxas.
KERNEL = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + place, libdevice.asin(tl.load(x + place, mask=place < n)), mask=place < n)
"""
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
GENERATION = 80  # compute capability 8.0
CUDA_C = b'extern "C" __global__ void twice(float *x) { x[threadIdx.x] = 2 * sinf(x[threadIdx.x]); }'
PROGRAM = """
#include <cuda_runtime_api.h>
int main() { int version = 0; return cudaRuntimeGetVersion(&version) || version < 11000; }
"""
RDMA = "libmlx5.so.1"


def triton() -> Iterator[str]:
    """It compiles a kernel down to the machine code of a GPU that need not be there, and its profiler can be loaded."""
    kernels = tempfile.mkdtemp()
    os.environ["TRITON_CACHE_DIR"] = kernels
    compiler, backends = (importlib.import_module(f"triton.{name}") for name in ("compiler", "backends.compiler"))
    source = compiler.ASTSource(fn=load(kernels, KERNEL).kernel, signature=SIGNATURE, constexprs={"BLOCK": 128})
    code = compiler.compile(source, target=backends.GPUTarget("cuda", GENERATION, 32)).asm
    if not code.get("cubin", b"").startswith(b"\x7fELF"):
        yield f"it compiles a kernel to {', '.join(code)}, and no machine code"
    folder = os.path.dirname(str(backends.__file__))
    yield from unloadable(glob.glob(f"{folder}/nvidia/lib/cupti/libcupti.so"), least=1)
    if shutil.which("gcc"):
        yield from stub(os.path.join(folder, "nvidia"), kernels)


def stub(backend: str, folder: str) -> Iterator[str]:
    """The C module that starts kernels is compiled, as Triton does at run time, with an empty library as the driver."""
    driver, module = os.path.join(folder, "libcuda.so.1"), os.path.join(folder, "cuda_utils.so")
    python, source = sysconfig.get_path("include"), os.path.join(backend, "driver.c")
    headers = f"-I{backend}/include", f"-I{python}"
    for command in (
        ["gcc", "-shared", "-o", driver, "-x", "c", os.devnull],
        ["gcc", source, "-O3", "-shared", "-fPIC", *headers, "-o", module, f"-L{folder}", "-l:libcuda.so.1"],
    ):
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            yield f"the C module that starts kernels is not compiled: {process.stderr.strip()[:200]}"
            return


def load(folder: str, text: str) -> ModuleType:
    """Import a module from a file: Triton reads a kernel's source again."""
    path = os.path.join(folder, "kernel.py")
    with open(path, "w") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nvidia() -> Iterator[str]:
    """NVRTC compiles, plug-ins can be loaded, and a compiler finds CUDA's headers and NVSHMEM's code in CUDA_HOME."""
    yield from nvrtc()
    yield from unloadable(of_nvidia("libcupti.so.*"), least=1)
    shmem = of_nvidia("nvshmem_*.so.*")
    for path in shmem:
        transports = (
            "bootstrap_uid",
            "transport_ibrc",
            *(("transport_ib", "transport_gpunetio") if there(RDMA) else ()),
        )
        if any(f"nvshmem_{name}" in path for name in transports):
            yield from unloadable([path])
    if "CUDA_HOME" in os.environ:
        yield from toolkit()
        if shmem:
            yield from device_code()


def of_nvidia(name: str) -> list[str]:
    return sorted({os.path.realpath(path) for top in sys.path for path in glob.glob(f"{top}/nvidia/*/lib/{name}")})


def there(library: str) -> bool:
    return not list(unloadable([library]))


def unloadable(paths: list[str], least: int = 0) -> Iterator[str]:
    if len(paths) < least:
        yield "there is no CUPTI"
    for path in paths:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            yield f"{path} cannot be loaded: {str(error).removeprefix(f'{path}: ')}"


def nvrtc() -> Iterator[str]:
    """https://docs.nvidia.com/cuda/nvrtc/

    The process has imported torch, as in real use: CUDA 13.0's nvrtc does not search its own folder for its second
    library, which torch has loaded by then.
    """
    import torch  # noqa: F401, PLC0415

    path = next(path for path in of_nvidia("libnvrtc.so.*") if ".alt." not in path)
    library, program = ctypes.CDLL(path), ctypes.c_void_p()
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{GENERATION}".encode())
    code = library.nvrtcCreateProgram(ctypes.byref(program), CUDA_C, b"twice.cu", 0, None, None)
    code = code or library.nvrtcCompileProgram(program, 1, options)
    if code:
        yield f"{path} does not compile: {library.nvrtcGetErrorString(code).decode()}"


def toolkit() -> Iterator[str]:
    """A program that is compiled, linked and run, by CUDA_HOME alone."""
    home, folder = os.environ.get("CUDA_HOME", ""), tempfile.mkdtemp()
    command = ["g++", "-x", "c++", "-", "-o", f"{folder}/program", f"-I{home}/include", f"-L{home}/lib64", "-lcudart"]
    command += [f"-Wl,-rpath,{home}/lib64"]
    process = subprocess.run(command, input=PROGRAM, capture_output=True, text=True, check=False)
    if process.returncode:
        yield f"a program that uses CUDA is not compiled: {process.stderr.strip()[:200]}"
    elif code := subprocess.run([f"{folder}/program"], check=False).returncode:
        yield f"a program that uses CUDA ends with {code}"


def device_code() -> Iterator[str]:
    """Load NVSHMEM's bitcode for Triton's kernels; some releases have it under a name that torch does not search."""
    matches = of_nvidia("libnvshmem_device*.bc")
    if not matches:
        yield "NVSHMEM's device code (libnvshmem_device.bc) is not there"
    if any(path.endswith("/libnvshmem_device.bc") for path in matches):
        from torch.distributed._symmetric_memory._nvshmem_triton import NvshmemLibFinder  # noqa: PLC0415

        try:
            NvshmemLibFinder.find_device_library()
        except (OSError, RuntimeError) as error:
            yield f"torch does not find NVSHMEM's device code: {error}"


PARTS = {"triton": triton, "nvidia": nvidia}

if __name__ == "__main__":
    stdout, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    json.dump(list(PARTS[sys.argv[1]]()), stdout)
