"""A build with nothing to do, answered without preparing its images again.

Which images a command line selects, their tags and their inputs digests follow from files alone: those that
`torchbake.build.sources` lists. So a build records them under the digest of those files' content, and while that is the
same, only the engine is asked. At any doubt there is no answer here, and the build goes its ordinary way. A record
holds names and digests, nothing of the host's settings.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchbake.build.result import Result, read_sizes, sizes_file, up_to_date
from torchbake.build.source_date import untrue_label
from torchbake.build.sources import sources_digest
from torchbake.core.digest import digest
from torchbake.core.json_text import read_object
from torchbake.core.paths import state_of, templates_of
from torchbake.core.tracked import tracked_state
from torchbake.engine.image import Image, holds
from torchbake.engine.local import Inquiry, image_at, local_address
from torchbake.errors import TorchbakeError
from torchbake.oci.labels import INPUTS

if TYPE_CHECKING:
    from torchbake.build.plan import Prepared


@dataclass(frozen=True, kw_only=True)
class Needed:
    """An image as a build would prepare it: its tags with their repository, and its inputs digest."""

    id: str
    ref: str
    tags: tuple[str, ...]
    inputs: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a build has prepared, under its seal: the digest of this and of the sources that it was prepared of."""

    seal: str
    needed: tuple[Needed, ...]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A build that may have nothing to do. ``sources`` are as they were before anything else was read of them.

    ``needed`` and ``inquiry`` are there where a former build of the same words and sources was recorded.
    """

    matrix: Path
    file: Path
    sources: str
    needed: tuple[Needed, ...] | None = None
    inquiry: Inquiry | None = None

    def results(self) -> list[Result] | None:
        """What the ordinary way would say of each image; None unless every one of them is up to date."""
        if self.needed is None or self.inquiry is None:
            return None
        from torchbake.hostconfig.pip_config import read_pip_config  # noqa: PLC0415 - while the engine answers

        try:
            read_pip_config()  # what cannot be read there is an error of every build
        except (TorchbakeError, OSError):
            return None
        images = self.inquiry.images()
        if images is None:
            return None
        results = judged(self.needed, images, read_sizes(sizes_file(_state(self.matrix))))
        return None if results is None or self._are_untrue(images) else results

    def _are_untrue(self, images: Mapping[str, Image]) -> bool:
        """Return whether an image has labels that disagree with git, or git cannot tell."""
        root = self.matrix.absolute().parent
        try:
            return any(untrue_label(root, images[one.ref].labels) for one in self.needed or ())
        except TorchbakeError:
            return True

    def remember(self, prepared: "Iterable[Prepared]", results: Iterable[Result]) -> None:
        """Record what a build has prepared, if all of it is there now and no source has changed since it began."""
        jobs = [one.job for one in prepared if not isinstance(one.job, TorchbakeError)]
        if {result.status for result in results} - {"built", "up-to-date"}:
            return
        if any(job.spec.own.files or job.spec.own.certificates for job in jobs):
            return  # the matrix alone says which files those are, and it is not read where there is an answer
        needed = [Needed(id=job.spec.id, ref=job.ref, tags=job.references, inputs=job.inputs) for job in jobs]
        with suppress(OSError, ValueError):  # only a memory: without it the next build prepares again
            if sources_digest(self.matrix) == self.sources:
                _write(self.file, self.sources, needed)


def ask(matrix: Path, words: object) -> Question | None:
    """Begin to ask about a build of ``words``, which say what is selected; None where only the ordinary way will do."""
    address = local_address()
    if address is None or templates_of(matrix.absolute().parent):  # templates may copy any file of a project
        return None
    name = digest((matrix.name, json.dumps(words))).removeprefix("sha256:")[:16]
    file = _state(matrix) / "unchanged" / f"{name}.json"
    record = _recorded(file)
    # It answers while the sources are read.
    inquiry = Inquiry(partial(image_at, address), [image.ref for image in record.needed]) if record else None
    try:
        sources = sources_digest(matrix)
    except (OSError, ValueError):
        return None
    if tracked_state(matrix.absolute().parent):  # an error of the ordinary way
        return None
    return Question(matrix=matrix, file=file, sources=sources, needed=_fitting(record, sources), inquiry=inquiry)


def judged(needed: Iterable[Needed], images: Mapping[str, Image], sizes: Mapping[str, int]) -> list[Result] | None:
    """The results of images that are all in the engine as they must be, of known size; None where one is not. Pure."""
    results = []
    for one in needed:
        image = images.get(one.ref)
        if image is None or image.labels.get(INPUTS) != one.inputs or image.digest not in sizes:
            return None
        if not all(holds(images, tag, image) for tag in one.tags):
            return None
        results.append(up_to_date(one.id, one.ref, one.tags, replace(image, size_bytes=sizes[image.digest])))
    return results


def _write(file: Path, sources: str, needed: Sequence[Needed]) -> None:
    from torchbake.core.files import write_text  # noqa: PLC0415 - a build with nothing to do writes nothing

    images = [asdict(one) for one in needed]
    write_text(file, json.dumps({"digest": _sealed(sources, needed), "images": images}, indent=2) + "\n")


def _recorded(file: Path) -> Record | None:
    """A record, whatever the sources are now; None where there is none, or half of one."""
    try:
        record = read_object(file.read_bytes())
        needed = tuple(Needed(**{**image, "tags": tuple(map(str, image["tags"]))}) for image in record["images"])
        return Record(seal=str(record["digest"]), needed=needed)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _fitting(record: Record | None, sources: str) -> tuple[Needed, ...] | None:
    """What is recorded, if it is of these sources and as it was written."""
    return record.needed if record and record.seal == _sealed(sources, record.needed) else None


def _sealed(sources: str, needed: Iterable[Needed]) -> str:
    """Of other sources, or of other images, it would be another."""
    return digest((sources, json.dumps([asdict(one) for one in needed])))


def _state(matrix: Path) -> Path:
    return state_of(matrix.absolute().parent)
