"""The images of a project in an engine: their tags, all or none, and their unpacked sizes."""

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from docker.errors import ImageNotFound

from torchbake.build.bakefile import BuildJob
from torchbake.build.kept_images import KeptImages
from torchbake.build.plan import PreparedImage
from torchbake.build.result import BuildResult, Status, read_sizes, up_to_date
from torchbake.core.files import write_text
from torchbake.core.json_text import read_json
from torchbake.engine.client import Engine
from torchbake.engine.image import EngineImage, holds
from torchbake.engine.image_check import check_image
from torchbake.engine.loopback import Loopback
from torchbake.errors import BuildError, EngineError, TorchbakeError
from torchbake.store.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Store(KeptImages):
    """The images of a project in an engine, which gets them from ``layout``.

    ``sizes`` is a file with sizes by digest: a request to the engine takes 10 ms an image.
    """

    engine: Engine
    sizes: Path
    say: Callable[[str], None] = lambda text: None

    @cached_property
    def loopback(self) -> Loopback:
        """The images that the engine pulls from this process."""
        return Loopback(self.engine, self.say)

    @property
    def ahead(self) -> Callable[[Layout, str], object] | None:
        """A function that lets the engine pull an image of the lowest layers, so that it unpacks them in parallel."""
        return self.loopback.pull

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve images to the engine until the block ends."""
        loopback = self.loopback  # created before the threads that use it
        try:
            yield
        finally:
            loopback.close()

    def images(self, prepared_images: Sequence[PreparedImage]) -> dict[str, EngineImage]:
        """Return all images of the engine by their references."""
        return self.engine.images()

    def find(self, digests: Sequence[str]) -> str | None:
        """Return the engine's ID of the first of these images of the layout that the engine has."""
        return self.engine.find(map(self.id_of, digests))

    def tag(self, digest: str, job: BuildJob) -> None:
        """Set all tags of a job, without interruption. Raises ImageNotFound if the engine does not have the image."""
        manifest = self.layout.find(digest)
        with _uninterrupted():
            self.engine.tag(digest, job.spec.repository, job.tags)
            self.loopback.release(manifest.digest if manifest else digest)

    def tag_image(self, digest: str, job: BuildJob) -> EngineImage | None:
        """Set a job's tags, and return the image in the engine's list; None if it is not listed.

        `docker system prune` removes images without a tag. A pull skips blobs that the engine has. If `docker buildx
        prune` removes such a blob during the pull, the image runs but is not listed. In both cases the whole image is
        sent again.
        """
        with contextlib.suppress(ImageNotFound):
            self.tag(digest, job)
            if image := self.engine.images().get(job.ref):
                return image
        with contextlib.suppress(ImageNotFound, TorchbakeError):
            self.engine.load(self.layout.archive(digest))
            self.tag(digest, job)
            return self.engine.images().get(job.ref)
        return None

    def confirm(
        self, fresh: Sequence[tuple[BuildJob, EngineImage]], images: Mapping[str, EngineImage]
    ) -> list[BuildResult]:
        """Set missing tags of images that are up to date, and return their results."""
        results = []
        sizes = self._measure([image for _, image in fresh])
        for job, image in fresh:
            moved = [tag for tag in job.references if not holds(images, tag, image)]
            if moved and self.tag_image(image.digest, job) is None:
                raise EngineError(f"The engine has lost {job.ref}.", hint="Run the command again.")
            measured = replace(image, size_bytes=sizes[image.digest])
            results.append(up_to_date(job.spec.id, job.ref, job.references, measured, moved_tags=len(moved)))
        return results

    def take_in(self, digest: str, export: Path) -> None:
        """Move an exported image into the layout, and bring it into the engine. Raises EngineError."""
        super().take_in(digest, export)
        self.bring(self.layout, digest)

    def keep(self, layout: Layout, digest: str, repository: str, tag: str) -> None:
        """Bring an image of a layout into the engine under a name, unless it is there. Raises EngineError."""
        image = self._id(layout, digest)
        if self.engine.find([f"{repository}:{tag}"]) == image:
            return
        self.bring(layout, digest)
        try:
            self.engine.tag(image, repository, [tag])
        except ImageNotFound:
            raise EngineError(f"The engine has lost {digest}.", hint="Run the command again.") from None
        self.loopback.release(digest)

    def id_of(self, digest: str) -> str:
        """Return the engine's ID of an image of the layout; for another image the digest itself."""
        return self._id(self.layout, digest)

    def _id(self, layout: Layout, digest: str) -> str:
        manifest = layout.find(digest)
        return self.engine.id_of(manifest) if manifest else digest

    def discard(self, digest: str, job: BuildJob) -> None:
        """Remove a job's tags from an image that the engine cannot use, and the image if it has no other name."""
        digest = self.id_of(digest)
        with contextlib.suppress(EngineError):
            names = self.engine.names(digest)
            self.engine.remove(set(names or ()) & set(job.references))
            if names is not None and not self.engine.names(digest):
                self.engine.remove([digest])

    def bring(self, layout: Layout, digest: str) -> str:
        """Let the engine pull an image of a layout, or else load it, unless it can use the image, and return its ID.

        Raises EngineError if the engine cannot use the image, and BuildError if it is not in the layout.
        """
        image = self.engine.id_of(layout.get(digest))
        present = self.engine.find([image]) is not None
        if present:
            with contextlib.suppress(EngineError):
                self._check(layout, digest)
                return image
        refusal = EngineError("The engine did not take the image.")
        for pull in (True, False):
            try:
                pulled = pull and self.loopback.pull(layout, digest)
                self._check(layout, digest, () if pulled else self.engine.load(layout.archive(digest)))
                return image
            except EngineError as error:
                refusal = error
            self.loopback.release(digest)
            if not present:
                with contextlib.suppress(EngineError):
                    self.engine.remove([image])
        raise refusal

    def _check(self, layout: Layout, digest: str, messages: Sequence[str] = ()) -> None:
        """Check that the engine can use an image of a layout."""
        manifest = layout.get(digest)
        config = read_json(layout.path(manifest.config.digest).read_bytes())
        image = self.engine.id_of(manifest)
        check_image(self.engine, image, layers=config["rootfs"]["diff_ids"], messages=messages)

    def tidy(self, results: Sequence[BuildResult]) -> None:
        """Remove packed layers of images that the engine does not have."""
        self.layout.tidy({image.digest for image in self.engine.images().values()})

    def measure(self, image: EngineImage) -> EngineImage:
        """Return an image with its unpacked size. The engine's figure includes the packed layers."""
        return replace(image, size_bytes=self._measure([image])[image.digest])

    def _measure(self, images: Sequence[EngineImage]) -> dict[str, int]:
        known_names = read_sizes(self.sizes)
        new = {image.digest: self._size(image) for image in images if image.digest not in known_names}
        if new:
            with contextlib.suppress(OSError):  # only a cache
                write_text(self.sizes, json.dumps(known_names | new, indent=2) + "\n")
        return known_names | new

    def _size(self, image: EngineImage) -> int:
        # The engine may have lost the unpacked layers, or have removed the image by now.
        with contextlib.suppress(EngineError, ImageNotFound):
            return self.engine.size_on_disk(image.digest)
        return image.size_bytes


def result_of(
    job: BuildJob, status: Status, reason: str, image: EngineImage | None = None, seconds: float = 0.0
) -> BuildResult:
    """Return the result of a job. Without an image it has no digest and size; outside of an engine it has no tags."""
    return BuildResult(
        id=job.spec.id,
        ref=job.ref,
        tags=job.references if image and image.tags else (),
        status=status,
        reason=reason,
        digest=image.digest if image else None,
        size_bytes=image.size_bytes if image else None,
        seconds=round(seconds, 2),
        exit_code=BuildError.exit_code if status == "failed" else 0,
    )


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM while an image's tags are set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
