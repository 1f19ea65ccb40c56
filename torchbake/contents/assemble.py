"""The inventory of an image, from the image as it is stored and the contents of its layers. Pure."""

from collections.abc import Mapping

from torchbake.contents.model import ImageLayer, Inventory
from torchbake.contents.overlay import ImageEntries
from torchbake.contents.package_owners import PackageOwners
from torchbake.contents.scan import LayerContents
from torchbake.contents.stored_image import StoredImage
from torchbake.core.secret_values import masked
from torchbake.errors import EngineError
from torchbake.oci.labels import steps_in


def assemble(name: str, image: StoredImage, contents: Mapping[str, LayerContents]) -> Inventory:
    """Return the inventory of an image. ``contents`` are those of its layers, by digest; steps have no secrets.

    Raises EngineError for an uncompressed layer that is not the one of the image's configuration.
    """
    layers = [contents[layer.digest] for layer in image.layers]
    for number, (layer, diff_id) in enumerate(zip(layers, image.diff_ids, strict=True), start=1):
        if not layer.compressed and layer.digest != diff_id:
            raise EngineError(
                f"Layer {number} of {name} is {layer.digest}, but its configuration names {diff_id}.",
                hint="Pull, build or save the image again.",
            )
    entries = ImageEntries()
    links = [entries.add(layer) for layer in layers]
    steps = steps_in(image.config)
    if len(steps) != len(layers):  # a history that leaves out layers names no layer's step
        steps = [""] * len(layers)
    return Inventory(
        name=name,
        digest=image.digest,
        platform=image.platform,
        layers=tuple(
            ImageLayer(
                digest=stored.digest,
                compressed=stored.compressed,
                size=sum(file.size for file in layer.files),
                step=masked(step, name=""),
            )
            for stored, layer, step in zip(image.layers, layers, steps, strict=True)
        ),
        files=tuple(entries.files()),
        packages=PackageOwners(entries, [*zip(layers, links, strict=True)]).packages(),
        config=image.config,
    )
