"""The images of this machine's own engine, asked for over its socket with the standard library alone.

The SDK takes as long to load as the engine takes for its list. This is for who needs the list and nothing else.
"""

import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from torchbake.engine.image import Image, by_tag

SOCKET = "/var/run/docker.sock"  # of the context `default`
# 1.0: the answer ends where the connection does, and comes in one piece.
_REQUEST = b"GET /images/json HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_PATIENCE = 5.0  # seconds for all of the answer
_PIECE = 2**16
_OTHERWISE = ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")  # settings that only docker itself should read


class Listing:
    """A list of images that is being asked for; nobody waits before `images`."""

    def __init__(self, address: str) -> None:
        self._images: dict[str, Image] | None = None
        # A daemon: whoever ends before, or goes another way, waits for no engine.
        self._thread = threading.Thread(target=self._ask, args=(address,), name="local engine's images", daemon=True)
        self._thread.start()

    def images(self) -> dict[str, Image] | None:
        """The engine's images by tag; None where it does not answer, soon and plainly."""
        self._thread.join(_PATIENCE)
        return self._images

    def _ask(self, address: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_PATIENCE)
                connection.connect(address)
                self._images = images_over(connection)
        except OSError:
            return


def images_over(connection: socket.socket) -> dict[str, Image] | None:
    """What an engine at the other end of a connection has, by tag; None where that is not what it says.

    Raises OSError.
    """
    connection.sendall(_REQUEST)
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
