"""The images and tags of a repository, read when they are needed. Nothing here changes the repository."""

import time
from collections.abc import Collection

from torchbake.errors import RegistryError
from torchbake.oci.labels import labels_in
from torchbake.oci.manifest import Manifest, UnsoundError
from torchbake.oci.tag_names import HOLD_SUFFIX, artifact_tag, record_tag, revisions_of, taken_of
from torchbake.oci.variants import compression_of
from torchbake.registry.client import Registry
from torchbake.registry.variants import images_by_platform
from torchbake.release.decide import Standing, TagHolder
from torchbake.release.platforms import joined_labels
from torchbake.release.record import record_of

_LOOKS, _BETWEEN_LOOKS = 5, 0.2  # attempts to read a tag that is listed but not served, and seconds between them


class Holdings:
    """One repository. Safe for many threads. Every method may raise RegistryError."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._images: dict[str, TagHolder] = {}

    def standing(self, name: str, tags: Collection[str]) -> Standing:
        """Read the revisions of the image with the own tag ``name``, and its rolling ``tags``."""
        there = frozenset(self._registry.tags())
        revisions, last_revision = revisions_of(name, there), taken_of(name, there)
        newest = revisions[-1] if revisions else None
        image = self._look_up(str(newest)) if newest else None
        stored = None
        if image and record_tag(str(newest)) in there:
            stored = record_of(self._registry, str(newest), image.digest)
        # Earlier versions wrote this state after the tags had moved, and no note of a rollback.
        moved = stored is not None and stored.record.state == "released"
        return Standing(
            newest_tag=newest,
            newest=image,
            recorded=stored is not None,
            rolling=self.rolling(tags, there),
            went_back=moved or artifact_tag(str(newest), HOLD_SUFFIX) in there,
            last_revision=last_revision[-1].revision if last_revision else -1,
        )

    def rolling(self, tags: Collection[str], there: Collection[str]) -> dict[str, TagHolder | None]:
        """Read the image that each tag points at. All tags of the repository are ``there``."""
        return {tag: self._look_up(tag) if tag in there else None for tag in tags}

    def look(self, tag: str) -> TagHolder | None:
        """Read the image that a tag points at; None if there is no such tag."""
        digest = self._registry.digest(tag)
        return self.image(digest) if digest else None

    def image(self, digest: str) -> TagHolder | None:
        """Return the image of a digest, or None. An index of images that are not one image has no labels."""
        if digest not in self._images:
            manifest = self._registry.manifest(digest)
            if manifest is None:
                return None
            self._images[digest] = self._read(manifest)
        return self._images[digest]

    def _read(self, manifest: Manifest) -> TagHolder:
        try:
            platforms = images_by_platform(self._registry, manifest)
            configs, labels = list[str](), dict[str, dict[str, str]]()
            for platform, variants in platforms.items():
                (config,) = {image.config.digest for image in variants}
                configs.append(config)
                labels[platform] = labels_in(self._registry.config(variants[0]))
            images = [image for variants in platforms.values() for image in variants]
            return TagHolder(
                digest=manifest.digest, labels=joined_labels(labels), compression=compression_of(images),
                config=configs[0] if len(configs) == 1 else "",
            )  # fmt: skip
        except (UnsoundError, ValueError):
            return TagHolder(digest=manifest.digest, labels={})

    def manifest(self, digest: str) -> Manifest:
        manifest = self._registry.manifest(digest)
        if manifest is None:
            raise RegistryError(f"{self._registry.repository} does not hold {digest}.")
        return manifest

    def _look_up(self, tag: str) -> TagHolder:
        """Read the image that a listed tag points at. Reading is repeated, as somebody may be writing the tag."""
        for _ in range(_LOOKS):
            holder = self.look(tag)
            if holder:
                return holder
            time.sleep(_BETWEEN_LOOKS)
        raise RegistryError(f"{self._registry.repository} lists the tag {tag}, but does not serve it.")
