"""Checks of the artifacts of an image: release record, SBOM, provenance, signatures. Pure.

Every check returns a problem or None.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchbake.core.json_text import read_json
from torchbake.core.problem import Problem, unknown
from torchbake.oci.in_toto import STATEMENT
from torchbake.oci.tag_names import PROVENANCE, RECORD, SBOM, artifact_tag
from torchbake.release.provenance import PREDICATE
from torchbake.release.record import Record
from torchbake.ui.command import Command
from torchbake.validate.facts import Attachment, Revision, ServedTag, Shelf, Signatures, short

IMAGE = "image"
NO_RECORD = unknown("there is no release record to compare with")
_NOT_VERIFIED = Problem(reason="it was not verified")


def wrong_record(
    revision: Revision, shelf: Shelf, own: ServedTag, *, name: str, release: str, finish: str
) -> Problem | None:
    """Check the record of one revision of the image ``name``; ``own`` is the answer for the image's own tag.

    ``release`` and ``finish`` are the remedies: only the newest revision can still be finished.
    """
    record, newest = revision.record, revision == shelf.revisions[-1]
    if revision.problem:
        return revision.problem
    if record is None:
        reason = f"{revision.tag} has no release record: its release was not finished"
        return Problem(reason=reason, remedy=release if newest else "")
    if (record.tag, record.id) != (str(revision.tag), name):
        return Problem(reason=f"the record of {revision.tag} is that of {record.tag}, image {record.id}")
    # After a rollback, the image's own tag is not at its newest revision. Records of earlier versions with the state
    # "released" were written after the tags had moved, so somebody has moved these since.
    may_differ = own.answer_problem or shelf.went_back or record.state == "released"
    is_elsewhere = own.digest != record.digest and own.digest in {None, *(each.digest for each in shelf.revisions)}
    if newest and is_elsewhere and not may_differ:
        where = f"at {own.who}" if own.digest else "not there"
        reason = f"its release was begun at {record.released}, and is not finished: {own.tag} is {where}"
        return Problem(reason=reason, remedy=finish)
    return None


def wrong_sbom(repository: str, revision: Revision, torch: str, again: str) -> Problem | None:
    """Check the SBOM. ``torch`` is the version in the image's labels (empty: none).

    ``again`` is the remedy that repeats the release; empty if there is a newer revision.
    """

    def lie(content: Mapping[str, Any], record: Record) -> Problem | None:
        trust = f"Trust the image: {Command('sbom', record.id)}"
        if content.get("bomFormat") != "CycloneDX":
            return Problem(reason="is not a CycloneDX SBOM", remedy=trust)
        names = [one.get("version") for one in _entries(content.get("components")) if one.get("name") == "torch"]
        if not torch or names == [torch]:
            return None
        version = ", ".join(map(str, names)) or "not there"
        return Problem(reason=f"says that torch is {version}, the image's label {torch}", remedy=trust)

    return _check(SBOM, repository, revision, again, lie)


def wrong_provenance(repository: str, revision: Revision, again: str) -> Problem | None:
    """Check the provenance; ``again`` is as for `wrong_sbom`."""
    trust = f"Trust the image's own labels: docker buildx imagetools inspect {repository}:{revision.tag}"

    def lie(content: Mapping[str, Any], record: Record) -> Problem | None:
        if (content.get("_type"), content.get("predicateType")) != (STATEMENT, PREDICATE):
            return Problem(reason="is not SLSA provenance", remedy=trust)
        algorithm, _, value = record.digest.partition(":")
        about = [one.get("digest") for one in _entries(content.get("subject"))]
        if about != [{algorithm: value}]:
            reason = f"is a statement about {about or 'nothing'}, not about {short(record.digest)}"
            return Problem(reason=reason, remedy=trust)
        inputs: object = content
        for key in ("predicate", "buildDefinition", "internalParameters", "inputs"):
            inputs = inputs.get(key) if isinstance(inputs, dict) else None
        if inputs == record.inputs:
            return None
        reason = f"says that the inputs are {inputs or 'none'}, the release record {record.inputs}"
        return Problem(reason=reason, remedy=trust)

    return _check(PROVENANCE, repository, revision, again, lie)


def unlisted(revision: Revision, again: str) -> Problem | None:
    """Name the artifacts of a revision that are not listed with its image; ``again`` is as for `wrong_sbom`."""
    record, listed = revision.record, revision.referrers
    if record is None:
        return NO_RECORD
    if isinstance(listed, Problem):
        return listed
    recorded_digests = {**record.attached, RECORD: revision.attachments.get(RECORD, Attachment()).digest or ""}
    missing = [f"{name} ({short(digest)})" for name, digest in recorded_digests.items() if digest not in ("", *listed)]
    if not missing:
        return None
    if not record.listed:  # None in records of earlier versions, which kept no list if the registry has none
        why = "takes none" if record.listed is False else "has none, and an earlier version released it"
        return unknown(f"no list of artifacts: the registry {why}")
    return Problem(reason=f"not listed with the image: {', '.join(missing)}", remedy=again)


def signed_parts(revision: Revision) -> dict[str, str]:
    """Return the digests of a revision that must be signed, by name, as the registry serves them now."""
    parts = {IMAGE: revision.tag_answer.digest}
    parts |= {name: attachment.digest for name, attachment in revision.attachments.items()}
    return {name: digest for name, digest in parts.items() if digest}


def signed_digests(shelf: Shelf) -> tuple[str, ...]:
    """Return all digests of an image that must be signed; those of its tags, if its revisions are not known."""
    tagged = [one.digest for one in shelf.tags.values() if one.digest] if shelf.list_problem else []
    return tuple(dict.fromkeys([*tagged, *(part for one in shelf.revisions for part in signed_parts(one).values())]))


def unsigned(signatures: Signatures, repository: str, parts: Mapping[str, str], again: str = "") -> Problem | None:
    """Name the parts, digests by name, without a trusted signature; ``again`` are commands that publish again."""
    if signatures.problem:
        return signatures.problem
    names: dict[str, list[str]] = {}
    digests: dict[str, None] = {}
    for name, digest in parts.items():
        if problem := signatures.problems.get(digest, _NOT_VERIFIED):
            names.setdefault(problem.sentence, []).append("record" if name == RECORD else name)
            digests[digest] = None
    if not names:
        return None
    by_hand = " ".join(["cosign sign --key KEY", *(f"{repository}@{digest}" for digest in digests)])
    return Problem(
        reason="; ".join(f"{', '.join(which)}: {problem}" for problem, which in names.items()),
        remedy=f"Sign it if it is right: {f'{again} --key KEY' if again else by_hand}",
    )


def _check(
    name: str,
    repository: str,
    revision: Revision,
    again: str,
    lie: Callable[[Mapping[str, Any], Record], Problem | None],
) -> Problem | None:
    """Check that an artifact is the released one; ``lie`` returns a problem of its content."""
    record, attachment = revision.record, revision.attachments.get(name, Attachment())
    where = artifact_tag(str(revision.tag), name)
    if record is None:
        return NO_RECORD
    if name not in record.attached:
        return unknown(f"the release record names no {name}: an older toolkit released it")
    misplaced = _misplaced(attachment, record.attached[name], record.digest)
    if misplaced:
        by_hand = f"Put it there: oras tag {repository}@{record.attached[name]} {where}"
        return Problem(reason=f"{where} {misplaced}", remedy=again or by_hand)
    try:
        content = read_json(attachment.data)
    except ValueError:
        content = None
    problem = lie(content if isinstance(content, dict) else {}, record)
    return replace(problem, reason=f"{where} {problem.reason}") if problem else None


def _misplaced(attachment: Attachment, name: str, image: str) -> str:
    """Return the reason why an artifact is not the released one, or not of the image, or an empty text."""
    if attachment.problem:
        return f"cannot be read: {attachment.problem.reason}"
    if attachment.digest is None:
        return f"is not there; {short(name)} was released"
    if attachment.digest != name:
        return f"was overwritten: {short(name)} was released, and it is {short(attachment.digest)} now"
    return "" if attachment.subject == image else f"is of {short(attachment.subject)}, not of {short(image)}"


def _entries(value: object) -> Iterable[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
