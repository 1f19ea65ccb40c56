"""NVIDIA's files in the wheels of a lock, by the wheels' names."""

_WHEELS = ("nvidia-", "cuda-")
_FOLDERS = {"triton": "triton/backends/nvidia/"}  # ptxas, CUPTI and libdevice in Triton's wheel


def nvidia_folder(wheel: str) -> str | None:
    """The folder of a wheel below which all files are NVIDIA's, with a slash at its end.

    Returns the empty string if all files of the wheel are, and None if none is.
    """
    return "" if wheel.startswith(_WHEELS) else _FOLDERS.get(wheel)
