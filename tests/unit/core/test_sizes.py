"""Sizes, as people read them."""

from torchbake.core.sizes import human


def test_sizes_are_short() -> None:
    for size, text in (
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (81_900, "81.9 kB"),
        (937_107_456, "937 MB"),
        (999_600_000, "1.00 GB"),
        (5_040_000_000, "5.04 GB"),
        (-12_000_000, "−12 MB"),
    ):
        assert human(size) == text, (size, text)
