"""An image put together: what BuildKit exports, with the layers that are packed beside it, in their order."""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from torchbake.build.bakefile import Job
from torchbake.build.buildx import Outcome
from torchbake.build.host_layers import Compiling, HostLayers, HostWork, Packing, packed_layers
from torchbake.build.layer_store import LayerStore
from torchbake.build.packable import STAGES, has_folder_of_its_own
from torchbake.core.files import linked
from torchbake.errors import BuildError, TorchbakeError
from torchbake.lock.image_lock import find_lock
from torchbake.lock.lockfile import Lock
from torchbake.oci.layer_order import Made, image_of, ordered
from torchbake.oci.layout import Layout

_WHEEL = re.compile(r"COPY /layers/(\S+) (/nvidia|/pytorch) # buildkit")
# NVIDIA's libraries that are released with torch rather than with CUDA: above those that more images share.
_WITH_TORCH = re.compile(r"nvidia-(cusparselt|cudnn|nvshmem)\b")
_ABOVE_TORCH = re.compile(r"COPY (?:/links /pytorch|/headers /\S+) # buildkit")
_CUDA, _LIBRARIES, _TORCH, _BUILT, _LINKS, _COMPILERS = range(6)


class Building(Compiling, Protocol):
    """What builds one image by BuildKit: a `Bakery`."""

    def image(self, job: Job) -> Outcome: ...


@dataclass(frozen=True, kw_only=True)
class Composition:
    """How the images of a project are put together. Without ``host`` BuildKit packs all layers.

    ``lend`` puts into an export's folder what need not be packed again. ``ahead`` hands an engine the lowest layers of
    an image, by a layout and a digest, while BuildKit still makes the others.
    """

    root: Path
    host: HostLayers | None
    lend: Callable[[Path], None] = lambda export: None
    ahead: Callable[[Layout, str], None] | None = None
    say: Callable[[str], None] = lambda text: None

    def build(self, job: Job, export: Path, building: Building) -> Outcome:
        """What became of an image that ``building`` exports into a folder, where it is put together."""
        try:
            return self._build(job, export, building, self.host)
        except (BuildError, OSError) as error:  # of what is packed here: BuildKit can do without
            why = error.message if isinstance(error, BuildError) else str(error)
            self.say(f"{job.spec.id}: BuildKit makes all layers, as this machine cannot: {why}")
            return self._build(job, export, building, None)

    def stop(self) -> None:
        """End what is being packed here."""
        if self.host:
            self.host.stop()

    def close(self) -> None:
        """The same, and wait until it has ended."""
        if self.host:
            self.host.close()

    def drop_damaged(self, job: Job) -> Sequence[str]:
        """The wheels of an image whose layers were packed before, and have changed on disk: they are forgotten."""
        return self.host.drop_damaged(job) if self.host else ()

    def _build(self, job: Job, export: Path, building: Building, host: HostLayers | None) -> Outcome:
        work = host.begin(job, building) if host else None
        if host is None or work is None:
            return self._finished(job, export, self._exported(job, export, building), LayerStore(folder=export), {})
        ahead = export.with_name(f"{export.name}-ahead")
        handed = host.urgent.submit(self._hand_over, work, host, ahead)
        outcome = self._exported(work.job, export, building)
        if not outcome.ok:
            return outcome
        layers = packed_layers(work.layers)
        handed.result()
        return self._finished(job, export, outcome, host.store, layers)

    def _exported(self, job: Job, export: Path, building: Building) -> Outcome:
        shutil.rmtree(export, ignore_errors=True)  # of a build that did not do
        self.lend(export)
        return building.image(job)

    def _hand_over(self, work: HostWork, host: HostLayers, folder: Path) -> None:
        """Give an engine what is packed here, from the lowest layer up and as soon as it is there.

        Each time as an image of its own, since it unpacks one layer after the other. A failure is the business of who
        hands over the whole image.
        """
        lock = find_lock(self.root, work.job.spec)
        if self.ahead is None or lock is None:
            return
        rank, layout = rank_by(lock), Layout(folder=folder)
        wheels = sorted(work.layers, key=lambda wheel: (rank(wheel.instead) or 0, wheel.instead, wheel.bytecode))
        with contextlib.suppress(TorchbakeError, OSError):
            layout.blobs.mkdir(parents=True, exist_ok=True)
            for lower, new in _steps(wheels):
                if host.stopping.is_set():
                    return
                _link(packed_layers(new), host.store, layout)
                self.ahead(layout, _lowest(layout, packed_layers(lower)))

    def _finished(
        self, job: Job, export: Path, outcome: Outcome, store: LayerStore, layers: Mapping[str, Sequence[Made]]
    ) -> Outcome:
        lock = find_lock(self.root, job.spec) if outcome.ok else None
        if lock is None:
            return outcome
        digest = compose(Layout(folder=export), outcome.digests[0], store, layers, rank_by(lock))
        return replace(outcome, digests=(digest,))


def rank_by(lock: Lock) -> Callable[[str], int | None]:
    """Where a layer stands, by the command that made it: what more images have in common is lower.

    None for what is not a wheel's: the base, Debian's packages and all that stands on them.
    """
    shared = {pin.name: pin for stage in STAGES for pin in lock.layers[stage.name]}

    def rank(command: str) -> int | None:
        wheel = _WHEEL.fullmatch(command)
        if wheel is None:
            return _LINKS if _ABOVE_TORCH.fullmatch(command) else None
        if wheel[1] not in shared:
            return _COMPILERS
        pin = shared[wheel[1]]
        if has_folder_of_its_own(pin):
            return _BUILT  # by BuildKit: above the rest, which an engine can have before
        if wheel[2] == "/pytorch":
            return _TORCH
        return _LIBRARIES if _WITH_TORCH.match(wheel[1]) else _CUDA

    return rank


def _steps(wheels: Packing) -> Iterator[tuple[Packing, Packing]]:
    """The lowest of these, more of them each time, as many as are packed by then; and which of them are new."""
    number = 0
    while number < len(wheels):
        before = number
        wheels[number].packed.result()
        while number < len(wheels) and wheels[number].packed.done():
            number += 1
        yield wheels[:number], wheels[before:number]


def _link(layers: Mapping[str, Sequence[Made]], store: LayerStore, layout: Layout) -> None:
    """Put layers of the store into a layout; each is a copy where the two are on different file systems."""
    for _, layer in chain(*layers.values()):
        linked(store.path(layer.blob.digest), layout.path(layer.blob.digest))


def _lowest(layout: Layout, layers: Mapping[str, Sequence[Made]]) -> str:
    """The digest of an image of these layers of a layout alone, from the lowest up. Others stand on it as they are."""
    manifest, config = image_of([*chain(*layers.values())])
    layout.write(manifest, config)
    return manifest.digest


def compose(
    export: Layout,
    digest: str,
    store: LayerStore,
    layers: Mapping[str, Sequence[Made]],
    rank: Callable[[str], int | None],
) -> str:
    """Put an exported image together in place; returns the digest of its new manifest. Raises BuildError."""
    manifest = export.find(digest)
    if manifest is None:
        raise BuildError(f"BuildKit did not export all of {digest}.", hint="Build it again.")
    new, config = ordered(manifest, export.path(manifest.config.digest).read_bytes(), rank, layers)
    _link(layers, store, export)
    export.write(new, config)
    if export.find(new.digest) is None:
        raise BuildError("the store of layers changed meanwhile.", hint="Build it again.")
    return new.digest
