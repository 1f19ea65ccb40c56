"""Versions that must be inside an image: read from the command line, compared with what was found. Pure."""

from collections.abc import Mapping

from torchbake.oci.labels import VERSIONS, versions_in

_NONE = "none"

Versions = Mapping[str, str | None]  # None: it must not be there, or is not there


def parse_expected(text: str) -> dict[str, str | None]:
    """``torch=2.10.0,cuda=12.8``; ``cuda=none`` means that it must not be there.

    Raises ValueError with a sentence.
    """
    found: dict[str, str | None] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        key, _, value = (part.strip() for part in word.partition("="))
        if key not in VERSIONS:
            raise ValueError(f"{key!r} cannot be expected, choose from {', '.join(VERSIONS)}")
        if not value or key in found:
            raise ValueError(f"{word!r}: write {key}=VERSION once, or {key}={_NONE}")
        found[key] = None if value == _NONE else value
    if not found:
        raise ValueError("nothing is expected; write torch=2.10.0,cuda=12.8")
    return found


def disagreements(expected: Versions, found: Versions) -> list[str]:
    """A sentence for each version that is not as expected, by the same rules as the payload `versions`."""
    return [
        f"{key} is {found.get(key) or 'not there'}, not {wanted or 'absent'}"
        for key, wanted in expected.items()
        if not agree(key, wanted, found.get(key))
    ]


def agree(key: str, wanted: str | None, found: str | None) -> bool:
    """Versions are as exact as the shorter of the two; torch's release is whole, its local part may be left out."""
    if wanted is None or found is None:
        return wanted == found
    if key == "torch":
        release, _, local = wanted.partition("+")
        found_release, _, found_local = found.partition("+")
        return release == found_release and local in ("", found_local)
    return all(one == other for one, other in zip(wanted.split("."), found.split("."), strict=False))


def most_exact(promised: Versions, labels: Mapping[str, str]) -> dict[str, str | None]:
    """What must be inside an image: what is promised of it, as exactly as labels tell that do not contradict it.

    A version that only a label names is trusted to be inside too.
    """
    told = versions_in(labels)
    exact = {
        key: told[key] if key in told and agree(key, wanted, told[key]) else wanted for key, wanted in promised.items()
    }
    return {**told, **exact}
