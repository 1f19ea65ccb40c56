"""The list of an image's packed layers by their keys, attached to the image. Other machines fetch layers by this list.

An image has the layers of wheels, but neither their keys nor the headers and modules that are stored apart. An artifact
has both: its text is the list, and its other blobs are these files. A reader first verifies the signatures of the image
and of the list.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from torchbake.core.json_text import read_object
from torchbake.errors import SignatureError
from torchbake.oci.manifest import DIGEST, Manifest, UnsoundError
from torchbake.registry.artifact import Artifact, subject_of, text_of
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier
from torchbake.registry.referrers import referrers_of
from torchbake.store.layers import LayerStore, PackedLayer, read_packed

LAYERS_TYPE = "application/vnd.torchbake.layers.v1+json"


def list_of(images: Iterable[Manifest], store: LayerStore) -> Artifact | None:
    """Make the list of the layers of wheels that images and a store have; None if there are none."""
    keys: dict[PackedLayer, list[str]] = {}
    for key, layer in store.of_layers({blob.digest for image in images for blob in image.layers}).items():
        if layer.names:  # the layer of a step has no names, and every build makes it
            keys.setdefault(layer, []).append(key)
    if not keys:
        return None
    apart = {blob: None for layer in keys for blob in layer.blobs if blob != layer.layer.blob}
    text = json.dumps({"layers": [{"keys": matches, **asdict(layer)} for layer, matches in keys.items()]}) + "\n"
    return Artifact(name="layers", media_type=LAYERS_TYPE, text=text, blobs=tuple(apart))


def read_lists(registry: Registry, tag: str, verifier: Verifier) -> Mapping[str, PackedLayer]:
    """Read the packed layers of the image under a tag, by their keys; none if the tag or a list does not exist.

    For an index they are the layers of all its platforms, whose images have the lists.
    Raises SignatureError if a signature does not verify, UnsoundError if a list cannot be read, and RegistryError.
    """
    image = registry.manifest(tag)
    layers: dict[str, PackedLayer] = {}
    if image is None:
        return layers
    where = f"{registry.repository}:{tag}"
    _verify(where, registry, image.digest, verifier)
    subjects = (image.digest, *(blob.digest for blob, _ in image.images))  # an image alone has no images
    for manifest in (one for subject in subjects for one in _lists(registry, subject)):
        name = f"the list of layers of {where}"
        _verify(name, registry, manifest.digest, verifier)
        layers |= _parse(text_of(registry, manifest, manifest.digest), name)
    return layers


def _verify(name: str, registry: Registry, digest: str, verifier: Verifier) -> None:
    problem = verifier.problem(registry.repository, digest)
    if problem:
        reason = f"cannot be verified: {problem.sentence}" if problem.unknown else f"is {problem.reason}"
        raise SignatureError(f"{name} {reason.rstrip('.')}")


def _lists(registry: Registry, image: str) -> Iterator[Manifest]:
    """Find the lists among the artifacts of an image. They are not verified."""
    for digest in sorted(referrers_of(registry, image)):
        manifest = registry.manifest(digest)
        if manifest and manifest.content.get("artifactType") == LAYERS_TYPE and subject_of(manifest) == image:
            yield manifest


def _parse(data: bytes, name: str) -> dict[str, PackedLayer]:
    layers = dict[str, PackedLayer]()
    try:
        for entry in read_object(data)["layers"]:
            layer = read_packed(entry)
            layers |= {str(key): layer for key in entry["keys"] if DIGEST.fullmatch(str(key))}
    except (ValueError, LookupError, TypeError):
        raise UnsoundError(f"{name} cannot be read") from None
    return layers
