"""Read a requirements file as a lock: pip-compile's, `uv export`'s, or pins without hashes. Pure.

Source of the format: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.projects.packages import Archive, Folder, GitSource, Source

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_HASH = re.compile(r"--hash[= ](\w+):([0-9a-fA-F]+)")
_VIA = re.compile(r"#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*$")
_INDEXES = ("--index-url", "-i", "--extra-index-url", "--find-links", "-f")
_IGNORED = ("--trusted-host", "--require-hashes", "--only-binary", "--prefer-binary", "--no-index", "--pre")
_AGAIN = "uv pip compile --generate-hashes --output-file requirements.txt requirements.in"


@dataclass(frozen=True, kw_only=True)
class RequirementLine:
    """One package of a requirements file. ``version`` and ``hashes`` are empty if it has none.

    ``source`` is None for a package of an index. ``via`` are the packages that its comments name, or None without
    comments.
    """

    number: int
    name: str
    version: str = ""
    marker: Marker | None = None
    hashes: tuple[str, ...] = ()
    source: Source | None = None
    via: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class RequirementsFile:
    """The packages of a requirements file for one Python, and the addresses of its indexes and folders of wheels."""

    lines: tuple[RequirementLine, ...]
    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()


def parse_requirements(text: str, path: str, environment: Mapping[str, str]) -> RequirementsFile:
    """Parse a requirements file, and keep the packages whose markers fit. Raises LockError with the line."""
    lines, indexes, find_links = list[RequirementLine](), list[str](), list[str]()
    for number, line, comments in _logical_lines(text):
        place = f"{path}:{number}"
        if not line.strip():  # a backslash alone
            continue
        words = _words(line, place)
        if words[0] in _INDEXES and len(words) > 1:
            (find_links if words[0] in ("--find-links", "-f") else indexes).append(words[1])
        elif words[0].startswith("-") and words[0] not in ("-e", "--editable"):
            if words[0] not in _IGNORED:
                raise _refused(place, f"{words[0]} is not read in a lock", "Write all pins into one file")
        else:
            entry = _entry(number, line, comments, place)
            if entry.marker is None or entry.marker.evaluate(environment):
                lines.append(entry)
    if not lines:
        raise _refused(path, "has no packages for this Python on Linux", "Lock the project")
    return RequirementsFile(lines=_unique(lines, path), indexes=tuple(indexes), find_links=tuple(find_links))


def _logical_lines(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number of each requirement's first line, its text, and the comments in and below it."""
    current: tuple[int, str, list[str]] | None = None
    more = False
    for number, raw in enumerate(text.splitlines(), 1):
        line, _, comment = re.sub(r"(^|\s)#", r"\1\0#", raw).partition("\0")
        if line.strip() and not more:
            if current:
                yield current
            current = (number, line.strip().rstrip("\\"), [])
        elif line.strip() and current:
            current = (current[0], f"{current[1]} {line.strip().rstrip(chr(92))}", current[2])
        if comment and current:
            current[2].append(comment)
        more = raw.rstrip().endswith("\\") or (more and not line.strip() and bool(comment))
    if current:
        yield current


