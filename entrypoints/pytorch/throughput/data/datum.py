"""Caffe's Datum message, read without the protobuf package: one image, or its pixels, and its class.

    message Datum {
      optional int32 channels = 1;    optional int32 height = 2;      optional int32 width = 3;
      optional bytes data = 4;        optional int32 label = 5;
      repeated float float_data = 6;  optional bool encoded = 7 [default = false];
    }

A message is a sequence of fields, each a varint (its number times 8, plus its wire type) and a value. Unknown fields
are skipped. Sources: src/caffe/proto/caffe.proto of BVLC/caffe; https://protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_INTEGERS = {1: "channels", 2: "height", 3: "width", 5: "label"}
_DATA, _FLOATS, _ENCODED = 4, 6, 7


class DatumError(ValueError):
    """The bytes are not a Datum, for the reason in the message."""


@dataclass(frozen=True, kw_only=True)
class Datum:
    """An image or its pixels, and its class.

    ``data`` are pixels of a byte, channel by channel in the order blue, green, red. If ``encoded``, they are the bytes
    of an image file. ``float_data`` replaces ``data`` in messages with pixels as floats.
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    data: bytes = b""
    label: int = 0
    float_data: tuple[float, ...] = ()
    encoded: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width; 0 if the message has none."""
        return self.channels, self.height, self.width


def parse(message: bytes) -> Datum:
    """Parse a message. Raises DatumError. The last of repeated fields counts, as in protobuf; floats accumulate."""
    values: dict[str, int | bytes | bool] = {}
    floats: list[float] = []
    for number, kind, value in _fields(message):
        if kind == _VARINT and number in _INTEGERS:
            low = int(value) & 0xFFFFFFFF  # an int32 is sent as its 64 bits in two's complement
            values[_INTEGERS[number]] = low - (1 << 32) if low & 0x80000000 else low
        elif kind == _VARINT and number == _ENCODED:
            values["encoded"] = bool(value)
        elif kind == _BYTES and number == _DATA:
            values["data"] = value
        elif kind in (_BYTES, _FIXED32) and number == _FLOATS:
            assert isinstance(value, bytes)
            if len(value) % 4:
                raise DatumError(f"its floats take {len(value)} bytes, which is not 4 for each")
            floats += struct.unpack(f"<{len(value) // 4}f", value)
    datum = Datum(**values, float_data=tuple(floats))  # type: ignore[arg-type]
    if min(datum.shape) < 0:  # two negative numbers can have the product that fits the pixels
        raise DatumError(f"its (channels, height, width) are {datum.shape}, and none can be negative")
    return datum


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes | int]]:
    """Yield number, wire type and value of each field: the number of a varint, else the bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise DatumError(f"field {number} has the wire type {kind}, which no Datum has")
        if place + length > len(message):
            raise DatumError(f"it ends in the middle of field {number}")
        yield number, kind, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a varint, and return it with the place after it.

    Each byte has seven bits, the lowest first; the eighth bit is set if more bytes follow.
    """
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise DatumError("it ends in the middle of a number")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise DatumError("a number in it has more than 64 bits")
