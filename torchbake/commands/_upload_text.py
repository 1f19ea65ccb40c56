"""The progress of an upload in words."""

from collections.abc import Callable

from torchbake.core.sizes import human
from torchbake.oci.manifest import Blob


class UploadText:
    """The progress of the layers of an upload, as text."""

    def __init__(self, look: Callable[[str], None]) -> None:
        self._look, self._sent_bytes = look, dict[Blob, int]()

    def add(self, blob: Blob, count: int) -> None:
        self._sent_bytes[blob] = self._sent_bytes.get(blob, 0) + count
        going = [f"{human(part)} of {human(blob.size)}" for blob, part in self._sent_bytes.items() if part < blob.size]
        blobs = [blob for blob, part in self._sent_bytes.items() if part >= blob.size]
        words = [f"{len(blobs)} layers sent" if blobs else "", f"sending {', '.join(going)}" if going else ""]
        self._look("; ".join(filter(None, words)))
