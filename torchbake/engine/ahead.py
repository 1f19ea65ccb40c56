"""The engine and its images, asked for while the rest of the toolkit loads: it takes about as long for its list."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from torchbake.engine.client import Engine, connect
from torchbake.engine.image import Image


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An engine that is asked, and what it has, by tag. What `connect` and `Engine.images` raise, these raise."""

    engine: "Future[Engine]" = field(default_factory=Future)
    images: "Future[dict[str, Image]]" = field(default_factory=Future)


def ask() -> Asked:
    """Begin to ask; nobody waits here."""
    asked = Asked()

    def answer() -> None:
        try:
            asked.engine.set_result(connect())
        except BaseException as error:
            asked.engine.set_exception(error)
            return
        try:
            asked.images.set_result(asked.engine.result().images())
        except BaseException as error:
            asked.images.set_exception(error)

    # A daemon: whoever ends before, for a mistake in the matrix, waits for no engine.
    threading.Thread(target=answer, name="engine's images", daemon=True).start()
    return asked
