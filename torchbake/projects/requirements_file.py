"""Read a requirements file as a lock: pip-compile's, `uv export`'s, or pins without hashes. Pure.

Source of the format: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import contextlib
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from torchbake.errors import LockError
from torchbake.projects.packages import Archive, Folder, GitSource, Source
from torchbake.projects.wheels_folder import wheel_name

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_HASH = re.compile(r"--hash[= ](\w+):([0-9a-fA-F]+)")
_VIA = re.compile(r"#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*$")
_INDEXES = ("--index-url", "-i", "--extra-index-url", "--find-links", "-f")
_IGNORED = ("--trusted-host", "--require-hashes", "--only-binary", "--prefer-binary", "--no-index", "--pre")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")  # as pip expands it
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


def parse_requirements(
    text: str, path: str, environment: Mapping[str, str], variables: Mapping[str, str]
) -> RequirementsFile:
    """Parse a requirements file, and keep the packages whose markers fit. Raises LockError with the line.

    ``environment`` has the values of markers. ``${NAME}`` in an address is the value of NAME in ``variables``.
    """
    lines, indexes, find_links = list[RequirementLine](), list[str](), list[str]()
    for number, line, comments in _logical_lines(text):
        place = f"{path}:{number}"
        if not line.strip():  # a backslash alone
            continue
        words = _words(line, place)
        if words[0] in _INDEXES and len(words) > 1:
            places = find_links if words[0] in ("--find-links", "-f") else indexes
            places.append(expand_variables(words[1], variables, place))
        elif words[0].startswith("-") and words[0] not in ("-e", "--editable"):
            if words[0] not in _IGNORED:
                raise _refused(place, f"{words[0]} is not read in a lock", "Write all pins into one file")
        else:
            entry = _entry(number, line, comments, place, variables)
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


def expand_variables(address: str, variables: Mapping[str, str], place: str) -> str:
    """Replace each ``${NAME}`` in an address. Raises LockError for a variable that is not set or empty.

    Source: https://pip.pypa.io/en/stable/reference/requirements-file-format/#using-environment-variables
    """
    missing = [name for name in _VARIABLE.findall(address) if not variables.get(name)]
    if missing:
        raise LockError(
            f"{place}: the variable {missing[0]} is not set, but an address in this line needs it.",
            hint=f"Set it, as for pip: {missing[0]}=… before the command.",
        )
    return _VARIABLE.sub(lambda match: variables[match[1]], address)


@contextlib.contextmanager
def hidden_values(text: str, variables: Mapping[str, str]) -> Iterator[None]:
    """Raise errors without the values of the variables in a requirements file: such values are often secret."""
    try:
        yield
    except LockError as error:
        message = error.message
        for name in _VARIABLE.findall(text):
            message = message.replace(variables.get(name) or "\0", f"${{{name}}}")
        raise LockError(message, hint=error.hint) from None


def _entry(number: int, line: str, comments: list[str], place: str, variables: Mapping[str, str]) -> RequirementLine:
    text = re.split(r"\s--(?:hash|config-settings?|global-option)\b", line)[0].strip()
    matches = [match[1] for comment in comments if (match := _VIA.match(comment)) and match[1] != "via"]
    via = frozenset(map(canonicalize_name, matches)) if any("via" in comment for comment in comments) else None
    editable = re.match(r"(?:-e|--editable)[ =]\s*(.*)", text)
    text = editable[1] if editable else text
    if text.startswith((".", "/", "file:")) and not _is_archive(text.partition(" ;")[0]):
        return _folder(number, text, place, editable=bool(editable))
    requirement = _requirement(text, place)
    url = expand_variables(requirement.url or "", variables, place)
    source = _source(requirement.name, url, place) if url else None
    return RequirementLine(
        number=number,
        name=canonicalize_name(requirement.name),
        version=_version_of_file(requirement, source, place) if source else _version(requirement, place),
        marker=requirement.marker,
        hashes=_hashes(line, requirement, place),
        source=source,
        via=via,
    )


def _requirement(text: str, place: str) -> Requirement:
    """Parse a requirement. An address or a path alone gets the name in it. Raises LockError."""
    address = text.partition(" ;")[0].strip()
    if re.match(r"(git\+|https?:|file:|[./])", text):
        name = parse_qs(urlsplit(address).fragment).get("egg", [""])[0] or _of_file_name(address)[0]
        if not name:
            raise _refused(place, f"{address} has no name", f"Write it with a name: NAME @ {address}")
        text = f"{name} @ {text}"
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise _refused(place, f"{text!r} is not a requirement: {str(error).splitlines()[0]}", "Correct it") from None


def _is_archive(address: str) -> bool:
    return urlsplit(address.strip()).path.endswith((".whl", ".tar.gz", ".zip"))


def _of_file_name(address: str) -> tuple[str, str]:
    """Return the name and the version in the file name of an address; empty ones if it has none."""
    name = wheel_name(Archive(url=address))
    try:
        parsed = parse_wheel_filename(name)[:2] if name.endswith(".whl") else parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return "", ""
    return parsed[0], str(parsed[1])


def _version_of_file(requirement: Requirement, source: Source, place: str) -> str:
    """Return the version of a wheel by its file name; empty for other sources."""
    if not isinstance(source, Archive) or not wheel_name(source).endswith(".whl"):
        return ""
    name, version = _of_file_name(source.url)
    if name != canonicalize_name(requirement.name):
        what = f"the wheel of {name}" if name else "no name of a wheel"
        raise _refused(place, f"{wheel_name(source)} is {what}, not one of {requirement.name}", "Correct the address")
    return version


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


def _source(name: str, url: str, place: str) -> Source:
    parts = urlsplit(url)
    subdirectory = parse_qs(parts.fragment).get("subdirectory", [""])[0]
    if parts.scheme == "file" and not _is_archive(url):
        return Folder(path=unquote(parts.path))
    if parts.scheme in ("", "file"):
        return Archive(url=unquote(parts.path))
    if "+" not in parts.scheme:
        return Archive(url=parts._replace(fragment="").geturl(), subdirectory=subdirectory)
    if not parts.scheme.startswith("git+"):
        raise _refused(place, f"{name} is in a repository that is not git's", "Take a release of it")
    address, _, commit = parts._replace(fragment="").geturl().removeprefix("git+").rpartition("@")
    if not _COMMIT.fullmatch(commit):
        raise _refused(place, f"{name} names no commit of its repository", "Write @ and its 40 digits")
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
