"""The part of an image that becomes a sample."""

import math
from dataclasses import dataclass
from typing import Protocol

_AREA = (0.08, 1.0)  # of the image
_RATIO = (3 / 4, 4 / 3)  # width to height
_TRIES = 10
_CROP = 224 / 256  # of the shorter side, in the middle


class Draw(Protocol):
    """The module `random`, or one of its generators."""

    def uniform(self, a: float, b: float, /) -> float: ...
    def randint(self, a: int, b: int, /) -> int: ...


@dataclass(frozen=True, kw_only=True)
class CropBox:
    """A part of an image, in pixels from its upper left corner."""

    top: int
    left: int
    height: int
    width: int


def random_box(height: int, width: int, draw: Draw) -> CropBox:
    """Draw a part for training: 8% to 100% of the area, at most a third wider or narrower than high.

    Source: C. Szegedy et al., Going deeper with convolutions, CVPR 2015, section 6. After ten tries the middle is
    taken, as in torchvision's RandomResizedCrop.
    """
    for _ in range(_TRIES):
        area = height * width * draw.uniform(*_AREA)
        ratio = math.exp(draw.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return CropBox(
                top=draw.randint(0, height - high), left=draw.randint(0, width - wide), height=high, width=wide
            )
    high = min(height, max(1, round(width / _RATIO[0])))
    wide = min(width, max(1, round(height * _RATIO[1])))
    return _middle(height, width, high, wide)


def centre_box(height: int, width: int) -> CropBox:
    """Return the part for inference: the middle square of 7/8 (224/256) of the shorter side."""
    side = max(1, round(min(height, width) * _CROP))
    return _middle(height, width, side, side)


def _middle(height: int, width: int, high: int, wide: int) -> CropBox:
    return CropBox(top=(height - high) // 2, left=(width - wide) // 2, height=high, width=wide)
