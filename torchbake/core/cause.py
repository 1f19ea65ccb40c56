"""Why a tool failed, in its own words, out of all the lines that it wrote. Pure.

Known are apt (``E:``, and ``W:`` where that tells why), pip and uv (``error:`` and what is indented below), dpkg,
compilers, and Python's last line.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

_LONGEST = 600  # characters
_MARK = re.compile(
    r"E: |W: (?:Failed to fetch|GPG error)|\s*× |(?:[\w./+:-]+: )?(?:fatal |)(?:error|ERROR|fatal)\b|\w*Error: "
)
_NOISE = re.compile(
    r"E: (?:mmdebstrap failed|apt-get .* failed|Some index files|Sub-process)|subprocess\.|CalledProcessError"
)
_BELOW = re.compile(r"\s+\S|\s*$")
_MOST_BELOW = 8  # lines
_VERSIONS = re.compile(r" \(from versions: [^)]*\)")


def cause_of(lines: Iterable[str]) -> str:
    """The first error that says something, in one line; empty where no line looks like one."""
    found = [said for said in _errors([line.rstrip() for line in lines]) if not _NOISE.match(said)]
    errors = [said for said in found if not said.startswith("W: ")]
    if not errors:
        return ""
    # apt goes on without the lists that it did not get, and then knows no package.
    before = [said for said in found if said.startswith("W: ")][:1] if errors[0].startswith("E: ") else []
    text = "; ".join([*before, errors[0]] if "Failed to fetch" not in errors[0] else errors[:1])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """Each error with what belongs to it."""
    for number, line in enumerate(lines):
        if _MARK.match(line):
            below = [] if line.startswith(("E: ", "W: ")) else _indented(lines[number + 1 :])
            yield _VERSIONS.sub("", " ".join(" ".join([line, *below]).split()))


def _indented(lines: Sequence[str]) -> list[str]:
    end = next((number for number, line in enumerate(lines) if not _BELOW.match(line)), len(lines))
    return list(lines[:end][:_MOST_BELOW])
