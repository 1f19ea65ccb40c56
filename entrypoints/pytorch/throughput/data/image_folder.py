"""A folder with a subfolder of images for each class."""

import os
from pathlib import Path

import torch
from torch.utils.data import Dataset

from ..failure import Failure
from .pixels import SampleSpec, decode, need_pillow, sample

_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """Images with classes in the order of the folders' names, as in torchvision's ImageFolder. Raises Failure."""

    def __init__(self, folder: Path, sample_spec: SampleSpec) -> None:
        need_pillow()
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        self._images = [(path, number) for number, name in enumerate(names) for path in _images(folder / name)]
        self._spec = sample_spec
        if not self._images:
            raise Failure(
                f"{folder} has no images: --data_backend image_folder reads {folder}/CLASS/IMAGE.jpg (also "
                f"{', '.join(_SUFFIXES[2:])}).{_there(folder)}"
            )
        sample_spec.check_class(len(names) - 1, str(folder))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, number = self._images[index]
        return sample(decode(path, str(path)), self._spec.size, training=self._spec.training), number


def _images(folder: Path) -> list[Path]:
    """List the images of a class's folder and its subfolders, in the order of their paths."""
    found_paths = [Path(at, name) for at, _, names in os.walk(folder, followlinks=True) for name in names]
    return sorted(path for path in found_paths if path.suffix.lower() in _SUFFIXES)


def _there(folder: Path) -> str:
    if (folder / "data.mdb").exists():
        return " It holds an LMDB: choose --data_backend caffe_lmdb."
    loose = any(path.suffix.lower() in _SUFFIXES for path in folder.iterdir())
    return " Its images are not in subfolders: move them into one for each class." if loose else ""
