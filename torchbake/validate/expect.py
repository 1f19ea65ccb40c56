"""Versions that an image must contain: read from the command line, compared with those of the image. Pure."""

from collections.abc import Mapping

from torchbake.oci.labels import VERSIONS, versions_in

_NONE = "none"

Versions = Mapping[str, str | None]  # None: the package must be absent, or is absent


def parse_expected(text: str) -> dict[str, str | None]:
    """Parse ``torch=2.10.0,cuda=12.8``; ``cuda=none`` means that it must be absent. Raise ValueError."""
    matches: dict[str, str | None] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        key, _, value = (part.strip() for part in word.partition("="))
        if key not in VERSIONS:
            raise ValueError(f"{key!r} cannot be expected, choose from {', '.join(VERSIONS)}")
        if not value or key in matches:
            raise ValueError(f"{word!r}: write {key}=VERSION once, or {key}={_NONE}")
        matches[key] = None if value == _NONE else value
    if not matches:
        raise ValueError("nothing is expected; write torch=2.10.0,cuda=12.8")
    return matches


def disagreements(expected: Versions, actual: Versions) -> list[str]:
    """Return a sentence for each version that is not as expected, by the same rules as the payload `versions`."""
    return [
        f"{key} is {actual.get(key) or 'not there'}, not {expected_value or 'absent'}"
        for key, expected_value in expected.items()
        if not agree(key, expected_value, actual.get(key))
    ]


def agree(key: str, expected: str | None, actual: str | None) -> bool:
    """Compare two versions to the precision of the shorter one; of torch's, only the local part may be missing."""
    if expected is None or actual is None:
        return expected == actual
    if key == "torch":
        release, _, local = expected.partition("+")
        found_release, _, found_local = actual.partition("+")
        return release == found_release and local in ("", found_local)
    return all(one == other for one, other in zip(expected.split("."), actual.split("."), strict=False))


def most_exact(promises: Versions, labels: Mapping[str, str]) -> dict[str, str | None]:
    """Return the versions that an image must contain: the promised ones, with the precision of labels that agree.

    A version that only a label names is expected, too.
    """
    labelled = versions_in(labels)
    wrong = {
        key: expected_value
        for key, expected_value in promises.items()
        if not agree(key, expected_value, labelled.get(key))
    }
    return {**promises, **labelled, **wrong}
