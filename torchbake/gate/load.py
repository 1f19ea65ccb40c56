"""Reads and validates a gate's file. Every problem is reported at once, each with file, line and key."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from torchbake.core.file_format import UPGRADE
from torchbake.errors import GateError, MatrixError
from torchbake.gate.model import GateFile
from torchbake.matrix.problems import explain, problems
from torchbake.matrix.yaml_source import Document, Location, parse_document, read_document
from torchbake.ui.command import Command

_HINT = f"Every key: {Command('help', 'gate')}"


def load_gate(path: Path) -> GateFile:
    """Read and validate a gate's file. Raises GateError with every problem."""
    try:
        document = read_document(path, named_by="--gate FILE")
    except MatrixError as error:
        raise GateError(error.message, hint=error.hint) from None
    return validate_gate(document)


def read_gate(text: str, path: Path) -> GateFile:
    """Validate the text of a gate; ``path`` only names it in messages. Raises GateError."""
    try:
        document = parse_document(text, path)
    except MatrixError as error:
        raise GateError(error.message, hint=error.hint) from None
    return validate_gate(document)


def validate_gate(document: Document) -> GateFile:
    """Return the gate of a document. Raises GateError."""
    if document.shape_problem:
        raise GateError(document.shape_problem, hint="It needs at least: refuse, and advisories or reports.")
    if newer := document.newer_format("gate"):
        raise GateError(newer, hint=UPGRADE)
    try:
        gate = GateFile.model_validate(document.data)
    except ValidationError as error:
        raise _problems(document, [explain(detail, GateFile) for detail in error.errors()]) from None
    if repeated := list(_repeated(gate, document)):
        raise _problems(document, repeated)
    return gate


def _repeated(gate: GateFile, document: Document) -> Iterator[tuple[Location, str]]:
    lines: dict[tuple[str, str | None], int] = {}
    for number, entry in enumerate(gate.allow):
        place, key = ("allow", number), (entry.id.upper(), entry.package)
        if key in lines:
            yield place, f"{entry.id} is allowed already on line {lines[key]}: keep one of the two"
        lines.setdefault(key, document.line(place))


def _problems(document: Document, errors: list[tuple[Location, str]]) -> GateError:
    return GateError(problems(document, errors).message, hint=f"Correct {document.path}. {_HINT}")
