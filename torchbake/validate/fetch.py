"""Requests to a registry. Failures are results, not exceptions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from torchbake.core.problem import Problem, problem_of
from torchbake.errors import RegistryError
from torchbake.matrix.spec import AMD64
from torchbake.oci.labels import labels_in
from torchbake.oci.manifest import Blob, Manifest, UnsoundError
from torchbake.oci.tag_names import ARTIFACTS, HOLD_SUFFIX, RECORD, ImmutableTag, artifact_tag, recorded_of
from torchbake.registry.artifact import subject_of, text_of
from torchbake.registry.client import Registry
from torchbake.registry.referrers import referrers_of
from torchbake.registry.variants import images_of
from torchbake.release.record import parse_record
from torchbake.validate.facts import Attachment, Piece, Revision, ServedImage, ServedTag, Shelf

Look = Callable[[str], None]


def _problem_of(error: RegistryError) -> Problem:
    """Return the problem of a request: unknown if the registry cannot be reached or is busy, and not if it refuses."""
    return replace(problem_of(error), unknown=getattr(error, "passing", True))


class Survey:
    """The contents of one repository, which is asked once for each digest and blob. Does not raise RegistryError.

    Of an index, only the images for a platform are read.
    """

    def __init__(self, registry: Registry, platform: str = AMD64) -> None:
        self._registry, self._platform = registry, platform
        self._images: dict[str, ServedImage | Problem] = {}  # by digest, or the problem of its manifest
        self._sizes: dict[str, int | None] = {}

    def shelf(self, tags: Sequence[str], look: Look = lambda _: None, *, name: str = "") -> Shelf:
        """Read everything about an image. ``tags`` are its rolling tags, its own tag first.

        Its immutable tags begin with ``name``, or with its own tag.
        """
        repository = str(self._registry.repository)
        look("its tags")
        try:
            listed, problem = self._registry.tags(), None
        except RegistryError as error:
            listed, problem = (), _problem_of(error)
            if problem.unknown:  # without the list, the releases are unknown
                silent = {tag: ServedTag(tag=tag, answer_problem=problem) for tag in tags}
                return Shelf(repository=repository, tags=silent, list_problem=problem)
        answers = {tag: self.look_up(tag, look) for tag in tags}
        revisions = tuple(self._revision(tag, listed, look) for tag in recorded_of(name or tags[0], listed))
        went_back = bool(revisions) and artifact_tag(str(revisions[-1].tag), HOLD_SUFFIX) in listed
        return Shelf(
            repository=repository, tags=answers, revisions=revisions, went_back=went_back, list_problem=problem
        )

    def look_up(self, key: str, look: Look = lambda _: None) -> ServedTag:
        """Read the image of a tag or a digest."""
        look(key)
        digest = None
        try:
            digest = self._registry.digest(key)
            image = self._content(digest) if digest else None
        except UnsoundError as error:
            return ServedTag(tag=key, digest=digest or "", manifest_problem=problem_of(error))
        except RegistryError as error:
            return ServedTag(tag=key, answer_problem=_problem_of(error))
        if isinstance(image, Problem):
            return ServedTag(tag=key, digest=digest, manifest_problem=image)
        return ServedTag(tag=key, digest=digest, image=image)

    def _revision(self, tag: ImmutableTag, tags: Iterable[str], look: Look) -> Revision:
        answer, record = self.look_up(str(tag), look), None
        places = {name: artifact_tag(str(tag), name) for name in (*ARTIFACTS, RECORD)}
        attachments = {name: self._attachment(place) for name, place in places.items() if place in tags}
        text = attachments.get(RECORD, Attachment())
        problem = text.problem
        if text.digest and not problem:
            try:
                record = parse_record(text.data, f"{self._registry.repository}:{places[RECORD]}")
            except RegistryError as error:
                problem = problem_of(error)
        referrers: frozenset[str] | Problem = frozenset()
        try:
            referrers = referrers_of(self._registry, record.digest) if record else referrers
        except RegistryError as error:
            referrers = problem_of(error)
        return Revision(
            tag=tag, tag_answer=answer, record=record, problem=problem, attachments=attachments, referrers=referrers
        )  # fmt: skip

    def _attachment(self, tag: str) -> Attachment:
        digest = None
        try:
            manifest = self._registry.manifest(tag)
            if manifest is None:
                return Attachment()
            digest, subject = manifest.digest, subject_of(manifest)
            return Attachment(digest=digest, subject=subject, data=text_of(self._registry, manifest, tag))
        except RegistryError as error:
            return Attachment(digest=digest, problem=problem_of(error))

    def _content(self, digest: str) -> ServedImage | Problem:
        if digest not in self._images:
            try:
                self._images[digest] = self._read(digest)
            except UnsoundError as error:
                self._images[digest] = problem_of(error)
        return self._images[digest]

    def _read(self, digest: str) -> ServedImage | Problem:
        manifest = self._registry.manifest(digest)
        if manifest is None:
            return Problem(reason=f"the tag points at {digest}, which is not there")
        images = tuple(images_of(self._registry, manifest, self._platform))
        if not images:
            there = tuple(platform for _, platform in manifest.images)
            return ServedImage(digest=manifest.digest, platforms=there, labels={}, pieces=())
        return self._image(*(image for image in images if image.config == images[0].config))

    def _image(self, manifest: Manifest, *others: Manifest) -> ServedImage:
        """Read an image; ``others`` have the same config, but another compression."""
        layers = dict.fromkeys(layer for image in (manifest, *others) for layer in image.layers)
        pieces = tuple(map(self._piece, (*layers, manifest.config)))
        config, problem = dict[str, Any](), None
        try:
            if pieces[-1].actual_size != manifest.config.size:
                raise UnsoundError(f"{manifest.config.digest} has {pieces[-1].actual_size or 'no'} bytes")
            config = self._registry.config(manifest)
        except UnsoundError as error:
            problem = problem_of(error)
        platform = "/".join(str(config.get(key, "")) for key in ("os", "architecture"))
        platforms = (platform,) if platform != "/" else ()
        return ServedImage(
            digest=manifest.digest, platforms=platforms, labels=labels_in(config), pieces=pieces, config_problem=problem
        )

    def _piece(self, blob: Blob) -> Piece:
        if blob.digest not in self._sizes:
            self._sizes[blob.digest] = self._registry.size_of(blob.digest)
        return Piece(digest=blob.digest, size=blob.size, actual_size=self._sizes[blob.digest])
