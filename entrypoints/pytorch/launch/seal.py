"""Seals on the lines of one connection: each proves the sender of a line, and its place in that direction.

A seal is HMAC-SHA256, keyed for this connection alone, over a byte for the direction, the number of the line in that
direction (8 bytes, big-endian) and the line. A relay between two nodes can break the connection. It cannot add, alter,
repeat, reorder, drop or send back a line unseen.
"""

import hmac

_HEX = 64  # digits of a seal; a blank comes between it and the line


class Seals:
    """The seals of both directions at one end of the connection."""

    def __init__(self, key: bytes, *, node_zero: bool) -> None:
        self._key = key
        self._own, self._other = (b"\0", b"\1") if node_zero else (b"\1", b"\0")
        self._sent_count = self._received_count = 0

    def put_on(self, line: bytes) -> bytes:
        """Return the next line to send, sealed."""
        sealed = self._seal(self._own, self._sent_count, line) + b" " + line
        self._sent_count += 1
        return sealed

    def take_off(self, sealed: bytes) -> bytes | None:
        """Return the next received line without its seal, or None if the seal is wrong."""
        line = sealed[_HEX + 1 :]
        expected = self._seal(self._other, self._received_count, line) + b" "
        if not hmac.compare_digest(expected, sealed[: _HEX + 1]):
            return None
        self._received_count += 1
        return line

    def _seal(self, direction: bytes, number: int, line: bytes) -> bytes:
        return hmac.new(self._key, direction + number.to_bytes(8, "big") + line, "sha256").hexdigest().encode()
