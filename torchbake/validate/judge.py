"""Checks of an image in a registry against the promises of the matrix. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torchbake.checks.verdict import CheckResult
from torchbake.core.problem import Problem, unknown
from torchbake.matrix.platforms import id_of_tag
from torchbake.matrix.spec import AMD64
from torchbake.oci.labels import BASE, ID, INPUTS, LABEL, versions_in
from torchbake.registry.cosign import NO_TRUST
from torchbake.release.decide import TagHolder, moves_to, rank_of
from torchbake.ui.command import Command
from torchbake.validate import judge_attestations as artifacts
from torchbake.validate.expect import Versions, disagreements
from torchbake.validate.facts import Revision, ServedImage, ServedTag, Shelf, Signatures, short
from torchbake.validate.judge_image import SILENCE, check, served_whole, unread, when
from torchbake.validate.promise import Promise, own_answer

NOTHING_EXPECTED = unknown("nothing is expected: add --expect torch=VERSION")
_STRANGER = unknown("it is not a release of this image")
_OTHER = unknown("it is not what was released")
_NOT_VERIFIED = Signatures(problem=unknown(NO_TRUST))

Inside = tuple[CheckResult, ...]  # the results of `pull`, `versions` and `suite` for one digest


def current_of(promise: Promise, shelf: Shelf) -> Revision | None:
    """Return the revision that the image's own tag points at, else the newest one."""
    released = [revision for revision in shelf.revisions if revision.digest]
    own = own_answer(promise, shelf).digest
    pointed = [revision for revision in released if revision.digest == own]
    recorded = [revision for revision in released if revision.record]
    return next((revisions[-1] for revisions in (pointed, recorded, released) if revisions), None)


def own_digests(promise: Promise, shelf: Shelf) -> frozenset[str]:
    """Return the digests of an image's revisions and own tag."""
    answers = (own_answer(promise, shelf), *(revision.tag_answer for revision in shelf.revisions))
    return frozenset(each.image.digest for each in answers if each.image)


def judge(
    promise: Promise,
    shelf: Shelf,
    inside: Mapping[str, Inside],
    known_ids: Collection[str] = (),
    signatures: Signatures = _NOT_VERIFIED,
) -> dict[str, tuple[CheckResult, ...]]:
    """Check each tag of an image: its rolling tags, then its revisions.

    ``inside`` has the results of containers by digest. ``known_ids`` are the ids of the whole matrix. The place of a
    rolling tag is not checked if a newer image has the tag, and the matrix does not know that image.
    """
    judging = _Judging(promise, shelf, inside, frozenset(known_ids) - {promise.id}, signatures)
    rolling = {tag: tuple(judging.rolling(shelf.tags[tag])) for tag in promise.tags}
    return rolling | {str(revision.tag): tuple(judging.immutable(revision)) for revision in shelf.revisions}


def judge_reference(
    answer: ServedTag,
    expected: Versions,
    inside: Mapping[str, Inside],
    repository: str,
    signatures: Signatures = _NOT_VERIFIED,
    *,
    platform: str = AMD64,
) -> tuple[CheckResult, ...]:
    """Check an image that is not in the matrix; ``expected`` are the versions that it must have."""
    steps, stop = served_whole(answer, Problem(reason=f"{answer.tag} is not there"), platform)

    def wrong(image: ServedImage) -> Problem | None:
        labelled = versions_in(image.labels)
        if not expected or not labelled:
            return unknown("no label names a version") if expected else NOTHING_EXPECTED
        sentences = [f"by its labels {sentence}" for sentence in disagreements(expected, labelled)]
        return Problem(reason="; ".join(sentences)) if sentences else None

    labels = when("labels", unread(answer, stop), wrong, answer)
    signed = check(
        "signature", stop or artifacts.unsigned(signatures, repository, {artifacts.IMAGE: answer.digest or ""})
    )
    return (*steps, labels, signed, *_inside(answer, inside, stop))


