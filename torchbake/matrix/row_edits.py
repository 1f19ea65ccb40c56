"""Write proposals into the text of matrix.yaml, whose other lines and comments stay as they are. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from torchbake.errors import MatrixError
from torchbake.matrix.expand import Expansion, expand
from torchbake.matrix.model import Exclude, Matrix, Row, validate_matrix
from torchbake.matrix.proposals import Proposal, judged_alone
from torchbake.matrix.spec import AMD64, ImageSpec, pytorch_of
from torchbake.matrix.yaml_source import Document, Location, parse_document

_BY_HAND = "Change the file by hand: docs/reference/matrix.md has every key."


class _PlainDumper(yaml.SafeDumper):
    """Writes texts without quotes wherever they stay texts for torchbake, which reads every value as a text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the base class declares it so


def with_proposals(text: str, path: Path, proposals: Iterable[Proposal]) -> str:
    """Return the text of a matrix with all proposals. The ``path`` only names it in messages.

    Raises MatrixError if a place cannot be edited, or if the result would not be a matrix with these images.
    """
    for proposal in proposals:
        document = parse_document(text, path)
        matrix = validate_matrix(document)
        before = expand(matrix, document)
        edit = _replaced if proposal.replaces else _added
        text = edit(text, document, matrix, before, proposal)
        _check(text, path, before, proposal)
    return text


def _check(text: str, path: Path, before: Expansion, proposal: Proposal) -> None:
    """Check that the edit has made the images of the proposal, and has removed only images of the replaced version."""
    try:
        document = parse_document(text, path)
        after = expand(validate_matrix(document), document)
    except MatrixError as error:
        raise MatrixError(
            f"torch {proposal.release.version} would make the matrix invalid: {error.message}", hint=_BY_HAND
        ) from None
    old, new = ({spec.id for spec in each.specs} for each in (before, after))
    others = {name for name in old - new if not (proposal.replaces and name.startswith(f"{proposal.replaces}-"))}
    if others or not any(name.startswith(f"{proposal.release.version}-") for name in new - old):
        raise MatrixError(f"{path}: torch {proposal.release.version} cannot be written into it.", hint=_BY_HAND)


def _replaced(text: str, document: Document, matrix: Matrix, _: Expansion, proposal: Proposal) -> str:
    """Replace a version in each row and exclusion with the proposal's accelerator."""
    lines = text.splitlines(keepends=True)
    version = re.compile(rf"(?<![\w.]){re.escape(proposal.replaces)}(?![\w.])")
    for location in _places(document, matrix, proposal):
        number = document.line(location) - 1
        lines[number], count = version.subn(str(proposal.release.version), lines[number])
        if count != 1:
            raise MatrixError(
                f"{document.where(location)}: the line does not have {proposal.replaces} once.", hint=_BY_HAND
            )
    return "".join(lines)


def _places(document: Document, matrix: Matrix, proposal: Proposal) -> Iterator[Location]:
    """Yield the location of each version that the proposal replaces."""
    accelerator = str(proposal.release.accelerator)
    places: list[tuple[Location, Row | Exclude]] = [
        (("rows", number), row)
        for number, row in enumerate(matrix.rows)
        if row.project is None and AMD64 in (row.platforms or matrix.defaults.platforms)
    ]
    places += [(("exclude", number), exclude) for number, exclude in enumerate(matrix.exclude)]
    for at, axes in places:
        if axes.torch and proposal.replaces in axes.torch and accelerator in (axes.accelerator or (accelerator,)):
            inner = (*at, "torch", axes.torch.index(proposal.replaces))
            yield inner if inner in document.lines else (*at, "torch")


def _added(text: str, document: Document, matrix: Matrix, before: Expansion, proposal: Proposal) -> str:
    """Add a row after the row of the newest torch of the same kind, with that row's other keys."""
    release = proposal.release
    alone = [spec for spec in pytorch_of(before.specs) if judged_alone(spec) and spec.family == release.kind]
    specs = [spec for spec in alone if spec.base.python in release.pythons]
    model = max(specs, key=lambda spec: (spec.version, spec.accelerator, sum(spec.line == each.line for each in specs)))
    number = next(place for place in range(len(matrix.rows)) if document.line(("rows", place)) == model.line)
    lines = text.splitlines(keepends=True)
    match = re.match(r"( *)- ", lines[model.line - 1])
    if not match:
        raise MatrixError(f"{document.where(('rows', number))}: is no entry of a block list.", hint=_BY_HAND)
    pythons = {name: base.python for name, base in matrix.bases.items()}
    row = _row(document.data["rows"][number], model, pythons, proposal)
    newline = "\r\n" if lines[0].endswith("\r\n") else "\n"
    style: dict[str, Any] = {"default_flow_style": None, "width": 120, "allow_unicode": True, "line_break": newline}
    new = yaml.dump([row], Dumper=_PlainDumper, sort_keys=False, **style)
    end = _end(lines, document, number)
    blank = [newline] if any(not line.strip() for line in lines[document.line(("rows",)) - 1 : end]) else []
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += newline
    lines[end:end] = [*blank, *(match[1] + line for line in new.splitlines(keepends=True))]
    return "".join(lines)


def _row(row: Mapping[str, Any], model: ImageSpec, pythons: Mapping[str, str], proposal: Proposal) -> dict[str, Any]:
    """Return a copy of a row for the release: its versions, its reason, and the bases for which it has a wheel."""
    release, old = proposal.release, model.accelerator.cuda
    names = row["base"] if isinstance(row["base"], list) else [row["base"]]
    bases = [name for name in names if pythons[name] in release.pythons]
    copy: dict[str, Any] = {
        "torch": str(release.version),
        "reason": proposal.reason,
        "accelerator": str(release.accelerator),
    }
    copy |= {key: value for key, value in row.items() if key not in copy} | {"base": bases}
    packages = row.get("packages")
    if old and release.accelerator and isinstance(packages, dict) and isinstance(packages.get("pip"), list):
        pip = [each.replace(f"=={old}.*", f"=={release.accelerator.cuda}.*") for each in packages["pip"]]
        copy["packages"] = packages | {"pip": pip}
    return copy


def _end(lines: list[str], document: Document, number: int) -> int:
    """Return the number of lines up to the end of a row, without blank lines and comments below it."""
    start = document.line(("rows", number))
    later = [line for at, line in document.lines.items() if len(at) <= 2 and line > start]
    end = min(later, default=len(lines) + 1) - 1
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1
    return end