def _words(line: str, place: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise _refused(place, f"cannot be read: {error}", "Correct the line") from None
    return [*words[0].split("=", 1), *words[1:]] if words[0].startswith("--") else words


def _entry(number: int, line: str, comments: list[str], place: str) -> RequirementLine:
    text = re.split(r"\s--(?:hash|config-settings?|global-option)\b", line)[0].strip()
    matches = [match[1] for comment in comments if (match := _VIA.match(comment)) and match[1] != "via"]
    via = frozenset(map(canonicalize_name, matches)) if any("via" in comment for comment in comments) else None
    editable = re.match(r"(?:-e|--editable)[ =]\s*(.*)", text)
    text = editable[1] if editable else text
    if text.startswith((".", "/", "file:")):
        return _folder(number, text, place, editable=bool(editable))
    if re.match(r"(git\+|https?:)", text):
        name = parse_qs(urlsplit(text).fragment).get("egg", [""])[0]
        if not name:
            raise _refused(place, f"{text} has no name", f"Write it with a name: NAME @ {text}")
        text = f"{name} @ {text}"
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise _refused(place, f"{text!r} is not a requirement: {str(error).splitlines()[0]}", "Correct it") from None
    source = _source(requirement, place) if requirement.url else None
    return RequirementLine(
        number=number,
        name=canonicalize_name(requirement.name),
        version="" if source else _version(requirement, place),
        marker=requirement.marker,
        hashes=_hashes(line, requirement, place),
        source=source,
        via=via,
    )


def _version(requirement: Requirement, place: str) -> str:
    pins = list(requirement.specifier)
    if len(pins) != 1 or pins[0].operator not in ("==", "===") or pins[0].version.endswith("*"):
        raise _refused(place, f"{requirement} is not pinned to one version", "Pin all packages")
    return pins[0].version


def _hashes(line: str, requirement: Requirement, place: str) -> tuple[str, ...]:
    options = _HASH.findall(line)
    fragment = parse_qs(urlsplit(requirement.url or "").fragment).get("sha256", [])
    pairs = [*options, *(("sha256", digest) for digest in fragment)]
    hashes = {f"sha256:{digest.lower()}" for kind, digest in pairs if kind == "sha256"}
    if options and not hashes:
        raise _refused(place, f"{requirement.name} has no SHA-256, but {options[0][0]}", "Lock it with SHA-256")
    if any(not re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes):
        raise _refused(place, f"{requirement.name} has a damaged SHA-256", "Lock it again")
    return tuple(sorted(hashes))


def _source(requirement: Requirement, place: str) -> Source:
    url = requirement.url or ""
    parts = urlsplit(url)
    subdirectory = parse_qs(parts.fragment).get("subdirectory", [""])[0]
    if parts.scheme == "file":
        return Folder(path=unquote(parts.path))
    if "+" not in parts.scheme:
        return Archive(url=parts._replace(fragment="").geturl(), subdirectory=subdirectory)
    if not parts.scheme.startswith("git+"):
        raise _refused(place, f"{requirement.name} is in a repository that is not git's", "Take a release of it")
    address, _, commit = parts._replace(fragment="").geturl().removeprefix("git+").rpartition("@")
    if not _COMMIT.fullmatch(commit):
        raise _refused(place, f"{requirement.name} names no commit of its repository", "Write @ and its 40 digits")
    return GitSource(url=address, commit=commit, subdirectory=subdirectory)


def _folder(number: int, text: str, place: str, *, editable: bool) -> RequirementLine:
    path, _, condition = (part.strip() for part in text.partition(" ;"))
    try:
        marker = Marker(condition) if condition else None
    except InvalidMarker as error:
        raise _refused(place, f"{condition!r} is not a marker: {str(error).splitlines()[0]}", "Correct it") from None
    path = unquote(urlsplit(path).path) if path.startswith("file:") else path.partition("[")[0]
    folder = Folder(path=posixpath.normpath(path), editable=editable)
    return RequirementLine(number=number, name="", marker=marker, source=folder)


def _unique(lines: list[RequirementLine], path: str) -> tuple[RequirementLine, ...]:
    """Return the first line of each package. Raises LockError if another line has another version or source."""
    first = dict[str, RequirementLine]()
    for line in lines:
        other = first.setdefault(line.name or str(line.source), line)
        if other is not line and (other.version, other.source) != (line.version, line.source):
            raise _refused(f"{path}:{line.number}", f"{line.name} is also in line {other.number}", "Keep one of them")
    return tuple(first.values())


def _refused(place: str, what: str, step: str) -> LockError:
    return LockError(f"{place}: {what}.", hint=f"{step}; to write such a file: {_AGAIN}")
