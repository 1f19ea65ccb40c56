"""A model that one rank cannot make."""

import os

from net import Net  # type: ignore[import-not-found]


class OfRank0(Net):
    """Raises on every other."""

    def __init__(self) -> None:
        if os.environ["RANK"] != "0":
            raise MemoryError(f"it is not for rank {os.environ['RANK']}")
        super().__init__()
