"""The engine's images, asked for while the rest of the toolkit loads: the engine takes about as long for its list."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from torchbake.engine.client import Engine, connect
from torchbake.engine.image import Image


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An engine that is asked, and its answer."""

    engine: Engine
    images: dict[str, Image]


def ask() -> "Future[Asked]":
    """The engine with its images, by tag; what `connect` and `Engine.images` raise, the future raises."""
    future: Future[Asked] = Future()

    def answer() -> None:
        try:
            engine = connect()
            future.set_result(Asked(engine=engine, images=engine.images()))
        except BaseException as error:
            future.set_exception(error)

    # A daemon: whoever ends before, for a mistake in the matrix, waits for no engine.
    threading.Thread(target=answer, name="engine's images", daemon=True).start()
    return future
