"""Indexes of images with several platforms: each is released when all platforms have releases of today's files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from torchbake.build.base_image import BaseImage
from torchbake.build.prepare import ImagePreparation
from torchbake.commands._earlier_releases import judge_parts
from torchbake.commands._publish_tables import PublishResult
from torchbake.commands._selection import lock_of
from torchbake.debian.lockfile import find_debian_lock
from torchbake.errors import LockError, RenderError, sentence_of
from torchbake.gate.judge import GateResult
from torchbake.matrix.platforms import platform_tag, shared_id
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import BASE_DIGEST, INPUTS
from torchbake.oci.reference import Repository
from torchbake.release.candidate import Publication
from torchbake.release.platforms import PlatformPart, PlatformSet
from torchbake.release.publisher import Publisher
from torchbake.release.upload import Tell
from torchbake.render.dockerfile import promised_labels

if TYPE_CHECKING:
    from torchbake.commands._release_gate import ReleaseGate


@dataclass(frozen=True, kw_only=True)
class Platforms:
    """The platforms of a project's images. ``preparation`` compares images with today's files."""

    project: Project
    preparation: ImagePreparation

    def of(self, spec: Spec) -> tuple[Spec, ...]:
        """Return the images of all platforms of an image's row, or none if the row has one platform."""
        images = self.project.expansion.groups.of(spec)
        return images if len(images) > 1 else ()

    def name(self, spec: Spec) -> str:
        """Return the beginning of an image's immutable tags."""
        return self.project.expansion.groups.release_name(spec)

    def tags(self, spec: Spec) -> tuple[str, ...]:
        """Return the rolling tags that an image's own release moves: none if an index has them."""
        return () if self.of(spec) else self.project.tags[spec.id]

    def sets(self, specs: Iterable[Spec]) -> dict[str, PlatformSet]:
        """Return the images with several platforms among images, each once, by the ids of their platforms."""
        sets = {}
        for spec in specs:
            if images := self.of(spec):
                sets[spec.id] = PlatformSet(
                    id=shared_id(spec), repository=spec.repository, tags=self.project.tags[spec.id],
                    parts=tuple(map(self._part, images)),
                )  # fmt: skip
        return sets

    def _part(self, spec: Spec) -> PlatformPart:
        return PlatformPart(
            platform=spec.platform, id=spec.id, name=platform_tag(spec), why_old=partial(self.why_old, spec)
        )

    def why_old(self, spec: Spec, labels: Mapping[str, str]) -> str:
        """Return why a released image with these labels is not of today's files, on the base that it has; "" if it is.

        The labels of an init image do not name its base, and another machine may have another base. So it is compared
        on the base of the lock of Debian packages, or without such a lock by the labels that the matrix promises.
        """
        try:
            lock = find_debian_lock(self.project.root, spec.base)
            digest = labels.get(BASE_DIGEST) or (lock.base_digest if lock else "")
            if digest:
                return "" if self.inputs(spec, digest) == labels.get(INPUTS) else "its inputs changed"
            expected = promised_labels(spec, lock_of(self.project, spec))
        except (LockError, RenderError) as error:
            return error.message.partition("\n")[0]
        wrong = next((key for key, value in expected.items() if labels.get(key) != value), "")
        return f"its label {wrong} changed" if wrong else ""

    def inputs(self, spec: Spec, digest: str) -> str:
        """Return the inputs digest of an image on a base of this digest. Raises LockError and RenderError."""
        base = BaseImage(name=spec.base.id, image=spec.base.image, source="registry", digest=digest, created="")
        return self.preparation.job(spec, base).inputs


@dataclass(frozen=True, kw_only=True)
class IndexPlace:
    """A repository for an index. Its rolling tags move after all repositories have it (``later``), or with it."""

    image: PlatformSet
    repository: Repository
    publisher: Publisher
    later: bool = False


def release_indexes(
    places: Sequence[IndexPlace], results: Sequence[PublishResult], tell: Tell, *, dry: bool,
    gate: "ReleaseGate | None" = None,
) -> list[PublishResult]:  # fmt: skip
    """Release the index of each place that got an image of a platform; a failure is a result.

    If a platform was refused in this run, no index joins an earlier release of it. In a dry run the platforms that this
    run would release count as released. The ``gate`` judges releases of earlier runs, which an index would join.
    """
    good = []
    for place in places:
        published = {one.id for one in results if _is_part(place, one) and not one.problem}
        # An image that is refused has one result, whatever its repositories.
        if published and published == {part.id for part in place.image.parts} & {one.id for one in results}:
            good.append(place)
    outcomes = [_release(place, results, tell, gate, dry=dry) for place in good]
    pairs = zip(good, outcomes, strict=True)
    return [_promoted(place, outcome, tell) if place.later else outcome for place, outcome in pairs]


def _is_part(place: IndexPlace, result: PublishResult) -> bool:
    return result.repository == place.repository and result.id in {part.id for part in place.image.parts}


def _release(
    place: IndexPlace, results: Sequence[PublishResult], tell: Tell, gate: "ReleaseGate | None", *, dry: bool
) -> PublishResult:  # fmt: skip
    image, gates = place.image, dict[str, GateResult]()
    result = PublishResult(
        id=image.id, repository=place.repository, platforms=[part.platform for part in image.parts], gates=gates
    )  # fmt: skip
    judge = partial(judge_parts, gate, place.publisher, _judged_digests(place, results), gates) if gate else None
    try:
        index = place.publisher.publish_index(image, tell, dry=dry, judge=judge or (lambda _: None))
    except Exception as error:
        return replace(result, problem=sentence_of(error))
    if index.decision:
        return replace(result, published=Publication(decision=index.decision, tested=index.decision.digest))
    planned = {one.id for one in results if dry and _is_part(place, one)}
    ids = {part.platform: part.id for part in image.parts}
    lacking = {key: reason for key, reason in index.lacking.items() if ids[key] not in planned}
    return replace(result, lacking=lacking)


def _judged_digests(place: IndexPlace, results: Sequence[PublishResult]) -> set[str]:
    """Return the digests of the releases of an index that this run judged: its images, and builds that stay instead."""
    pairs = [(one.published, one.gates) for one in results if _is_part(place, one) and one.published]
    return {published.decision.digest for published, gates in pairs if published.is_tested or gates}


def _promoted(place: IndexPlace, result: PublishResult, tell: Tell) -> PublishResult:
    """Move the rolling tags of an index, unless it failed or waits for a platform."""
    if result.published is None:
        return result
    try:
        moved = place.publisher.finish(place.image.tags, tell)
    except Exception as error:
        return replace(result, problem=sentence_of(error))
    first = result.published.decision.action
    decision = replace(moved, action=moved.action if first == "nothing" else first) if moved else None
    return replace(result, published=replace(result.published, decision=decision)) if decision else result
