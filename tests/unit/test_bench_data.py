"""Images of `bench` without torch: Caffe's Datum message, and which part of an image becomes a sample."""

import random
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.throughput.data.crop import CropBox, centre_box, random_box
from entrypoints.pytorch.throughput.data.datum import Datum, DatumError, parse

INT32 = st.integers(-(2**31), 2**31 - 1)
SIZE = st.integers(0, 2**31 - 1)


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def piece(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def write(datum: Datum, *, packed: bool) -> bytes:
    """As protobuf writes it; ``packed``: all floats in one field, else a field for each, as Caffe's proto2 does."""
    floats = [struct.pack("<f", value) for value in datum.float_data]
    return b"".join(
        [
            number(1, datum.channels),
            number(2, datum.height),
            number(3, datum.width),
            piece(4, datum.data),
            number(5, datum.label),
            piece(6, b"".join(floats)) if packed else b"".join(varint(6 << 3 | 5) + value for value in floats),
            number(7, datum.encoded),
        ]
    )


@given(
    datum=st.builds(
        Datum, channels=SIZE, height=SIZE, width=SIZE, data=st.binary(max_size=300), label=INT32,
        float_data=st.lists(st.floats(width=32, allow_nan=False), max_size=5).map(tuple), encoded=st.booleans(),
    ),
    packed=st.booleans(),
)  # fmt: skip
def test_what_was_written_is_read(datum: Datum, packed: bool) -> None:
    assert parse(write(datum, packed=packed)) == datum


def test_a_message_of_protobufs_own() -> None:
    """datum_pb2.Datum(channels=3, height=1, width=2, data=b"abcdef", label=300).SerializeToString()"""
    message = bytes.fromhex("080310011802220661626364656628ac02")
    assert parse(message) == Datum(channels=3, height=1, width=2, data=b"abcdef", label=300)


def test_fields_that_a_datum_has_not_are_skipped() -> None:
    unknown = number(9, 5) + piece(10, b"text") + varint(11 << 3 | 1) + bytes(8) + varint(12 << 3 | 5) + bytes(4)
    assert parse(unknown + number(5, 3)) == Datum(label=3)
    assert parse(b"") == Datum()


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"\x0b", "field 1 has the wire type 3"),
        (b"\x22\x05abc", "it ends in the middle of field 4"),
        (b"\x08", "it ends in the middle of a number"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (piece(6, b"abc"), "floats take 3 bytes"),
        (number(1, 3) + number(2, -2) + number(3, -2) + piece(4, bytes(12)), r"are \(3, -2, -2\), and none can be neg"),
        (number(1, -3), "none can be negative"),
    ],
)
def test_what_is_no_datum_is_told(message: bytes, sentence: str) -> None:
    with pytest.raises(DatumError, match=sentence):
        parse(message)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_datum_or_told(message: bytes) -> None:
    with suppress(DatumError):  # and no other error
        assert isinstance(parse(message), Datum)


@given(height=st.integers(1, 3000), width=st.integers(1, 3000), seed=st.integers(0, 2**32))
def test_a_part_lies_in_the_image(height: int, width: int, seed: int) -> None:
    for box in (random_box(height, width, random.Random(seed)), centre_box(height, width)):
        assert box.height > 0
        assert box.width > 0
        assert 0 <= box.top <= box.top + box.height <= height
        assert 0 <= box.left <= box.left + box.width <= width


def test_a_random_part_has_the_share_and_the_shape_of_training() -> None:
    boxes = [random_box(400, 500, random.Random(seed)) for seed in range(500)]
    areas, ratios = [box.height * box.width / 200_000 for box in boxes], [box.width / box.height for box in boxes]
    assert 0.07 < min(areas) < 0.15
    assert 0.8 < max(areas) <= 1
    assert 0.74 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.34


def test_the_middle() -> None:
    assert centre_box(256, 256) == CropBox(top=16, left=16, height=224, width=224)
    assert centre_box(256, 512) == CropBox(top=16, left=144, height=224, width=224)
