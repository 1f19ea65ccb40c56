"""An image put together: the layers of its wheels, and above them what BuildKit builds of all the rest."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

from torchbake.build.bakefile import Job
from torchbake.build.buildx import Outcome
from torchbake.build.host_layers import Compiling, HostLayers, WheelLayer
from torchbake.build.wheel_links import LinkLayers
from torchbake.core.files import linked
from torchbake.errors import BuildError, TorchbakeError
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import Made, image_of, with_layers_below
from torchbake.render.wheel_groups import Group
from torchbake.store.layers import LayerStore, Packed
from torchbake.store.layout import Layout


class Building(Compiling, Protocol):
    """What builds one image by BuildKit: a `Bakery`."""

    def image(self, job: Job) -> Outcome: ...


@dataclass(frozen=True, kw_only=True)
class Composition:
    """How the images of a project are put together: ``host`` makes the layers of wheels.

    ``ahead`` hands an engine the lowest layers of an image, by a layout and a digest, while BuildKit still makes the
    others.
    """

    host: HostLayers
    ahead: Callable[[Layout, str], None] | None = None

    def build(self, job: Job, export: Path, building: Building) -> Outcome:
        """What became of an image that ``building`` exports into a folder, where it is put together."""
        if not job.has_wheels_apart:
            return self._exported(job, export, building)
        try:
            return self._composed(job, export, building, self.host)
        except (BuildError, OSError) as error:  # of what is packed here
            why = error.sentence if isinstance(error, BuildError) else str(error)
            return Outcome(seconds=0, digests=(), errors=(why,), tail=())

    def stop(self) -> None:
        """End what is being packed here."""
        self.host.stop()

    def close(self) -> None:
        """The same, and wait until it has ended."""
        self.host.close()

    def _composed(self, job: Job, export: Path, building: Building, host: HostLayers) -> Outcome:
        wheels = host.begin(job, building)
        ahead = Layout(folder=export.with_name(f"{export.name}-ahead"))
        pulled = host.urgent.submit(self._pull_ahead, wheels, host, ahead)
        outcome = self._exported(replace(job, below="rest"), export, building)
        if not outcome.ok:
            return outcome
        layout = Layout(folder=export)
        links = _links(job, wheels, host.store, layout)
        pulled.result()
        digest = compose(layout, outcome.digests[0], host.store, [wheel.made for wheel in wheels], links)
        return replace(outcome, digests=(digest,))

    def _exported(self, job: Job, export: Path, building: Building) -> Outcome:
        shutil.rmtree(export, ignore_errors=True)  # of a build that did not do
        return building.image(job)

    def _pull_ahead(self, wheels: Sequence[WheelLayer], host: HostLayers, layout: Layout) -> None:
        """Give an engine the layers of wheels, from the lowest up and as soon as they are there.

        Each time as an image of its own, since it unpacks one layer after the other. A failure is the business of who
        hands over the whole image.
        """
        if self.ahead is None:
            return
        with contextlib.suppress(TorchbakeError, OSError):
            layout.blobs.mkdir(parents=True, exist_ok=True)
            for ready in _steps(wheels):
                if host.stopping.is_set():
                    return
                layers = [wheel.made for wheel in ready]
                _link(layers, host.store, layout)
                manifest, config = image_of(layers)
                layout.write(manifest, config)
                self.ahead(layout, manifest.digest)


def _steps(wheels: Sequence[WheelLayer]) -> Iterator[Sequence[WheelLayer]]:
    """The lowest of these, more of them each time, as many as are packed by then."""
    number = 0
    while number < len(wheels):
        wheels[number].packed.result()
        while number < len(wheels) and wheels[number].packed.done():
            number += 1
        yield wheels[:number]


def _links(job: Job, wheels: Sequence[WheelLayer], store: LayerStore, layout: Layout) -> list[Made]:
    """The layers that follow from the files of the wheels, in the layout; waits for these. Raises BuildError."""
    packed: dict[Group, list[Packed]] = {}
    for wheel in wheels:
        if not wheel.bytecode:
            packed.setdefault(wheel.group, []).append(wheel.packed.result())
    with tempfile.TemporaryDirectory(dir=layout.folder) as work:
        writing = LinkLayers(store=store, blobs=layout.blobs, work=Path(work))
        return writing.write(packed, headers=cast(ImageSpec, job.spec).headers)


def _link(layers: Iterable[Made], store: LayerStore, layout: Layout) -> None:
    """Put layers of the store into a layout; each is a copy where the two are on different file systems."""
    for _, layer in layers:
        linked(store.path(layer.blob.digest), layout.path(layer.blob.digest))


def compose(
    export: Layout, digest: str, store: LayerStore, wheels: Sequence[Made], links: Sequence[Made]
) -> str:  # fmt: skip
    """Put layers below those of an exported image, in place; returns the digest of its new manifest.

    ``wheels`` are in the store, ``links`` in the layout. Raises BuildError.
    """
    manifest = export.find(digest)
    if manifest is None:
        raise BuildError(f"BuildKit did not export all of {digest}.", hint="Build it again.")
    config = export.path(manifest.config.digest).read_bytes()
    new, config = with_layers_below(manifest, config, [*wheels, *links])
    _link(wheels, store, export)
    export.write(new, config)
    if export.find(new.digest) is None:
        raise BuildError("the store of layers changed meanwhile.", hint="Build it again.")
    return new.digest
