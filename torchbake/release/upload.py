"""Send an image's content to a repository, each blob once and only if the registry lacks it."""

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
from torchbake.release.candidate import Candidate, Parcel, Supply, TransferCount
from torchbake.release.shared_layers import list_of
from torchbake.store.layers import LayerStore

_UPLOADS = 3  # in parallel
Tell = Callable[[str], None]
Count = Callable[[Blob, int], None]  # gets the sent bytes of a blob, negative if they must be sent again


class Delivery:
    """Sends content to one repository, without tags. Other repositories (``mounts``) may have layers already."""

    def __init__(self, registry: Registry, mounts: Sequence[str]) -> None:
        self._registry, self._mounts = registry, mounts

    def send(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Parcel:
        """Send all blobs of the image's manifest. Raises RegistryError and EngineError."""

        def need(digest: str) -> bool:
            return supply.needs(digest) or self._registry.size_of(digest) is None

        with tempfile.TemporaryDirectory(prefix="torchbake-publish-") as folder:
            tell("reading the image")
            content = supply.source.take_out(candidate.digest, Path(folder), need)
            if content.manifest.digest != candidate.digest:
                raise EngineError(f"{candidate.digest} was tested, but the engine hands out {content.manifest.digest}.")
            built = content.built_content.manifest.digest if content.built_content else ""
            if candidate.tested not in ("", candidate.digest, built):
                tell("comparing its layers with the tested ones")
                for image in content.images:
                    check_tested(image, candidate.tested)
            tell("sending layers")
            with ThreadPoolExecutor(_UPLOADS + 1) as pool:
                future = pool.submit(self._describe, content, supply)
                shared = pool.submit(self._share, content, supply.layers)
                # The largest first, as it takes longest.
                largest_first = sorted(content.blobs.items(), key=lambda item: -item[0].size)
                sizes = list(pool.map(lambda item: self._upload(item[0], item[1], count), largest_first))
            for image in content.variants:
                self._registry.put(image.manifest, image.manifest.digest)
        images = tuple(image.manifest for image in content.images)
        whole = sum(blob.size for blob in {blob for image in images for blob in image.blobs})
        return Parcel(
            manifest=content.manifest,
            images=images,
            artifacts=tuple(future.result()),
            count=TransferCount(bytes=sum(filter(None, sizes)), layers=len(sizes) - sizes.count(None), whole=whole),
            shared=shared.result(),
        )

    def _describe(self, content: Content, supply: Supply) -> Sequence[Artifact]:
        """Make the artifacts of the image, and send their texts while layers are sent."""
        artifacts = supply.describe(content)
        for artifact in artifacts:
            send(self._registry, artifact.text.encode())
        return artifacts

    def _share(self, content: Content, store: LayerStore | None) -> Artifact | None:
        """Make the list of the images' packed layers, and send the files of these layers that are in no image."""
        if store is None or not store.folder.is_dir():
            return None
        with store.in_use():
            shared = list_of((image.manifest for image in content.images), store)
            for blob in shared.blobs if shared else ():
                if not self._registry.has(blob):
                    self._registry.upload(blob, store.path(blob.digest))
        return shared

    def _upload(self, blob: Blob, path: Path, count: Count) -> int | None:
        """Send a blob and return its size; None if the registry has it."""
        if self._registry.has(blob) or any(self._registry.mount(blob, source) for source in self._mounts):
            return None
        if not path.exists():
            message = f"{self._registry.repository} had {blob.digest}, and no longer has it."
            raise RegistryError(message, hint="Publish again.")
        self._registry.upload(blob, path, partial(count, blob))
        return blob.size
