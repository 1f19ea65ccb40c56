"""The images of this machine's own engine, asked for over its socket with the standard library alone.

The SDK takes as long to load as the engine takes for its list. This is for who needs the list and nothing else.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from torchbake.engine.image import Image, by_tag

SOCKET = "/var/run/docker.sock"  # of the context `default`
# 1.0: the answer ends where the connection does, and comes in one piece.
_REQUEST = "GET /images/json?filters={} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_SIDE_BY_SIDE = 2  # an engine takes some 10 ms an image for its list, on one core
_PATIENCE = 5.0  # seconds for all of the answer
_PIECE = 2**16
_OTHERWISE = ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")  # settings that only docker itself should read


class Listing:
    """A list of images by some tags of theirs that is being asked for; nobody waits before `images`."""

    def __init__(self, address: str, tags: Sequence[str]) -> None:
        parts = [tags[part::_SIDE_BY_SIDE] for part in range(_SIDE_BY_SIDE)]
        self._parts: list[dict[str, Image] | None] = [None if part else {} for part in parts]
        # Daemons: whoever ends before, or goes another way, waits for no engine.
        self._threads = [
            threading.Thread(target=self._ask, args=(address, part, number), name="local engine's images", daemon=True)
            for number, part in enumerate(parts)
            if part
        ]
        for thread in self._threads:
            thread.start()

    def images(self) -> dict[str, Image] | None:
        """The engine's images by those tags; None where it does not answer, soon and plainly."""
        until = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        found: dict[str, Image] = {}
        for part in self._parts:
            if part is None:
                return None
            found |= part
        return found

    def _ask(self, address: str, tags: Sequence[str], number: int) -> None:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_PATIENCE)
                connection.connect(address)
                self._parts[number] = images_over(connection, tags)
        except OSError:
            return


def images_over(connection: socket.socket, tags: Sequence[str]) -> dict[str, Image] | None:
    """What an engine at the other end of a connection has of these, by tag; None where that is not what it says.

    Raises OSError.
    """
    wanted = quote(json.dumps({"reference": list(tags)}))
    connection.sendall(_REQUEST.format(wanted).encode())
    answer = b"".join(iter(lambda: connection.recv(_PIECE), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[:2] not in ([b"HTTP/1.0", b"200"], [b"HTTP/1.1", b"200"]):
        return None
    try:
        images = by_tag(json.loads(body))  # a list that was cut off has no end, and is no JSON
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    sound = all(isinstance(one.digest, str) and isinstance(one.labels, dict) for one in images.values())
    return images if sound else None


def local_address(environ: Mapping[str, str] = os.environ, home: Path | None = None) -> str | None:
    """The socket of the engine that the SDK would ask; None where that is another kind of place, or in doubt."""
    if any(environ.get(name) for name in _OTHERWISE):
        return None
    named = environ.get("DOCKER_HOST")
    if not named:
        return SOCKET if _default_context(environ, home) else None
    path = named.removeprefix("unix://")
    return path if path != named and path.startswith("/") and not set(path) & set("?#;@\n ") else None


def _default_context(environ: Mapping[str, str], home: Path | None) -> bool:
    """Whether docker's own settings leave its context as it is: they name none, or are not there."""
    try:
        home = home or Path.home()
        places = (environ.get("DOCKER_CONFIG"), home / ".docker")
        files = [*(Path(place) / "config.json" for place in places if place), home / ".dockercfg"]
        file = next((file for file in files if file.exists()), None)
        return file is None or json.loads(file.read_bytes()).get("currentContext", "default") == "default"
    except (OSError, ValueError, AttributeError, RuntimeError):  # RuntimeError: who we are has no home
        return False
