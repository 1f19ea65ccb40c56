"""GPUs by name or compute capability, and which GPU code runs on them. Pure.

Compute capabilities: https://developer.nvidia.com/cuda-gpus. Rules: binary and PTX compatibility,
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility.
"""

import re
from collections.abc import Iterable

from torchbake.core.suggest import nearest
from torchbake.errors import UsageError

Capability = tuple[int, int]

_NAMES = {
    (6, 0): "P100",
    (6, 1): "P4 P40",
    (7, 0): "V100",
    (7, 5): "T4 RTX2080",
    (8, 0): "A100 A30",
    (8, 6): "A10 A16 A2 A40 A6000 RTX3090",
    (8, 7): "ORIN",
    (8, 9): "L4 L40 L40S RTX4090",
    (9, 0): "H100 H200 H20 GH200",
    (10, 0): "B100 B200 GB200",
    (10, 3): "B300 GB300",
    (11, 0): "THOR",
    (12, 0): "RTX5090 RTXPRO6000",
    (12, 1): "GB10",
}
CAPABILITIES = {name: capability for capability, names in _NAMES.items() for name in names.split()}
# Jetson's and DRIVE's: machine code for them runs on no other GPU.
_TEGRA = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)}


def parse_gpus(text: str) -> tuple[Capability, ...]:
    """Read GPUs that are separated by commas: capabilities (``9.0``, ``sm_90``) and names (``H100``).

    Raises UsageError.
    """
    return tuple(sorted({_parse(word.strip()) for word in text.split(",")}))


def _parse(word: str) -> Capability:
    name = re.sub(r"[\s_-]", "", word).upper().removeprefix("NVIDIA")
    if name in CAPABILITIES:
        return CAPABILITIES[name]
    match = re.fullmatch(r"(\d{1,2})\.(\d)", word) or re.fullmatch(r"SM(\d{1,2})(\d)[AF]?", name)
    if match:
        return int(match[1]), int(match[2])
    close = nearest(name, CAPABILITIES)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(
        f"--gpus: {word!r} is neither a compute capability nor a GPU that torchbake knows.",
        hint=f"{hint}Write capabilities, as in --gpus 8.0,9.0.",
    )


def runs(architecture: str, gpu: Capability) -> bool:
    """Return whether a GPU can run code of an architecture: ``sm_90``, ``sm_90a``, ``compute_90``, ``lto_90``.

    Machine code runs from its capability to the next major one. PTX and LTO-IR are compiled for all later GPUs.
    Unknown architectures run, so that no code is called needless by mistake.
    """
    match = re.fullmatch(r"(sm|compute|lto)_(\d+)(\d)(a?)", architecture)
    if not match:
        return True
    capability = int(match[2]), int(match[3])
    if match[4] or (match[1] == "sm" and capability in _TEGRA):
        return capability == gpu
    if match[1] == "sm":
        return capability[0] == gpu[0] and capability <= gpu
    return capability <= gpu


def needless(architectures: Iterable[str], gpus: Iterable[Capability]) -> list[str]:
    """Return the architectures whose code runs on none of the GPUs."""
    return [name for name in architectures if not any(runs(name, gpu) for gpu in gpus)]


def gpus_of(architecture: str) -> str:
    """Name the GPUs of machine code (``L4, L40`` of sm_89), or say from which capability on PTX and LTO-IR run."""
    match = re.fullmatch(r"(sm|compute|lto)_(\d+)(\d)a?", architecture)
    if not match:
        return ""
    capability = int(match[2]), int(match[3])
    if match[1] != "sm":
        return f"{capability[0]}.{capability[1]} and later"
    return ", ".join(name for name, own in CAPABILITIES.items() if own == capability)
