"""Images of this machine's own engine, asked for over its socket with the standard library alone.

The SDK takes as long to load as the engine takes for its answers. This is for who needs these images and nothing else.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from torchbake.engine.address import address_without_docker
from torchbake.engine.image import Image, of_inspection

# 1.0: the answer ends where the connection does, and comes in one piece.
_REQUEST = "GET /images/{}/json HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_SIDE_BY_SIDE = 2  # an engine takes some 4 ms for an image, on one core; in its list it takes 10, as it adds up sizes
_PATIENCE = 5.0  # seconds for all of the answers
_PIECE = 2**16


class Inquiry:
    """Images that an engine is being asked for, each by one of its tags; nobody waits before `images`."""

    def __init__(self, ask: Callable[[str], Image | None], tags: Sequence[str]) -> None:
        self._ask = ask
        self._found: dict[str, Image | None] = dict.fromkeys(tags)
        self._until = time.monotonic() + _PATIENCE
        # Daemons: whoever ends before, or goes another way, waits for no engine.
        self._threads = [
            threading.Thread(target=self._ask_for, args=(part,), name="local engine's images", daemon=True)
            for part in (tags[number::_SIDE_BY_SIDE] for number in range(_SIDE_BY_SIDE))
        ]
        for thread in self._threads:
            thread.start()

    def images(self) -> dict[str, Image] | None:
        """All of them by all of their tags; None where one is not there, or the engine does not answer plainly."""
        for thread in self._threads:
            thread.join(max(0.0, self._until - time.monotonic()))
        found = [image for image in self._found.values() if image]
        return {tag: image for image in found for tag in image.tags} if len(found) == len(self._found) else None

    def _ask_for(self, tags: Sequence[str]) -> None:
        for tag in tags:
            self._found[tag] = self._ask(tag)
            if self._found[tag] is None:
                return


def image_at(address: str, tag: str) -> Image | None:
    """What the engine behind a socket has under a tag; None where it does not answer soon and plainly."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(address)
            return image_over(connection, tag)
    except OSError:
        return None


def image_over(connection: socket.socket, tag: str) -> Image | None:
    """What an engine at the other end of a connection has under a tag; None where that is not what it says.

    ``size_bytes`` is not that of the engine's list. Raises OSError.
    """
    connection.sendall(_REQUEST.format(quote(tag)).encode())
    answer = b"".join(iter(lambda: connection.recv(_PIECE), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[:2] not in ([b"HTTP/1.0", b"200"], [b"HTTP/1.1", b"200"]):
        return None
    try:
        said = json.loads(body)  # an answer that was cut off has no end, and is not JSON
        image = of_inspection(said)
        sound = isinstance(image.digest, str) and isinstance(image.labels, dict) and tag in image.tags
        return image if sound else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def local_address(environ: Mapping[str, str] = os.environ, home: Path | None = None) -> str | None:
    """The socket of this process's engine; None for an address of another kind, or one that docker has to be asked."""
    address = address_without_docker(environ, home)
    return address.socket if address and address.tls is None else None