@dataclass(frozen=True)
class _Judging:
    promise: Promise
    shelf: Shelf
    inside: Mapping[str, Inside]
    known_ids: frozenset[str]  # of other images: a newer version of an init image has its id
    signatures: Signatures

    @property
    def current(self) -> Revision | None:
        return current_of(self.promise, self.shelf)

    def rolling(self, answer: ServedTag) -> Iterator[CheckResult]:
        steps, stop = served_whole(answer, self._missing(answer.tag), self.promise.platform)
        yield from steps
        of_others = stop or (self._newer(answer, answer.image) if answer.image else None)
        yield when("rolling", of_others, lambda image: self._place(answer, image), answer)
        revision = next((each for each in reversed(self.shelf.revisions) if each.digest == answer.digest), None)
        yield self._labels(answer, of_others, revision)
        yield self._to_signed(revision, {artifacts.IMAGE: answer.digest or ""}, stop)
        yield from _inside(answer, self.inside, stop)

    def immutable(self, revision: Revision) -> Iterator[CheckResult]:
        answer, record = revision.tag_answer, revision.record
        released = f"was released on {record.released[:10]}, and is gone" if record else "is gone"
        steps, stop = served_whole(answer, Problem(reason=f"{answer.tag} {released}"), self.promise.platform)
        yield from steps
        own, is_index = own_answer(self.promise, self.shelf), bool(record and record.platforms)
        name = id_of_tag(self.promise.id) if is_index else self.promise.id
        finish = f"Move its tags: {Command('promote', f'{name} --registry {self._registry} --pending')}"
        unrecorded = artifacts.wrong_record(
            revision, self.shelf, own, name=name, release=self._release_it, finish=finish
        )  # fmt: skip
        unrecorded = unrecorded or self._wrong_part(revision)
        yield check("record", SILENCE if answer.answer_problem else unrecorded)
        yield when(
            "immutable", stop or (None if record else artifacts.NO_RECORD), lambda _: _overwritten(revision), answer
        )
        yield self._labels(answer, stop, revision)
        yield from self._attached(revision, stop)
        yield self._to_signed(revision, artifacts.signed_parts(revision), stop)
        yield from _inside(answer, self.inside, stop)

    def _wrong_part(self, revision: Revision) -> Problem | None:
        """Check that an index has the image of the platform's release that its record names."""
        image, platform = revision.tag_answer.image, self.promise.platform
        part = revision.record.platforms.get(platform) if revision.record else None
        # If the row has one platform now, the releases of the platforms that its indexes name are not read.
        if not self.promise.index or part is None or image is None or self.shelf.parts.get(part.tag) == image.digest:
            return None
        released = short(self.shelf.parts.get(part.tag))
        return Problem(reason=f"its image for {platform} is {short(image.digest)}, and {part.tag} is {released}")

    def _attached(self, revision: Revision, stop: Problem | None) -> Iterator[CheckResult]:
        answer, where = revision.tag_answer, self.shelf.repository
        again = self._release_it if revision == self.shelf.revisions[-1] else ""
        stop = unread(answer, stop) or (_OTHER if _overwritten(revision) else None)
        # The SBOM of an index lists images, and no packages.
        is_index = revision.record is not None and bool(revision.record.platforms)
        torch = answer.image.labels.get(f"{LABEL}.torch", "") if answer.image and not is_index else ""
        yield check("sbom", stop or artifacts.wrong_sbom(where, revision, torch, again))
        yield check("provenance", stop or artifacts.wrong_provenance(where, revision, again))
        yield check("referrers", stop or artifacts.unlisted(revision, again))

    def _to_signed(self, revision: Revision | None, parts: Mapping[str, str], stop: Problem | None) -> CheckResult:
        # If the releases are not known, at least the image of the tag must be signed.
        stop = stop or (None if revision or self.shelf.list_problem else _STRANGER)
        newest = revision is not None and revision == self.shelf.revisions[-1]
        again = self._publish if newest else ""
        return check("signature", stop or artifacts.unsigned(self.signatures, self.shelf.repository, parts, again))

    def _missing(self, tag: str) -> Problem:
        if self.shelf.list_problem:
            return Problem(reason=f"{tag} is not there")
        if self.current is None:
            return Problem(reason=f"{tag} is not there, and no release of {self.promise.id}", remedy=self._release_it)
        reason = f"{tag} is not there; it should point at {self.current.name}"
        return Problem(reason=reason, remedy=self._put_it_at(self.current))

    def _place(self, answer: ServedTag, image: ServedImage) -> Problem | None:
        """Check that a rolling tag is at the current revision."""
        own, current = own_answer(self.promise, self.shelf), self.current
        if self.shelf.list_problem:
            return self._unlisted(answer, own, self.shelf.list_problem)
        if current is None:
            reason = f"points at {answer.who}, but there is no release of {self.promise.id}"
            return Problem(reason=reason, remedy=self._release_it)
        if answer.digest == current.digest:
            return None
        holder = TagHolder(digest=image.digest, labels=image.labels)
        refused = moves_to(current.digest or "", self._ours, {answer.tag: holder})[1].get(answer.tag)
        first = f"Remove it in the registry, as promote leaves it alone ({refused}). " if refused else ""
        reason = f"points at {answer.who}, and should point at {current.name}"
        return Problem(reason=reason, remedy=f"{first}{self._put_it_at(current)}")

    def _unlisted(self, answer: ServedTag, own: ServedTag, problem: Problem) -> Problem | None:
        """Compare a rolling tag with the image's own tag, as the releases are not known."""
        if answer.tag == own.tag:
            return unknown(f"its releases are not known, as the registry lists no tags: {problem.reason}")
        if answer.digest == own.digest:
            return None
        return Problem(reason=f"points at {answer.who}, {own.tag} at {own.who}")

    def _newer(self, answer: ServedTag, image: ServedImage) -> Problem | None:
        """Return the reason not to check a rolling tag: it has a newer image, which the matrix does not know.

        The image's own tag belongs to no other image. If the image is not released, each tag is checked.
        """
        is_known = image.labels.get(ID, "") in ("", *self.known_ids)
        if is_known or answer.tag == own_answer(self.promise, self.shelf).tag or self.current is None:
            return None
        ours, theirs = rank_of(self._ours), rank_of(image.labels)
        if self.shelf.list_problem or ours is None or theirs is None or ours >= theirs:
            return None
        return unknown(f"it points at {answer.who}, which is newer, and which this matrix does not know")

    @property
    def _ours(self) -> dict[str, str]:
        """The labels that the image must have."""
        versions = {f"{LABEL}.{key}": value for key, value in self.promise.versions.items() if value}
        return {**versions, **self.promise.fixed_labels, **self.promise.labels}

    def _labels(self, answer: ServedTag, stop: Problem | None, revision: Revision | None) -> CheckResult:
        newest = revision is None or revision == self.shelf.revisions[-1]
        # The inputs of an index are those of all platforms.
        inputs = revision.record.inputs if revision and revision.record and not revision.record.platforms else ""

        def judged(image: ServedImage) -> Problem | None:
            wrong = wrong_labels(self.promise, image.labels, newest=newest, inputs=inputs)
            if wrong:
                return Problem(reason="; ".join(wrong), remedy=self._release_it if newest and revision else "")
            return self.promise.lock_problem if newest else None

        return when("labels", unread(answer, stop), judged, answer)

    @property
    def _publish(self) -> str:
        """The commands of a release."""
        name = self.promise.id
        return f"{Command('build test', name)}, then {Command('publish', f'{name} --registry {self._registry}')}"

    @property
    def _release_it(self) -> str:
        return f"Release it: {self._publish}"

    def _put_it_at(self, revision: Revision) -> str:
        where = f"--registry {self._registry} --to {revision.tag.revision}"
        return f"Put it there: {Command('promote', f'{self.promise.id} {where}')}"

    @property
    def _registry(self) -> str:
        return self.shelf.repository.rpartition("/")[0]


