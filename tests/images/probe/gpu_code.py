"""Which GPUs torch and its libraries have code for, as `layers/wheels` reads it. One JSON document on stdout.

The arguments are a JSON object of modules by name, each with its text, and the GPUs that the image says it is for; the
answer is what is wrong. What somebody added for himself is as he wants it.
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH123

import importlib
import importlib.metadata
import json
import mmap
import re
import struct
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

TORCH = "torch/lib/libtorch_cuda.so"


def lay_in(package: str, modules: dict[str, str]) -> None:
    """Make modules of a package importable, each after those that it imports."""
    sys.modules[package] = ModuleType(package)
    for name, text in modules.items():
        module = ModuleType(f"{package}.{name}")
        sys.modules[module.__name__] = module
        module.__package__ = package
        exec(text, module.__dict__)


def wrong(gpus: list[str]) -> Iterator[str]:
    """What a GPU that the image is for would miss, and what none of them could use."""
    reader: Any = importlib.import_module("wheels.gpu_code")
    kept = [reader.read_gpu(text) for text in gpus]
    found: dict[str, list[Any]] = {}
    for path in libraries():
        try:
            found[path] = list(codes(reader, path))
        except (struct.error, LookupError, ValueError) as error:
            yield f"{path} cannot be read: {error}"
    torch = [code for path in found if path.endswith(TORCH) for code in found[path]]
    if not torch:
        yield f"{TORCH} has no code for GPUs"
    for gpu, text in zip(kept, gpus, strict=True):
        if not any(reader.Gpu(gpu.major, gpu.minor).runs(code) for code in torch):
            yield f"torch has no code for a GPU of {text.removesuffix('+')}, which the image says it is for"
    for path, every in found.items():
        odd = [code for code in every if code.is_gone == (not kept or any(gpu.runs(code) for gpu in kept))]
        yield from told(path, "is gone", [code for code in odd if code.is_gone])
        yield from told(path, "is there, and of no use", [code for code in odd if not code.is_gone])


def libraries() -> Iterator[str]:
    """Those of torch, and of all that it asks for directly or not."""
    asked, seen = ["torch"], set[str]()
    while asked:
        name = asked.pop()
        if name not in seen:
            seen.add(name)
            try:
                wheel = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:  # of another system, or of an extra
                continue
            asked += (re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in wheel.requires or ())
            yield from (str(file.locate()) for file in wheel.files or () if ".so" in file.name)


def codes(reader: Any, path: str) -> Iterator[Any]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library:
        yield from reader.codes(library)


def told(path: str, what: str, some: list[Any]) -> Iterator[str]:
    if some:
        gpus = sorted({code.capability for code in some})
        yield f"{path}: code for {', '.join(f'{major}.{minor}' for major, minor in gpus)} {what}"


if __name__ == "__main__":
    lay_in("wheels", json.loads(sys.argv[1]))
    print(json.dumps(list(wrong(sys.argv[2:]))))
