"""Samples from the bytes of images: decoded, cropped, resized, flipped and normalised."""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch.nn.functional import interpolate

from ..failure import Failure
from .crop import centre_box, random_box

if TYPE_CHECKING:
    from pathlib import Path

# Of ImageNet's images (red, green, blue; values from 0 to 1), as pretrained models expect.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class SampleSpec:
    """The samples that a model takes: their size, its number of classes, and whether it trains."""

    size: tuple[int, int]
    classes: int
    training: bool

    def check_class(self, number: int, where: str) -> None:
        """Raise Failure for a class that the model does not have; a GPU would only report a failed assertion."""
        if not 0 <= number < self.classes:
            raise Failure(f"{where} has the class {number}, and the model knows 0 to {self.classes - 1}: take another.")


def need_pillow() -> None:
    """Raise Failure if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401, PLC0415
    except ImportError:
        raise Failure(
            "Image files are decoded by Pillow, which torchvision brings along, and neither is here: add pillow to the "
            "image's packages (packages: {pip: [pillow]} in matrix.yaml), or install it."
        ) from None


def decode(file: "Path | BinaryIO", name: str) -> torch.Tensor:
    """Decode an image file of any colours to (3, height, width) in bytes. Raises Failure."""
    from PIL import Image  # noqa: PLC0415

    try:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"{name} cannot be read as an image ({error}): replace or remove it.") from None
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(image.height, image.width, 3).permute(2, 0, 1)


def sample(pixels: torch.Tensor, size: tuple[int, int], *, training: bool) -> torch.Tensor:
    """Return a float32 sample of (3, *size): for training a random part, half of them mirrored; else the middle."""
    height, width = pixels.shape[1:]
    box = random_box(height, width, random) if training else centre_box(height, width)
    part = pixels[:, box.top : box.top + box.height, box.left : box.left + box.width]
    sized = interpolate(part.unsqueeze(0), size, mode="bilinear", antialias=True).squeeze(0)
    if training and random.random() < 0.5:
        sized = sized.flip(2)
    mean, std = (torch.tensor(values).view(3, 1, 1) * 255 for values in (_MEAN, _STD))
    return (sized.float() - mean) / std
