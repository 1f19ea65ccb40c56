"""What lies beside an image in its registry, judged: SBOM, provenance, signatures. Pure.

Every function gives what is wrong, with what to do next on a line of its own; an empty text is good.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchbake.core.json_text import read_json
from torchbake.oci.tag_names import PROVENANCE, RECORD, SBOM, artifact_tag
from torchbake.release.provenance import PREDICATE, STATEMENT
from torchbake.release.record import Record
from torchbake.validate.facts import Beside, Revision, Shelf, Signatures, short
from torchbake.validate.remedies import MOVE, SIGN, TRUST, Unknown

IMAGE = "image"


def wrong_sbom(repository: str, revision: Revision, torch: str, again: str) -> str:
    """``torch`` is the version that the image's labels name (empty: none); ``again`` releases once more (empty: that
    is of no use, as there is a newer revision)."""

    def lie(content: Mapping[str, Any], record: Record) -> str:
        if content.get("bomFormat") != "CycloneDX":
            return f"is no CycloneDX SBOM\n{TRUST}: nox -s sbom -- {record.id}"
        named = [one.get("version") for one in _entries(content.get("components")) if one.get("name") == "torch"]
        if not torch or named == [torch]:
            return ""
        told = ", ".join(map(str, named)) or "not there"
        return f"says that torch is {told}, the image's label {torch}\n{TRUST}: nox -s sbom -- {record.id}"

    return _judged(SBOM, repository, revision, again, lie)


def wrong_provenance(repository: str, revision: Revision, again: str) -> str:
    """``again`` is as for `wrong_sbom`."""
    trust = f"\n{TRUST}'s own labels: docker buildx imagetools inspect {repository}:{revision.tag}"

    def lie(content: Mapping[str, Any], record: Record) -> str:
        if (content.get("_type"), content.get("predicateType")) != (STATEMENT, PREDICATE):
            return f"is no SLSA provenance{trust}"
        algorithm, _, value = record.digest.partition(":")
        about = [one.get("digest") for one in _entries(content.get("subject"))]
        if about != [{algorithm: value}]:
            return f"is a statement about {about or 'nothing'}, not about {short(record.digest)}{trust}"
        inputs = _at(content, "predicate", "buildDefinition", "internalParameters", "inputs")
        if inputs == record.inputs:
            return ""
        return f"says that the inputs are {inputs or 'none'}, the release record {record.inputs}{trust}"

    return _judged(PROVENANCE, repository, revision, again, lie)


def signed_parts(revision: Revision) -> dict[str, str]:
    """What must be signed of a revision, as it is served now: digests by name."""
    parts = {IMAGE: revision.served.digest}
    parts |= {name: beside.digest for name, beside in revision.beside.items()}
    return {name: digest for name, digest in parts.items() if digest}


def signed_digests(shelf: Shelf) -> tuple[str, ...]:
    """All that must be signed of an image, each digest once."""
    return tuple(dict.fromkeys(digest for one in shelf.revisions for digest in signed_parts(one).values()))


def unsigned(signatures: Signatures, repository: str, parts: Mapping[str, str], again: str = "") -> str:
    """Which of the parts, digests by name, have no signature that is trusted; ``again`` publishes once more."""
    if signatures.hindrance:
        return Unknown(signatures.hindrance)
    names: dict[str, list[str]] = {}
    for name, digest in parts.items():
        problem = signatures.problems.get(digest, "nobody asked")
        if problem:
            names.setdefault(problem, []).append("record" if name == RECORD else name)
    if not names:
        return ""
    said = "; ".join(f"{', '.join(which)}: {problem}" for problem, which in names.items())
    digests = dict.fromkeys(digest for digest in parts.values() if signatures.problems.get(digest, "asked"))
    by_hand = " ".join(["cosign sign --key KEY", *(f"{repository}@{digest}" for digest in digests)])
    return f"{said}\n{SIGN}: {f'{again} --key KEY' if again else by_hand}"


def _judged(
    name: str, repository: str, revision: Revision, again: str, lie: Callable[[Mapping[str, Any], Record], str]
) -> str:
    """What is wrong with an artifact; ``lie`` is how its content is not what it must be."""
    record, beside, where = revision.record, revision.beside.get(name, Beside()), artifact_tag(str(revision.tag), name)
    if record is None:
        return Unknown("there is no release record to compare with")
    if name not in record.attached:
        return Unknown(f"the release record names no {name}: an older toolkit released it")
    problem = _misplaced(beside, record.attached[name], record.digest)
    if problem:
        return f"{where} {problem}\n{again or f'{MOVE}: oras tag {repository}@{record.attached[name]} {where}'}"
    try:
        content = read_json(beside.data)
    except ValueError:
        content = None
    problem = lie(content if isinstance(content, dict) else {}, record)
    return f"{where} {problem}" if problem else ""


def _misplaced(beside: Beside, wanted: str, image: str) -> str:
    """How an artifact is not the one that was released, or not one of the image."""
    if beside.unread:
        return f"cannot be read: {beside.unread}"
    if beside.digest is None:
        return f"is not there; {short(wanted)} was released"
    if beside.digest != wanted:
        return f"was overwritten: {short(wanted)} was released, and it is {short(beside.digest)} now"
    return "" if beside.subject == image else f"is of {short(beside.subject)}, not of {short(image)}"


def _entries(value: object) -> Iterable[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _at(content: object, *keys: str) -> object:
    """A value deep inside of what may have any shape."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content
