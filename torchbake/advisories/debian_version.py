"""The order of Debian versions, by deb-version(7). Pure.

https://manpages.debian.org/bookworm/dpkg-dev/deb-version.7.en.html
"""

import re

# Only a version with an epoch may have more colons.
_FORM = re.compile(
    r"(?:(?P<epoch>\d+):(?=[^:])|(?!.*:))(?P<upstream>[A-Za-z0-9.+:~-]+?)(?:-(?P<revision>[A-Za-z0-9.+~]+))?"
)
_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_END = ((0,), 0)  # above a tilde, below any other character

# The parts of a version in turn: the order of the characters before a number, and the number.
VersionParts = tuple[tuple[tuple[int, ...], int], ...]
DebianKey = tuple[int, VersionParts, VersionParts]


def debian_key(version: str) -> DebianKey:
    """Return a value that is ordered as dpkg orders the version. Raises ValueError for text that is no version."""
    match = _FORM.fullmatch(version)
    if not match:
        raise ValueError(f"{version!r} is no version of a Debian package")
    return int(match["epoch"] or 0), _parts(match["upstream"]), _parts(match["revision"] or "0")


def _parts(text: str) -> VersionParts:
    parts = [(_order(word), int(number or 0)) for word, number in _PARTS.findall(text) if word or number]
    return (*parts, _END)


def _order(word: str) -> tuple[int, ...]:
    """Return the order of the characters before a number: tilde, end, letters, others."""
    return (*(-1 if one == "~" else ord(one) + (0 if one.isalpha() else 256) for one in word), 0)
