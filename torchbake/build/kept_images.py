"""The images of a project in its layout, without an engine."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.build.bakefile import BuildJob
from torchbake.build.plan import PreparedImage
from torchbake.build.result import BuildResult, up_to_date
from torchbake.core.json_text import read_json
from torchbake.engine.image import EngineImage
from torchbake.oci.labels import ID, INPUTS, labels_in
from torchbake.store.layout import Layout


@dataclass(frozen=True, kw_only=True)
class KeptImages:
    """The built images of a project in ``layout``.

    An image here has no tags, and its size is that of its compressed layers.
    """

    layout: Layout

    @property
    def ahead(self) -> Callable[[Layout, str], object] | None:
        """A function that gives an engine the lowest layers of an image during the build; None without an engine."""
        return None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Do nothing: no engine gets images from here."""
        yield

    def images(self, prepared_images: Sequence[PreparedImage]) -> dict[str, EngineImage]:
        """Return an image of each job by its reference, if possible one with the job's inputs."""
        jobs = {one.job.spec.id: one.job for one in prepared_images if isinstance(one.job, BuildJob)}
        images = self.by_id(jobs, lambda name, image: image.labels.get(INPUTS) == jobs[name].inputs)
        return {jobs[name].ref: image for name, image in images.items()}

    def by_id(self, ids: Iterable[str], is_current: Callable[[str, EngineImage], bool]) -> dict[str, EngineImage]:
        """Return an image of each ID that has one: of several the first that ``is_current``, else any."""
        images = [self._image(entry.key) for entry in self.layout.entries() if self.layout.find(entry.key)]
        images_by_id = dict[str, EngineImage]()
        for name in ids:
            own = [image for image in images if image.labels.get(ID) == name]
            current = (image for image in own if len(own) == 1 or is_current(name, image))
            images_by_id |= {name: next(current, own[0])} if own else {}
        return images_by_id

    def confirm(
        self, fresh: Sequence[tuple[BuildJob, EngineImage]], images: Mapping[str, EngineImage]
    ) -> list[BuildResult]:
        """Return the results of images that are up to date."""
        return [up_to_date(job.spec.id, job.ref, (), image) for job, image in fresh]

    def take_in(self, digest: str, export: Path) -> None:
        """Move an exported image into the layout."""
        self.layout.take(export, digest)

    def discard(self, digest: str, job: BuildJob) -> None:
        """Do nothing: no engine has the image."""

    def find(self, digests: Sequence[str]) -> str | None:
        """Return the first of these digests that is an image of the layout."""
        return next((digest for digest in digests if self.layout.find(digest)), None)

    def tag_image(self, digest: str, job: BuildJob) -> EngineImage | None:
        """Return the image of a job; None if it was removed."""
        return self._image(digest) if self.layout.find(digest) else None

    def measure(self, image: EngineImage) -> EngineImage:
        return image

    def tidy(self, results: Sequence[BuildResult]) -> None:
        """Remove the earlier images of each built job."""
        new = {result.id: result.digest for result in results if result.status == "built"}
        self.layout.tidy([entry.key for entry in self.layout.entries() if new.get(entry.name, entry.key) == entry.key])

    def _image(self, digest: str) -> EngineImage:
        manifest = self.layout.get(digest)
        labels = labels_in(read_json(self.layout.path(manifest.config.digest).read_bytes()))
        size = sum(blob.size for blob in manifest.blobs)
        return EngineImage(digest=manifest.digest, tags=(), labels=dict(labels), size_bytes=size)
