"""Layers of released images that a build fetches from a registry instead of packing them.

A failure of a registry does not end a build: the build prints a warning, and packs the other layers.
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
from torchbake.store.layers import PackedLayer

_AT_ONCE = 4  # images whose lists are read in parallel; each needs two calls of cosign


@dataclass(frozen=True, kw_only=True)
class ReleaseLocation:
    """A possible place of a released image: its repository and its own tag."""

    registry: Registry
    tag: str


@dataclass(kw_only=True)
class FetchedLayers:
    """The packed layers of the images at some places. Safe for many threads.

    The places are read in order when the first layer is wanted, and only until all wanted layers are found. A list
    counts if ``verifier`` accepts its signature and its image's. The bytes of each fetched layer are in ``sizes``.
    """

    places: Sequence[ReleaseLocation]
    verifier: Verifier
    warn: Callable[[str], None]
    sizes: list[int] = field(default_factory=list)
    _sources: dict[str, tuple[Registry, PackedLayer]] = field(default_factory=dict)
    _read: int = 0
    _away: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failing: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, key: str, folder: Path, go_on: Callable[[], object]) -> PackedLayer | None:
        """Fetch the files of a layer into a folder; None if no verified image has the layer, or a file is damaged.

        Each piece calls ``go_on``, which may raise to end the download.
        """
        layers = None if self._away.is_set() else self._find(key, go_on)
        if layers is None or self._away.is_set():
            return None
        registry, layer = layers
        try:
            for name, blob in layer.files.items():
                registry.download(blob, folder / name, go_on)
        except RegistryError as error:
            for name in layer.files:
                (folder / name).unlink(missing_ok=True)
            with self._lock:  # the layer may have other keys
                self._sources = {key: source for key, source in self._sources.items() if source[1] != layer}
            self._fail(error, "That layer is packed here.")
            return None
        self.sizes.append(sum(blob.size for blob in layer.blobs))
        return layer

    def _find(self, key: str, go_on: Callable[[], object]) -> tuple[Registry, PackedLayer] | None:
        """Find a layer by its key, and read the lists of further images until one of them has it."""
        with self._lock:
            while key not in self._sources and self._read < len(self.places) and not self._away.is_set():
                go_on()
                batch = self.places[self._read : self._read + _AT_ONCE]
                self._read += len(batch)
                for matches in side_by_side(self._layers, batch, most=_AT_ONCE):
                    self._sources = {**matches, **self._sources}
            return self._sources.get(key)

    def _layers(self, place: ReleaseLocation) -> dict[str, tuple[Registry, PackedLayer]]:
        """Return the layers of the image at a place; none if they cannot be read or verified."""
        try:
            layers = read_lists(place.registry, place.tag, self.verifier)
        except (SignatureError, RegistryError) as error:
            self._fail(error, "None of its layers is fetched.")
            return {}
        return {key: (place.registry, layer) for key, layer in layers.items()}

    def _fail(self, error: RegistryError | SignatureError, what: str) -> None:
        """Print a warning. If the registry is away or refuses the login, stop asking: each layer would wait for it."""
        answered = isinstance(error, StatusError) and error.status == 404
        if not answered and not isinstance(error, SignatureError | UnsoundError):
            with self._failing:
                first, what = not self._away.is_set(), "The other layers are packed here."
                self._away.set()
            if not first:
                return
        self.warn(f"{error.message.rstrip('.')}. {what}")
