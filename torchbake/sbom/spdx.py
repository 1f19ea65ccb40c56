"""Licenses in package metadata: SPDX expressions if these are certain, else the package's own words.

Expressions: https://spdx.github.io/spdx-spec/v2.3/SPDX-license-expressions/
"""

import re
from collections.abc import Iterable, Sequence

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

_LONGEST = 1000  # characters of an expression; a longer one is a license text
_SHORT = 100  # characters of a name; a longer one is a license text

# Unambiguous names in wheels. "BSD" and "Apache Software License" are missing, as they have no version:
# https://peps.python.org/pep-0639/#mapping-license-classifiers-to-spdx-identifiers
_ALIASES = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "2-clause bsd license": "BSD-2-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd-3-clause license": "BSD-3-Clause",
    "modified bsd license": "BSD-3-Clause",
    "new bsd license": "BSD-3-Clause",
    "expat": "MIT",
    "mit license": "MIT",
    "the mit license": "MIT",
    "the mit license (mit)": "MIT",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "lgplv3": "LGPL-3.0-only",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "gnu lesser general public license v3 or later (lgplv3+)": "LGPL-3.0-or-later",
    "gnu lesser general public license v2 or later (lgplv2+)": "LGPL-2.0-or-later",
    "gplv2": "GPL-2.0-only",
    "gplv3": "GPL-3.0-only",
    "gnu general public license v2 (gplv2)": "GPL-2.0-only",
    "gnu general public license v2 or later (gplv2+)": "GPL-2.0-or-later",
    "gnu general public license v3 (gplv3)": "GPL-3.0-only",
    "gnu general public license v3 or later (gplv3+)": "GPL-3.0-or-later",
    "mpl 2.0": "MPL-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "cc0 1.0 universal (cc0 1.0) public domain dedication": "CC0-1.0",
    "boost software license 1.0 (bsl-1.0)": "BSL-1.0",
    "historical permission notice and disclaimer (hpnd)": "HPND",
    "the unlicense (unlicense)": "Unlicense",
    "universal permissive license (upl)": "UPL-1.0",
    "zlib/libpng license": "Zlib",
    "bsd license": "BSD",  # not in SPDX: two spellings of one name
}
_SILENT = {"", "unknown", "none", "license", "other", "other/proprietary license", "osi approved"}
_GNU = re.compile(r"(?P<family>[AL]?GPL|GFDL)(?P<niv>-NIV)?-(?P<major>\d)(?:\.(?P<minor>\d))?(?P<later>\+)?", re.I)
_TERM = re.compile(r"[\w.+~/()-]+(?:\s+with\s+[\w.+ -]{1,60}?\s+exceptions?|\s+with\s+[\w.+-]+)?", re.I)
_JOINT = re.compile(r"(,?\s+and\s+|,?\s+or\s+|,\s*)", re.I)


def expression(text: str) -> str | None:
    """Return ``text`` as a canonical SPDX expression, or None if it is not one."""
    if len(text) > _LONGEST:
        return None
    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None


def normal(text: str) -> str:
    """Return the SPDX name of an unambiguous license, else the text on one line."""
    text = " ".join(text.split())
    return expression(text) or _ALIASES.get(text.lower(), text)


def of_wheel(
    *, stated: str = "", field: str = "", classifiers: Iterable[str] = (), files: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the licenses of a wheel: its expression, else the more exact one of its field and classifiers.

    ``field`` is the old License field, which can be the whole text of a license; ``classifiers`` are those below
    ``License ::``. Without all of them, return a reference to the license ``files``. Source:
    https://packaging.python.org/en/latest/specifications/core-metadata/
    """
    if stated.strip():
        return (normal(stated),)
    name = _name(field)
    classes = tuple(dict.fromkeys(normal(text.rpartition("::")[2]) for text in classifiers))
    classes = tuple(text for text in classes if text.lower() not in _SILENT)
    if classes and (not name or (not expression(name) and all(map(expression, classes)))):
        return tuple(sorted(classes))
    if name:
        return (name,)
    return (f"said in {', '.join(files)}",) if files else ()


def _name(field: str) -> str:
    """Return the name in a License field: its only line, or the title of a text if it is that of a known license."""
    lines = [line.strip(" \t|") for line in field.splitlines() if line.strip(" \t|")]
    title = normal(lines[0]) if lines else ""
    if title.lower() in _SILENT or len(title) > _SHORT or (len(lines) > 1 and not expression(title)):
        return ""
    return title


def of_debian(synopsis: str) -> str | None:
    """Return the short name of a `License:` field, or names with `and` and `or`; None for a license text.

    Source: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/#license-short-name
    """
    text = " ".join(synopsis.split())
    parts = _JOINT.split(text)
    terms, joints = parts[::2], {joint.strip(" ,").upper() for joint in parts[1::2]}
    if len(text) > _LONGEST or not all(map(_TERM.fullmatch, terms)):
        return None
    known_names = [_debian_term(term) for term in terms]
    # A comma changes the precedence, so only names that are joined by the same word become an SPDX expression.
    if not all(map(expression, known_names)) or len(joints) > 1 or "," in text:
        return known_names[0] if len(known_names) == 1 else text
    return f" {''.join(joints)} ".join(dict.fromkeys(known_names))


def _debian_term(term: str) -> str:
    match = _GNU.fullmatch(term)
    if not match:
        return normal(term)
    version = f"{match['family'].upper()}-{match['major']}.{match['minor'] or 0}"
    return f"{version}{'-no-invariants' if match['niv'] else ''}-{'or-later' if match['later'] else 'only'}"
