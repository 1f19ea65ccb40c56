"""NVIDIA's files in the wheels of a lock, by the wheels' names."""

_WHEELS = ("nvidia-", "cuda-")
_FOLDERS = {"triton": "triton/backends/nvidia/"}  # ptxas, CUPTI and libdevice in Triton's wheel


def nvidia_folder(wheel: str) -> str | None:
    """Return the folder of a wheel's NVIDIA files, with a slash at its end; "" for the whole wheel, None for none."""
    return "" if wheel.startswith(_WHEELS) else _FOLDERS.get(wheel)
