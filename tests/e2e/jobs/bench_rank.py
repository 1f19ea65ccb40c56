"""A model that only rank 0 can create."""

import os

from net import Net  # type: ignore[import-not-found]


class OfRank0(Net):
    """Raises MemoryError on every rank but 0."""

    def __init__(self) -> None:
        if os.environ["RANK"] != "0":
            raise MemoryError(f"it is not for rank {os.environ['RANK']}")
        super().__init__()
