"""A YAML file as plain values, with the line of every key.

Scalars stay the text that was written: `torch: 2.10` is the version "2.10", never the number 2.1.
"""

import dataclasses
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from torchbake.core.file_format import why_too_new
from torchbake.core.files import read_text
from torchbake.errors import MatrixError

Location: TypeAlias = tuple[str | int, ...]

FORMAT_KEY = "format"
_DEEPEST = 50
_MOST = 200_000  # ten thousand rows have fewer

try:  # libyaml, which is ten times faster, if PyYAML's wheel has it
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - depends on how PyYAML was built
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """``data`` holds dicts, lists, strings and None; ``lines`` maps a path of keys to its 1-based line."""

    path: Path
    data: Any
    lines: dict[Location, int]

    @property
    def shape_problem(self) -> str:
        """Why the file is not a mapping of keys, as a sentence with its place; empty if it is one."""
        if isinstance(self.data, dict):
            return ""
        return f"{self.path}:1: {'is empty' if self.data is None else 'is not a mapping of keys'}."

    def newer_format(self, kind: str) -> str:
        """Why this torchbake cannot read the file's format, as a sentence with its place; empty if it can."""
        reason = why_too_new(kind, self.data.get(FORMAT_KEY)) if isinstance(self.data, dict) else ""
        return f"{self.where((FORMAT_KEY,))}: {reason}." if reason else ""

    def line(self, location: Location) -> int:
        """Return the line of ``location``, or of its nearest parent in the file."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def where(self, location: Location) -> str:
        """Return ``file:line: key.path``, which editors and CI logs turn into a link."""
        key = ".".join(str(part) for part in location)
        return f"{self.path}:{self.line(location)}" + (f": {key}" if key else "")


def read_document(path: Path, *, named_by: str = "--matrix FILE") -> Document:
    """Read a YAML file. Messages name the option ``named_by``.

    Raises MatrixError (no file, not UTF-8, syntax, duplicate key).
    """
    return parse_document(_read_text(path, named_by), path)


def parse_document(text: str, path: Path) -> Document:
    """Parse YAML text; ``path`` only names it in messages."""
    try:
        _check_depth(text, path)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _syntax_error(path, error) from None
    lines: dict[Location, int] = {}
    data = None if node is None else _value(node, (), lines, path, frozenset())
    return Document(path=path, data=data, lines=lines)


def _check_depth(text: str, path: Path) -> None:
    """Check the depth by the events of the parser, since composition recurses in C without a limit."""
    depth = line = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else line
        if depth > _DEEPEST:
            raise _too_deep(path, line)


def _too_deep(path: Path, line: int) -> MatrixError:
    return MatrixError(
        f"{path}:{line}: is nested more than {_DEEPEST} levels deep.",
        hint="A matrix needs six, a job ten; look for brackets that are not closed.",
    )


def _read_text(path: Path, named_by: str) -> str:
    known_names: dict[type[OSError], tuple[str, str]] = {
        FileNotFoundError: ("no such file", f"Run in the project's folder, or name the file: {named_by}."),
        IsADirectoryError: ("is a folder, not a file", f"Name the file: {named_by}."),
        PermissionError: ("permission denied", "Make the file readable."),
    }
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise MatrixError(f"{path}: is not UTF-8 text (byte {error.start}).", hint="Save the file as UTF-8.") from None
    except OSError as error:
        problem, hint = known_names.get(type(error), (error.strerror, f"Name a plain file: {named_by}."))
        raise MatrixError(f"{path}: {problem}.", hint=hint) from None


def _syntax_error(path: Path, error: yaml.YAMLError) -> MatrixError:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    if mark and "nesting depth" in problem:  # the limit of newer versions of libyaml, whose scanner reads ahead
        return _too_deep(path, mark.line + 1)
    context = getattr(error, "context", None)
    return MatrixError(
        f"{where}: YAML syntax: {problem}" + (f" ({context})" if context else ""),
        hint="Check the indentation, colons and quotes at and above that line.",
    )


def _value(node: yaml.Node, location: Location, lines: dict[Location, int], path: Path, above: frozenset[int]) -> Any:
    lines.setdefault(location, node.start_mark.line + 1)
    if len(lines) > _MOST:
        raise MatrixError(
            f"{path}:{node.start_mark.line + 1}: holds more than {_MOST} values once its aliases are filled in.",
            hint="Use fewer aliases, or split the file.",
        )
    if id(node) in above:
        raise MatrixError(f"{path}:{node.start_mark.line + 1}: an alias contains itself.", hint="Remove the alias.")
    above = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, location, lines, path, above)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*location, i), lines, path, above) for i, item in enumerate(node.value)]
    return None if node.tag.endswith(":null") else node.value


def _mapping(
    node: yaml.MappingNode, location: Location, lines: dict[Location, int], path: Path, above: frozenset[int]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise MatrixError(f"{path}:{line}: a key must be a plain word.", hint="Write `key: value`.")
        key = key_node.value
        if key in result:
            first = lines[(*location, key)]
            raise MatrixError(
                f"{path}:{line}: {'.'.join(map(str, (*location, key)))}: duplicate key, first on line {first}.",
                hint="Keep one of the two.",
            )
        lines[(*location, key)] = line
        result[key] = _value(value_node, (*location, key), lines, path, above)
    return result
