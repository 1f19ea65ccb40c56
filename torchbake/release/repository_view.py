"""What a repository of a registry holds of our images, asked for when it is needed. Nothing here changes it."""

import time
from collections.abc import Collection

from torchbake.errors import RegistryError
from torchbake.oci.labels import labels_in
from torchbake.oci.manifest import Manifest, UnsoundError
from torchbake.oci.tag_names import HELD, artifact_tag, record_tag, revisions_of, taken_of
from torchbake.oci.variants import compression_of
from torchbake.registry.client import Registry
from torchbake.registry.variants import images_of
from torchbake.release.decide import Held, Standing
from torchbake.release.record import Record, record_of

_LOOKS, _BETWEEN_LOOKS = 5, 0.2  # at a tag that is listed and not served; seconds


class Holdings:
    """One repository. Safe for many threads. Everything may raise RegistryError."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._images: dict[str, Held] = {}

    def standing(self, name: str, tags: Collection[str]) -> Standing:
        """What there is of the image whose own tag is ``name``."""
        there = frozenset(self._registry.tags())
        revisions, taken = revisions_of(name, there), taken_of(name, there)
        newest = revisions[-1] if revisions else None
        image = self._listed(str(newest)) if newest else None
        record = self._record(str(newest), image) if image and record_tag(str(newest)) in there else None
        # Earlier versions said in a record that its tags had moved: who moved them since went back without a note.
        moved = record is not None and record.state == "released"
        return Standing(
            newest_tag=newest,
            newest=image,
            recorded=record is not None,
            rolling=self.rolling(tags, there),
            went_back=moved or artifact_tag(str(newest), HELD) in there,
            taken=taken[-1].revision if taken else -1,
        )

    def rolling(self, tags: Collection[str], there: Collection[str]) -> dict[str, Held | None]:
        """What each of the tags points at; ``there``: all tags of the registry."""
        return {tag: self._listed(tag) if tag in there else None for tag in tags}

    def look(self, tag: str) -> Held | None:
        """The image under a tag; None where there is none."""
        digest = self._registry.digest(tag)
        return self.image(digest) if digest else None

    def image(self, digest: str) -> Held | None:
        """Return the image of a digest, or None. An index of images with different configs has no labels."""
        if digest not in self._images:
            manifest = self._registry.manifest(digest)
            if manifest is None:
                return None
            self._images[digest] = self._read(manifest)
        return self._images[digest]

    def _read(self, manifest: Manifest) -> Held:
        try:
            images = tuple(images_of(self._registry, manifest))
            (config,) = {image.config.digest for image in images}
            labels = labels_in(self._registry.config(images[0]))
            return Held(digest=manifest.digest, labels=labels, config=config, compression=compression_of(images))
        except (UnsoundError, ValueError):
            return Held(digest=manifest.digest, labels={})

    def manifest(self, digest: str) -> Manifest:
        found = self._registry.manifest(digest)
        if found is None:
            raise RegistryError(f"{self._registry.repository} does not hold {digest}.")
        return found

    def _record(self, tag: str, image: Held) -> Record | None:
        found = record_of(self._registry, tag, image.digest)
        return found.record if found else None

    def _listed(self, tag: str) -> Held:
        """The image under a tag that is there; somebody may be writing it just now, so it is asked for again."""
        for _ in range(_LOOKS):
            held = self.look(tag)
            if held:
                return held
            time.sleep(_BETWEEN_LOOKS)
        raise RegistryError(f"{self._registry.repository} lists the tag {tag}, but does not serve it.")
