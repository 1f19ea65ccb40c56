"""Compose an image: the layers of its wheels, and above them the layers of its build."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

from torchbake.build.bakefile import BuildJob
from torchbake.build.buildx import BuildOutcome, sentence_of
from torchbake.build.host_layers import Compiling, HostLayers, WheelLayer
from torchbake.build.wheel_links import LinkLayers
from torchbake.core.files import linked
from torchbake.errors import BuildError, TorchbakeError
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.layer_order import CommandLayer, image_of, with_layers_below
from torchbake.render.template_effect import REST
from torchbake.render.wheel_groups import WheelGroup
from torchbake.store.layers import LayerStore, PackedLayer
from torchbake.store.layout import Layout


class Building(Compiling, Protocol):
    """The builder of one image: a `Bakery`."""

    def image(self, job: BuildJob) -> BuildOutcome: ...

    def above(self, job: BuildJob, whole: Layout, digest: str) -> BuildOutcome: ...


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Composes the images of a project. ``host`` packs the layers of wheels.

    ``ahead`` gives an engine the lowest layers of an image, by a layout and a digest, during the build.
    """

    host: HostLayers
    ahead: Callable[[Layout, str], object] | None = None

    def build(self, job: BuildJob, export: Path, building: Building) -> BuildOutcome:
        """Build an image by ``building``, which exports it into a folder, and compose it there."""
        shutil.rmtree(export, ignore_errors=True)  # of a failed attempt
        if job.lock is None or job.effect.wheels == "inside":
            return building.image(job)
        try:
            if job.effect.wheels == "apart":
                return self._compose(replace(job, below=REST), export, building)
            return self._build_above(job, export, building)
        except (BuildError, OSError) as error:  # a wheel cannot be packed
            return BuildOutcome(errors=(sentence_of(error),))

    def stop(self) -> None:
        """Stop packing."""
        self.host.stop()

    def close(self) -> None:
        """Stop packing, and wait for its end."""
        self.host.close()

    def _build_above(self, job: BuildJob, export: Path, building: Building) -> BuildOutcome:
        """Compose the image without the steps of the project's template, and then build these on top of it."""
        outcome = self._compose(replace(job, target=REST), export, building)
        if not outcome.ok:
            return outcome
        whole = Layout(folder=export.with_name(f"{export.name}-whole"))
        shutil.rmtree(whole.folder, ignore_errors=True)  # of a failed attempt
        whole.take(export, outcome.digests[0])
        try:
            return building.above(job, whole, outcome.digests[0])
        finally:
            shutil.rmtree(whole.folder, ignore_errors=True)

    def _compose(self, job: BuildJob, export: Path, building: Building) -> BuildOutcome:
        wheels, store = self.host.begin(job, building), self.host.store
        ahead = Layout(folder=export.with_name(f"{export.name}-ahead"))
        future = self.host.urgent.submit(self._pull_ahead, wheels, ahead, job.spec.base.architecture)
        outcome = building.image(job)
        if not outcome.ok:
            return outcome
        layout = Layout(folder=export)
        links = _links(job, wheels, store, layout)
        future.result()
        digest = compose(layout, outcome.digests[0], store, [wheel.made_layer for wheel in wheels], links)
        return replace(outcome, digests=(digest,))

    def _pull_ahead(self, wheels: Sequence[WheelLayer], layout: Layout, architecture: str) -> None:
        """Give an engine the layers of wheels, from the lowest up, as soon as they are packed.

        An engine unpacks one layer after the other, so it pulls a new image for each step. Failures are ignored: the
        engine gets the whole image later.
        """
        if self.ahead is None:
            return
        with contextlib.suppress(TorchbakeError, OSError):
            layout.blobs.mkdir(parents=True, exist_ok=True)
            for ready in _steps(wheels):
                if self.host.stopping.is_set():
                    return
                layers = [wheel.made_layer for wheel in ready]
                _link(layers, self.host.store, layout)
                manifest, config = image_of(layers, architecture)
                layout.write(manifest, config)
                self.ahead(layout, manifest.digest)


def _steps(wheels: Sequence[WheelLayer]) -> Iterator[Sequence[WheelLayer]]:
    """Yield the lowest wheels that are packed, and again with more of them, until all are."""
    number = 0
    while number < len(wheels):
        wheels[number].packed.result()
        while number < len(wheels) and wheels[number].packed.done():
            number += 1
        yield wheels[:number]


def _links(job: BuildJob, wheels: Sequence[WheelLayer], store: LayerStore, layout: Layout) -> list[CommandLayer]:
    """Write the layers of links to the wheels' files into a layout, when all wheels are packed. Raises BuildError."""
    packed: dict[WheelGroup, list[PackedLayer]] = {}
    for wheel in wheels:
        if not wheel.bytecode:
            packed.setdefault(wheel.group, []).append(wheel.packed.result())
    with tempfile.TemporaryDirectory(dir=layout.folder) as work:
        writing = LinkLayers(store=store, blobs=layout.blobs, work=Path(work))
        return writing.write(packed, headers=cast(ImageSpec, job.spec).headers)


def _link(layers: Iterable[CommandLayer], store: LayerStore, layout: Layout) -> None:
    """Put layers of the store into a layout: hard links, or copies on another file system."""
    for _, layer in layers:
        linked(store.path(layer.blob.digest), layout.path(layer.blob.digest))


def compose(
    export: Layout, digest: str, store: LayerStore, wheels: Sequence[CommandLayer], links: Sequence[CommandLayer]
) -> str:  # fmt: skip
    """Add layers below the layers of an exported image, and return the digest of its new manifest.

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
        raise BuildError("the store of layers changed during the build.", hint="Build it again.")
    return new.digest
