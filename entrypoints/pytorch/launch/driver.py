"""The driver's parts that a container is given together with its GPUs."""

import ctypes
import shutil
from collections.abc import Mapping


def missing(env: Mapping[str, str]) -> list[str]:
    """Those that are not there; of an image that uses no GPU none is missed."""
    if "NVIDIA_REQUIRE_CUDA" not in env:
        return []
    libraries = [name for name in ("libcuda.so.1", "libnvidia-ml.so.1") if not _loads(name)]
    return libraries + ([] if shutil.which("nvidia-smi", path=env.get("PATH")) else ["nvidia-smi"])


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
