"""Layers of released images that a build fetches from a registry, so that it need not pack them.

No failure of a registry ends a build: it is a warning, and the build packs what it has not fetched.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchbake.core.parallel import side_by_side
from torchbake.errors import RegistryError, SignatureError
from torchbake.oci.manifest import UnsoundError
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier
from torchbake.registry.transport import StatusError
from torchbake.release.shared_layers import read_lists
from torchbake.store.layers import Packed

_AT_ONCE = 4  # images whose lists are read side by side; each needs two calls of cosign


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a released image may be: its repository and its own tag."""

    registry: Registry
    tag: str


@dataclass(kw_only=True)
class FetchedLayers:
    """The packed layers of the images at some places, which are read in this order. Safe for many threads.

    Nothing is read before the first layer is wanted, and no more places than it takes to find the layers. A list counts
    if ``verifier`` verifies its signature and that of its image. ``sizes`` are the bytes of each layer that came.
    """

    places: Sequence[Place]
    verifier: Verifier
    warn: Callable[[str], None]
    sizes: list[int] = field(default_factory=list)
    _known: dict[str, tuple[Registry, Packed]] = field(default_factory=dict)
    _read: int = 0
    _away: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, key: str, folder: Path, go_on: Callable[[], object]) -> Packed | None:
        """Fetch the files of a layer into a folder; None if no verified image has the layer, or a file is not sound.

        ``go_on`` is called for each piece, and may raise to end the download.
        """
        found = None if self._away.is_set() else self._find(key, go_on)
        if found is None or self._away.is_set():
            return None
        registry, packed = found
        try:
            for name, blob in packed.files.items():
                registry.download(blob, folder / name, go_on)
        except RegistryError as error:
            for name in packed.files:
                (folder / name).unlink(missing_ok=True)
            with self._lock:  # it has other keys
                self._known = {key: known for key, known in self._known.items() if known[1] != packed}
            self._fail(error, "That layer is packed here.")
            return None
        self.sizes.append(sum(blob.size for blob in packed.blobs))
        return packed

    def _find(self, key: str, go_on: Callable[[], object]) -> tuple[Registry, Packed] | None:
        """Find a layer by its key, and read the lists of further images until one has it."""
        with self._lock:
            while key not in self._known and self._read < len(self.places) and not self._away.is_set():
                go_on()
                batch = self.places[self._read : self._read + _AT_ONCE]
                self._read += len(batch)
                for found in side_by_side(self._layers, batch, most=_AT_ONCE):
                    self._known = {**found, **self._known}
            return self._known.get(key)

    def _layers(self, place: Place) -> dict[str, tuple[Registry, Packed]]:
        """The layers of the image at a place; none if they cannot be read or must not be used."""
        try:
            layers = read_lists(place.registry, place.tag, self.verifier)
        except (SignatureError, RegistryError) as error:
            self._fail(error, "None of its layers is fetched.")
            return {}
        return {key: (place.registry, packed) for key, packed in layers.items()}

    def _fail(self, error: RegistryError | SignatureError, what: str) -> None:
        """Warn. If the registry is away or refuses a login, ask it no more: each layer would wait for it."""
        answered = isinstance(error, StatusError) and error.status == 404
        if not answered and not isinstance(error, SignatureError | UnsoundError):
            with self._turn:
                first, what = not self._away.is_set(), "The other layers are packed here."
                self._away.set()
            if not first:
                return
        self.warn(f"{error.message.rstrip('.')}. {what}")
