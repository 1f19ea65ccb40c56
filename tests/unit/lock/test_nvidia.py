"""The wheels that hold files of NVIDIA's."""

import pytest

from torchbake.lock.nvidia import nvidia_folder


@pytest.mark.parametrize(
    ("wheel", "folder"),
    [
        ("nvidia-cudnn-cu12", ""),
        ("nvidia-nvvm", ""),
        ("cuda-bindings", ""),
        ("triton", "triton/backends/nvidia/"),
        ("torch", None),
        ("numpy", None),
    ],
)
def test_the_folder_with_nvidias_files(wheel: str, folder: str | None) -> None:
    assert nvidia_folder(wheel) == folder
