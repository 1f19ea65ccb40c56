"""What is attached to an image in its registry, judged: SBOM, provenance, signatures. Pure.

Every function gives what is wrong, or None.
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
from torchbake.validate.facts import Attached, Revision, Shelf, Signatures, short

IMAGE = "image"
NO_RECORD = unknown("there is no release record to compare with")
_NOBODY_ASKED = Problem(reason="nobody asked")


def wrong_sbom(repository: str, revision: Revision, torch: str, again: str) -> Problem | None:
    """``torch`` is the version that the image's labels name (empty: none); ``again`` releases once more (empty: that
    is of no use, as there is a newer revision)."""

    def lie(content: Mapping[str, Any], record: Record) -> Problem | None:
        trust = f"Trust the image: nox -s sbom -- {record.id}"
        if content.get("bomFormat") != "CycloneDX":
            return Problem(reason="is not a CycloneDX SBOM", remedy=trust)
        named = [one.get("version") for one in _entries(content.get("components")) if one.get("name") == "torch"]
        if not torch or named == [torch]:
            return None
        told = ", ".join(map(str, named)) or "not there"
        return Problem(reason=f"says that torch is {told}, the image's label {torch}", remedy=trust)

    return _judged(SBOM, repository, revision, again, lie)


def wrong_provenance(repository: str, revision: Revision, again: str) -> Problem | None:
    """``again`` is as for `wrong_sbom`."""
    trust = f"Trust the image's own labels: docker buildx imagetools inspect {repository}:{revision.tag}"

    def lie(content: Mapping[str, Any], record: Record) -> Problem | None:
        if (content.get("_type"), content.get("predicateType")) != (STATEMENT, PREDICATE):
            return Problem(reason="is not SLSA provenance", remedy=trust)
        algorithm, _, value = record.digest.partition(":")
        about = [one.get("digest") for one in _entries(content.get("subject"))]
        if about != [{algorithm: value}]:
            reason = f"is a statement about {about or 'nothing'}, not about {short(record.digest)}"
            return Problem(reason=reason, remedy=trust)
        inputs = _at(content, "predicate", "buildDefinition", "internalParameters", "inputs")
        if inputs == record.inputs:
            return None
        reason = f"says that the inputs are {inputs or 'none'}, the release record {record.inputs}"
        return Problem(reason=reason, remedy=trust)

    return _judged(PROVENANCE, repository, revision, again, lie)


def unlisted(revision: Revision, again: str) -> Problem | None:
    """Name the artifacts of a revision that are not listed with its image; ``again`` is as for `wrong_sbom`."""
    record, listed = revision.record, revision.referrers
    if record is None:
        return NO_RECORD
    if isinstance(listed, Problem):
        return listed
    wanted = {**record.attached, RECORD: revision.attached.get(RECORD, Attached()).digest or ""}
    missing = [f"{name} ({short(digest)})" for name, digest in wanted.items() if digest not in ("", *listed)]
    if not missing:
        return None
    if not record.listed:  # earlier versions, which do not say it, kept no list where the registry has none
        why = "takes none" if record.listed is False else "has none, and an earlier version released it"
        return unknown(f"no list of artifacts: the registry {why}")
    return Problem(reason=f"not listed with the image: {', '.join(missing)}", remedy=again)


def signed_parts(revision: Revision) -> dict[str, str]:
    """What must be signed of a revision, as it is served now: digests by name."""
    parts = {IMAGE: revision.served.digest}
    parts |= {name: attached.digest for name, attached in revision.attached.items()}
    return {name: digest for name, digest in parts.items() if digest}


def signed_digests(shelf: Shelf) -> tuple[str, ...]:
    """All that must be signed of an image, each digest once; where no revision can be known, what its tags hold."""
    held = [one.digest for one in shelf.tags.values() if one.digest] if shelf.list_problem else []
    return tuple(dict.fromkeys([*held, *(part for one in shelf.revisions for part in signed_parts(one).values())]))


def unsigned(signatures: Signatures, repository: str, parts: Mapping[str, str], again: str = "") -> Problem | None:
    """Which of the parts, digests by name, have no signature that is trusted; ``again`` are the commands that publish
    once more."""
    if signatures.problem:
        return signatures.problem
    found = {name: signatures.problems.get(digest, _NOBODY_ASKED) for name, digest in parts.items()}
    problems = {name: problem for name, problem in found.items() if problem}
    if not problems:
        return None
    names: dict[str, list[str]] = {}
    for name, problem in problems.items():
        names.setdefault(problem.sentence, []).append("record" if name == RECORD else name)
    digests = dict.fromkeys(parts[name] for name in problems)
    by_hand = " ".join(["cosign sign --key KEY", *(f"{repository}@{digest}" for digest in digests)])
    return Problem(
        reason="; ".join(f"{', '.join(which)}: {problem}" for problem, which in names.items()),
        remedy=f"Sign it if it is right: {f'{again} --key KEY' if again else by_hand}",
    )


def _judged(
    name: str,
    repository: str,
    revision: Revision,
    again: str,
    lie: Callable[[Mapping[str, Any], Record], Problem | None],
) -> Problem | None:
    """What is wrong with an artifact; ``lie`` is how its content is not what it must be."""
    record, attached, where = (
        revision.record,
        revision.attached.get(name, Attached()),
        artifact_tag(str(revision.tag), name),
    )
    if record is None:
        return NO_RECORD
    if name not in record.attached:
        return unknown(f"the release record names no {name}: an older toolkit released it")
    misplaced = _misplaced(attached, record.attached[name], record.digest)
    if misplaced:
        by_hand = f"Put it there: oras tag {repository}@{record.attached[name]} {where}"
        return Problem(reason=f"{where} {misplaced}", remedy=again or by_hand)
    try:
        content = read_json(attached.data)
    except ValueError:
        content = None
    problem = lie(content if isinstance(content, dict) else {}, record)
    return replace(problem, reason=f"{where} {problem.reason}") if problem else None


def _misplaced(attached: Attached, wanted: str, image: str) -> str:
    """How an artifact is not the one that was released, or not one of the image."""
    if attached.problem:
        return f"cannot be read: {attached.problem.reason}"
    if attached.digest is None:
        return f"is not there; {short(wanted)} was released"
    if attached.digest != wanted:
        return f"was overwritten: {short(wanted)} was released, and it is {short(attached.digest)} now"
    return "" if attached.subject == image else f"is of {short(attached.subject)}, not of {short(image)}"


def _entries(value: object) -> Iterable[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _at(content: object, *keys: str) -> object:
    """A value deep inside of what may have any shape."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content
