"""Find the reason of a tool's failure in its output. Pure.

Errors of apt begin with ``E:``, or with ``W:`` for a list that it could not fetch. Errors of pip and uv begin with
``error:`` and have indented lines below. Known are also dpkg, compilers, and the last line of Python's traceback.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

_LONGEST = 600  # characters
_MARK = re.compile(
    r"E: |W: (?:Failed to fetch|GPG error)|\s*× |(?:[\w./+:-]+: )?(?:fatal |)(?:error|ERROR|fatal)\b|\w*Error: "
)
_NOISE = re.compile(
    r"E: (?:mmdebstrap failed|apt-get .* failed|Some index files|Sub-process)|subprocess\.|CalledProcessError"
)
_BELOW = re.compile(r"\s+\S|\s*$")
_MOST_BELOW = 8  # lines
_GO_CAUSES = {
    "EOF": "the connection was closed",
    "context deadline exceeded": "no answer in time",
    "i/o timeout": "no answer in time",
}
_VERSIONS = re.compile(r" \(from versions: [^)]*\)")


def cause_of_request(line: str) -> str:
    """Return the cause in a message of Go's HTTP client, without the request: ``no such host``.

    The client puts each step before its cause: ``ERROR: failed to do request: Head "URL": dial tcp: lookup HOST: no
    such host``.
    """
    cause = line.strip().rpartition(": ")[2].rstrip(".")
    return _GO_CAUSES.get(cause.partition(" (")[0], cause)


def cause_of(lines: Iterable[str]) -> str:
    """Return the first error that names a reason, in one line; empty if no line looks like an error."""
    matches = [text for text in _errors([line.rstrip() for line in lines]) if not _NOISE.match(text)]
    errors = [text for text in matches if not text.startswith("W: ")]
    if not errors:
        return ""
    # apt continues without a list that it could not fetch, and then reports an unknown package.
    apt = errors[0].startswith("E: ") and "Failed to fetch" not in errors[0]
    warnings = [text for text in matches if text.startswith("W: ")][:1] if apt else []
    text = "; ".join([*warnings, errors[0]])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """Yield each error with its indented lines."""
    for number, line in enumerate(lines):
        if _MARK.match(line):
            below = () if line.startswith(("E: ", "W: ")) else lines[number + 1 :][:_MOST_BELOW]
            yield _VERSIONS.sub("", " ".join(" ".join([line, *takewhile(_BELOW.match, below)]).split()))
