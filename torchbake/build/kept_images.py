"""Our images in the project's layout, with no engine: which of them are up to date, and what is removed."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.build.bakefile import Job
from torchbake.build.plan import Prepared
from torchbake.build.result import Result, up_to_date
from torchbake.core.json_text import read_json
from torchbake.engine.image import Image
from torchbake.oci.labels import ID, INPUTS, labels_in
from torchbake.store.layout import Layout


@dataclass(frozen=True, kw_only=True)
class KeptImages:
    """The built images of a project in ``layout``.

    An image here has no tags, and its size is that of its compressed layers.
    """

    layout: Layout

    @property
    def ahead(self) -> Callable[[Layout, str], None] | None:
        """A function that takes the lowest layers of an image while the image is built; None if none does."""
        return None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Be ready to take images in, until the block ends."""
        yield

    def images(self, prepared: Sequence[Prepared]) -> dict[str, Image]:
        """The image of each job by its reference: the one with the job's inputs, if there is one."""
        jobs = {one.job.spec.id: one.job for one in prepared if isinstance(one.job, Job)}
        found = self.by_id(jobs, lambda name, image: image.labels.get(INPUTS) == jobs[name].inputs)
        return {jobs[name].ref: image for name, image in found.items()}

    def by_id(self, ids: Iterable[str], is_current: Callable[[str, Image], bool]) -> dict[str, Image]:
        """The image of each id that has one. If an id has several, the image that ``is_current``, else any of them."""
        held = [self._image(entry.key) for entry in self.layout.entries() if self.layout.find(entry.key)]
        found = dict[str, Image]()
        for name in ids:
            own = [image for image in held if image.labels.get(ID) == name]
            current = (image for image in own if len(own) == 1 or is_current(name, image))
            found |= {name: next(current, own[0])} if own else {}
        return found

    def confirm(self, fresh: Sequence[tuple[Job, Image]], images: Mapping[str, Image]) -> list[Result]:
        """The results of images that are up to date."""
        return [up_to_date(job.spec.id, job.ref, (), image) for job, image in fresh]

    def take_in(self, digest: str, export: Path) -> None:
        """Move an exported image into the layout."""
        self.layout.take(export, digest)

    def discard(self, digest: str, job: Job) -> None:
        """Do nothing: no engine has the image."""

    def found(self, digests: Sequence[str]) -> str | None:
        """The first of these digests that an image is known by here."""
        return next((digest for digest in digests if self.layout.find(digest)), None)

    def tagged(self, digest: str, job: Job) -> Image | None:
        """The image of a job; None if it is gone."""
        return self._image(digest) if self.layout.find(digest) else None

    def measured(self, image: Image) -> Image:
        return image

    def tidy(self, built: Sequence[Result]) -> None:
        """Drop the earlier images of each job that was built."""
        new = {result.id: result.digest for result in built if result.status == "built"}
        self.layout.tidy([entry.key for entry in self.layout.entries() if new.get(entry.name, entry.key) == entry.key])

    def _image(self, digest: str) -> Image:
        manifest = self.layout.get(digest)
        labels = labels_in(read_json(self.layout.path(manifest.config.digest).read_bytes()))
        size = sum(blob.size for blob in manifest.blobs)
        return Image(digest=manifest.digest, tags=(), labels=dict(labels), size_bytes=size)
