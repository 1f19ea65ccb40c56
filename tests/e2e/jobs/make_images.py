"""Writes images below a folder: as files, as a Caffe LMDB, and as invalid variants that a loader must refuse."""

import io
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
from PIL import Image

CLASSES, EACH = 3, 8


def main(folder: Path) -> None:
    pictures = list(_pictures())
    for name, number, image in pictures:
        path = folder / "images" / f"class_{number}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    messages = [datum(image, number, encoded=place % 2 == 0) for place, (_, number, image) in enumerate(pictures)]
    write(folder / "lmdb", messages)
    write(folder / "lmdb-wrong", [b"\x0b no datum"])
    write(folder / "lmdb-empty", [])
    for name, side in (("lmdb-negative", 2**64 - 2), ("lmdb-flat", 0)):  # protobuf encodes -2 in 64 bits
        pixels = bytes(12 if side else 0)
        write(folder / name, [_number(1, 3) + _number(2, side) + _number(3, side) + _bytes(4, pixels)])
    (folder / "empty").mkdir()
    broken = folder / "broken/class_0"
    broken.mkdir(parents=True)
    (broken / "0.jpg").write_bytes(b"no image")


def _pictures() -> Iterator[tuple[str, int, Image.Image]]:
    """Make images of several sizes and modes: RGB, grey, with a palette, and transparent."""
    modes = ("RGB", "L", "P", "RGBA")
    for place in range(CLASSES * EACH):
        number, mode = place % CLASSES, modes[place % len(modes)]
        image = Image.radial_gradient("L").resize((90 + 7 * place, 150 - 3 * place)).convert("RGB").convert(mode)
        yield f"{place:02}.{'jpg' if mode in ('RGB', 'L') else 'png'}", number, image


def datum(image: Image.Image, label: int, *, encoded: bool) -> bytes:
    """As Caffe's convert_imageset writes it, with --encoded or without."""
    if encoded:
        file = io.BytesIO()
        image.convert("RGB").save(file, "JPEG")
        return _bytes(4, file.getvalue()) + _number(5, label) + _number(7, 1)
    blue_first = b"".join(channel.tobytes() for channel in reversed(image.convert("RGB").split()))
    head = _number(1, 3) + _number(2, image.height) + _number(3, image.width)
    return head + _bytes(4, blue_first) + _number(5, label)


def write(folder: Path, messages: list[bytes]) -> None:
    with lmdb.open(str(folder), map_size=1 << 26) as database, database.begin(write=True) as transaction:
        for place, message in enumerate(messages):
            transaction.put(f"{place:08}_image".encode(), message)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    low, rest = value & 0x7F, value >> 7
    return struct.pack("B", low | 0x80) + _varint(rest) if rest else struct.pack("B", low)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
