"""Text of others, as pages and terminals can show it."""

import pytest

from torchbake.core.plain_text import clean


@pytest.mark.parametrize(
    ("text", "left"),
    [("\x1b[1;31mred\x1b[0m", "red"), ("a\x00b\x07\ud800", "ab"), ("a\tb\nc é 😀", "a\tb\nc é 😀")],
    ids=["colours", "control characters", "words"],
)
def test_what_nothing_can_show_is_left_out(text: str, left: str) -> None:
    assert clean(text) == left
