"""A bar of an image's layers."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.test_catalogue import layer
from torchbake.report.layer_sharing import break_down
from torchbake.report.svg import WIDTH, Part, bar, parts_of


@given(st.lists(st.integers(0, 10**11), max_size=30))
def test_the_pieces_of_a_bar_fill_it_side_by_side(sizes: list[int]) -> None:
    drawn = bar([Part(size=size, kind="own") for size in sizes], whole=sum(sizes), title="t")
    boxes = [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)" width="([\d.]+)"', drawn)]
    assert sum(width for _, width in boxes) == pytest.approx(WIDTH if sum(sizes) else 0, abs=0.1)
    for (x, width), (after, _) in pairwise(boxes):
        assert after == pytest.approx(x + width, abs=0.1)


def test_a_bar_has_what_is_shared_last_and_from_large_to_small() -> None:
    breakdowns = break_down({"a": [layer("x", 1), layer("y", 5), layer("z", 9)], "b": [layer("z", 9)]})
    assert [(part.kind, part.size) for part in parts_of(breakdowns["a"])] == [("own", 5), ("own", 1), ("shared", 9)]
