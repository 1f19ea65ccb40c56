"""The artifacts that are attached to an image in a registry: its SBOM and its provenance."""

from functools import partial
from pathlib import Path

from torchbake.engine.export import Content, ImageSource
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.labels import VERSION_LABEL, labels_in
from torchbake.oci.manifest import Manifest
from torchbake.oci.tag_names import PROVENANCE, SBOM
from torchbake.registry.artifact import Artifact
from torchbake.release.candidate import Supply
from torchbake.release.provenance import provenance_text
from torchbake.sbom.image_scan import contents_in, sbom_of_contents, unread
from torchbake.store.layers import LayerStore

SBOM_TYPE = "application/vnd.cyclonedx+json"
_CREATED = "org.opencontainers.image.created"


def supply_of(name: str, source: ImageSource, cache: Path, layers: Path) -> Supply:
    """Return the source of images of the repository ``name``, with the function that describes them.

    The packages of each layer are cached in ``cache``. A signed release lists the packed layers of ``layers``.
    """
    return Supply(
        source=source,
        describe=partial(describe, name, cache=cache),
        needs=unread(cache),
        layers=LayerStore(folder=layers),
    )


def describe(name: str, content: Content, cache: Path) -> tuple[Artifact, ...]:
    """Make the SBOM and the provenance, equal bytes for equal images. Raises EngineError if a layer is unreadable."""
    image = content.images[0]
    config = image.manifest.config
    labels = labels_in(Manifest(data=image.path(config).read_bytes(), media_type=config.media_type).content)
    contents = contents_in(content.built_content or content, cache)
    version, created = labels.get(VERSION_LABEL, ""), labels.get(_CREATED)
    sbom = sbom_of_contents(content.manifest, contents, name=name, version=version, created=created)
    provenance = provenance_text(name, content.manifest.digest, labels)
    return (
        Artifact(name=SBOM, media_type=SBOM_TYPE, text=sbom),
        Artifact(name=PROVENANCE, media_type=MEDIA_TYPE, text=provenance),
    )
