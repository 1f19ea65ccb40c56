"""Brings an image's content to a repository: what is not there, and nothing twice."""

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from torchbake.engine.export import Content, check_tested
from torchbake.errors import EngineError, RegistryError
from torchbake.oci.manifest import Blob
from torchbake.registry.artifact import Artifact, send
from torchbake.registry.client import Registry
from torchbake.release.candidate import Candidate, Parcel, Sent, Supply
from torchbake.release.shared_layers import list_of
from torchbake.store.layers import LayerStore

_UPLOADS = 3  # side by side
Tell = Callable[[str], None]
Count = Callable[[Blob, int], None]  # bytes of a blob that went; a minus where they must go again


class Delivery:
    """To one repository; ``mounts`` are others of the registry that may have layers already. No tag is set here."""

    def __init__(self, registry: Registry, mounts: Sequence[str]) -> None:
        self._registry, self._mounts = registry, mounts

    def send(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Parcel:
        """All that the image's manifest needs. Raises RegistryError and EngineError."""
        with tempfile.TemporaryDirectory(prefix="torchbake-publish-") as folder:
            tell("reading the image")
            content = supply.source.take_out(
                candidate.digest, Path(folder), lambda digest: supply.needs(digest) or not self._there(digest)
            )
            if content.manifest.digest != candidate.digest:
                raise EngineError(f"{candidate.digest} was tested, but the engine hands out {content.manifest.digest}.")
            built = content.built.manifest.digest if content.built else ""
            if candidate.tested not in ("", candidate.digest, built):
                tell("comparing its layers with the tested ones")
                for image in content.images:
                    check_tested(image, candidate.tested)
            tell("sending layers")
            with ThreadPoolExecutor(_UPLOADS + 1) as pool:
                described = pool.submit(self._describe, content, supply)
                shared = pool.submit(self._share, content, supply.layers)
                # The largest first: it is what all wait for in the end.
                largest_first = sorted(content.blobs.items(), key=lambda item: -item[0].size)
                needed = list(pool.map(lambda item: self._upload(item[0], item[1], count), largest_first))
            for image in content.variants:
                self._registry.put(image.manifest, image.manifest.digest)
        sizes = [blob.size for (blob, _), sent in zip(largest_first, needed, strict=True) if sent]
        images = tuple(image.manifest for image in content.images)
        return Parcel(
            manifest=content.manifest,
            images=images,
            artifacts=tuple(described.result()),
            sent=Sent(
                bytes=sum(sizes), layers=len(sizes), whole=sum(blob.size for one in images for blob in one.layers)
            ),
            shared=shared.result(),
        )

    def _describe(self, content: Content, supply: Supply) -> Sequence[Artifact]:
        """What will be attached to the image; the texts are on their way while layers are."""
        artifacts = supply.describe(content)
        for artifact in artifacts:
            send(self._registry, artifact.text.encode())
        return artifacts

    def _share(self, content: Content, store: LayerStore | None) -> Artifact | None:
        """Make the list of the packed layers of images; send the files of these layers that no image has."""
        if store is None or not store.folder.is_dir():
            return None
        with store.in_use():
            shared = list_of((image.manifest for image in content.images), store)
            for blob in shared.blobs if shared else ():
                if not self._registry.has(blob):
                    self._registry.upload(blob, store.path(blob.digest))
        return shared

    def _there(self, digest: str) -> bool:
        return self._registry.size_of(digest) is not None

    def _upload(self, blob: Blob, path: Path, count: Count) -> bool:
        """Whether it had to be sent."""
        if self._registry.has(blob) or any(self._registry.mount(blob, source) for source in self._mounts):
            return False
        if not path.exists():
            raise RegistryError(f"{self._registry.repository} had {blob.digest}, and no longer has it.", hint="Again.")
        self._registry.upload(blob, path, partial(count, blob))
        return True
