"""The output of nodes is shown as it arrives, by whole lines for several nodes."""

import io
from collections.abc import Iterator

import pytest

from torchbake.jobs.output import Lines, Output, Piece


def test_lines_of_several_nodes_are_whole_and_named() -> None:
    lines = Lines("mnist-1")
    assert lines.feed(b"epo") == b""
    assert lines.feed(b"ch 1\nepoch 2\nep") == b"mnist-1 | epoch 1\nmnist-1 | epoch 2\n"
    assert lines.rest() == b"mnist-1 | ep\n"
    assert Lines("mnist-1").rest() == b""


def test_of_one_node_all_passes_at_once() -> None:
    lines = Lines("")
    assert lines.feed(b"\r 50%") == b"\r 50%"
    assert lines.rest() == b""


def test_each_stream_goes_to_its_own() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    output = Output(out, err)
    output.show([(b"a\n", None), (None, b"b\n"), (b"c", b"d")], "n")
    output.end(5)
    assert (out.getvalue(), err.getvalue()) == (b"n | a\nn | c\n", b"n | b\nn | d\n")


def test_a_reader_that_has_gone_is_told() -> None:
    class Closed(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise BrokenPipeError

    def pieces() -> Iterator[Piece]:
        yield b"a", None

    output = Output(Closed(), io.BytesIO())
    output.show(pieces())
    with pytest.raises(BrokenPipeError):
        output.end(5)
