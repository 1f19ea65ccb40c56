"""Import modules, torch first and pip last; query torch's build and an error's stack; load the CUDA libraries.

One JSON document on stdout.

The argument is a JSON list of modules.
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH110, PTH118, PTH119, PTH120, PTH123, PTH207

import ctypes
import glob
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

# A library's function that tells its version, and whether that is the result or put where a pointer says.
VERSIONS = {
    "libcudart.so.*": ("cudaRuntimeGetVersion", True),
    "libcudnn.so.*": ("cudnnGetVersion", False),
    "libnccl.so.*": ("ncclGetVersion", True),
}
SYMTAB = 2  # a section's type: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html


def load_modules(names: list[str]) -> dict[str, Any]:
    errors, seconds = {}, {}
    # pip last: once it is loaded, setuptools is kept from bringing its own distutils (_distutils_hack, spec_for_pip).
    for name in sorted(names, key=lambda name: (name != "torch", name == "pip", name)):
        start = time.monotonic()
        try:
            importlib.import_module(name)
        except BaseException as error:
            errors[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        seconds[name] = round(time.monotonic() - start, 3)
    return {"errors": errors, "seconds": seconds}


def torch_facts() -> dict[str, Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    facts = {"version": torch.__version__, "cuda": torch.version.cuda, "cudnn": None, "nccl": None}
    if torch.version.cuda:
        try:
            facts["cudnn"] = torch.backends.cudnn.version()
            facts["nccl"] = list(torch.cuda.nccl.version())
        except Exception as error:
            facts["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return facts


def libraries() -> list[str]:
    """Return NVIDIA's shared libraries on Python's path, sorted by name."""
    matches = {
        os.path.realpath(file) for path in sys.path for file in glob.glob(f"{path}/nvidia/**/lib/*.so*", recursive=True)
    }
    return sorted(matches)


def load(path: str) -> str:
    """Load a library as CUDA itself does, late and by all symbols; the reason where that fails."""
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def version(path: str, function: str, by_pointer: bool) -> int:
    library = ctypes.CDLL(path)
    if not by_pointer:
        getattr(library, function).restype = ctypes.c_size_t
        return int(getattr(library, function)())
    number = ctypes.c_int()
    getattr(library, function)(ctypes.byref(number))
    return number.value


def cuda_facts() -> dict[str, Any]:
    """Loads cudart, NCCL and every part of cuDNN; tells their versions and from where they were loaded."""
    paths = libraries()
    parts = [path for path in paths if os.path.basename(path).startswith(("libcudart.so", "libnccl.so", "libcudnn"))]
    errors = {path: reason for path in parts if (reason := load(path))}
    versions = {}
    for pattern, (function, by_pointer) in VERSIONS.items():
        name = pattern.partition(".so")[0]
        for path in parts:
            if os.path.basename(path).startswith(f"{name}.so") and path not in errors:
                try:
                    versions[name] = version(path, function, by_pointer)
                except (AttributeError, OSError) as error:
                    errors[path] = str(error)
    with open("/proc/self/maps") as lines:
        mapped = {line.split(maxsplit=5)[5].strip() for line in lines if ".so" in line}
    names = ("libcudart", "libcudnn", "libnccl")
    return {
        "errors": errors,
        "versions": versions,
        "loaded": sorted(path for path in mapped if os.path.basename(path).startswith(names)),
    }


def traces() -> Iterator[str]:
    """An error of torch keeps its message when its C++ stack is asked for, and the stack names the functions."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield "torch cannot be imported"
        return
    own = os.getpid()
    try:
        output = f"nothing, but gives {torch.ones(2, 3).mm(torch.ones(2, 3)).shape}"
    except RuntimeError as error:
        output = str(error)
    if os.getpid() != own:  # torch forks for `addr2line`, and where there is none the child raises too, and goes on
        os._exit(1)
    if "cannot be multiplied" not in output:
        yield f"with TORCH_SHOW_CPP_STACKTRACES=1 an error of torch says {output.strip()[:60]!r}"
    elif "at::_ops::mm" not in output:
        yield "the C++ stack of an error does not name torch's operator"
    # If `addr2line` is installed, torch reads the stack from this table; debuggers and profilers always read it.
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for path in (f"{folder}/libtorch_cpu.so", f"{folder}/libtorch_cuda.so"):
        if os.path.exists(path) and not names_functions(path):
            yield f"{path} has no table of its functions' names"


def names_functions(path: str) -> bool:
    """Return True if a 64-bit ELF file has a symbol table in addition to the loader's."""
    with open(path, "rb") as file:
        head = file.read(64)
        start, size, count = (int.from_bytes(head[at:end], "little") for at, end in ((40, 48), (58, 60), (60, 62)))
        file.seek(start)
        sections = file.read(size * count)
    return any(int.from_bytes(sections[at + 4 : at + 8], "little") == SYMTAB for at in range(0, len(sections), size))


if __name__ == "__main__":
    os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"  # torch looks once
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a module prints, and be it when Python ends, is not ours to say
    facts = load_modules(json.loads(sys.argv[1]))
    json.dump({**facts, "traces": list(traces()), "torch": torch_facts(), "cuda": cuda_facts()}, answer)
    answer.close()