def wrong_labels(promise: Promise, labels: Mapping[str, str], *, newest: bool, inputs: str = "") -> list[str]:
    """Return a sentence for each wrong label. ``inputs`` are those of the release record (empty: not known).

    The newest revision must agree with the current row and lock. Older revisions had other locks, and must agree with
    the image's id.
    """
    if labels.get(ID) != promise.id:
        return [f"{ID} is {labels.get(ID) or 'missing'}, not {promise.id}"]
    expected_labels = {
        **promise.fixed_labels,
        **(promise.labels if newest else {}),
        **({INPUTS: inputs} if inputs else {}),
    }
    wrong = [
        f"{key} is {labels.get(key) or 'missing'}, not {value}"
        for key, value in expected_labels.items()
        if labels.get(key) != value
    ]
    if newest and not promise.lock_problem:
        ours = (key for key in labels if key.startswith(f"{LABEL}.") and key not in expected_labels)
        return wrong + [f"{key} is {labels[key]}, and is not promised" for key in ours if key not in (INPUTS, BASE)]
    labelled = {key: labels.get(f"{LABEL}.{key}") for key in promise.versions}
    return wrong + [f"by its labels {sentence}" for sentence in disagreements(promise.versions, labelled)]


def _overwritten(revision: Revision) -> Problem | None:
    if revision.tag_answer.digest == revision.digest:
        return None
    change = f"{short(revision.digest)} was released, and it is {revision.tag_answer.who} now"
    return Problem(reason=f"{revision.tag} was overwritten: {change}")


def _inside(answer: ServedTag, inside: Mapping[str, Inside], stop: Problem | None) -> Inside:
    """Return the results from inside the image of a tag; only the image's own digests are pulled."""
    if stop or answer.image is None or answer.image.digest not in inside:
        return tuple(check(name, stop or _STRANGER) for name in ("pull", "versions"))
    return inside[answer.image.digest]
