"""``matrix.yaml`` as a validated model: the only hand-edited list of versions.

Every problem in the file is reported at once, each with file, line and key.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from torchbake import texts
from torchbake.console import nearest
from torchbake.document import Document, Location, read_document
from torchbake.errors import MatrixError
from torchbake.waivers import CHECK_ID

_NAME = r"^[a-z0-9][a-z0-9.-]*$"
_REPOSITORY = r"^[a-z0-9]+([._/-][a-z0-9]+)*$"  # the path of an OCI repository, without a host


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


_TEXT = {"type": "string"}
TorchVersion = Annotated[str, AfterValidator(texts.torch_version)]
PythonVersion = Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
Name = Annotated[str, Field(pattern=_NAME), AfterValidator(texts.name)]
LabelText = Annotated[str, AfterValidator(texts.quoted)]
Repository = Annotated[str, Field(pattern=_REPOSITORY)]
Torches = Annotated[tuple[TorchVersion, ...], BeforeValidator(_as_list), Field(min_length=1), _one_or_many(_TEXT)]
Accelerators = Annotated[
    tuple[Annotated[str, AfterValidator(texts.accelerator)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    _one_or_many({"type": "string", "pattern": r"^(cpu|cuda[1-9][0-9]*\.[0-9]+)$"}),
]
Indexes = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^(cpu|cuda([1-9][0-9]*(\.[0-9]+)?)?)$")],
        Annotated[
            tuple[Annotated[str, AfterValidator(texts.index)], ...],
            BeforeValidator(_as_list),
            WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}),
        ],
    ],
    Field(
        default_factory=dict,
        description="by accelerator (cpu, cuda, cuda12, cuda12.8), where its wheels are that PyPI lacks; asked after "
        "all that the host's pip looks in; an empty list means nowhere",
    ),
]
Waivers = Annotated[
    dict[Annotated[str, Field(pattern=CHECK_ID)], Annotated[str, Field(min_length=8)]],
    Field(
        default_factory=dict,
        description="image checks that may fail, each with the reason; `test` and the release record tell both",
    ),
]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1), _one_or_many(_TEXT)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Packages(_Model):
    """What is added to an image, on top of what torch itself needs."""

    apt: tuple[Annotated[str, AfterValidator(texts.apt_package)], ...] = Field(
        (), description="Debian packages, installed without recommends"
    )
    pip: tuple[Annotated[str, AfterValidator(texts.requirement)], ...] = Field(
        (), description="pip requirements, locked with torch; {torch} stands for the row's torch version"
    )

    def __add__(self, other: "Packages") -> "Packages":
        return Packages(
            apt=tuple(dict.fromkeys((*self.apt, *other.apt))),
            pip=tuple(dict.fromkeys((*self.pip, *other.pip))),
        )


class Base(_Model):
    """A distribution that images stand on."""

    image: Annotated[str, AfterValidator(texts.image)] = Field(
        description="where an image registry has it: debian:bookworm-slim"
    )
    suite: Name = Field(description="the Debian suite it is bootstrapped from where no registry answers")
    python: PythonVersion = Field(description="the suite's own Python")


class Flavor(_Model):
    """What an image is for."""

    packages: Packages = Packages()
    cuda_packages: dict[Annotated[str, Field(pattern=r"^cuda[1-9][0-9]*$")], Packages] = Field(
        default_factory=dict, description="added on rows of that CUDA major; {cuda} is the row's CUDA version"
    )
    headers: bool = Field(False, description="keep the C++ and CUDA headers, for building extensions")
    waive: Waivers


class Defaults(_Model):
    """What every row has unless it says otherwise."""

    cudnn: Annotated[str, Field(pattern=r"^[0-9]+$")] = "9"
    trim: bool = Field(True, description="drop what layers/trim.toml lists from the wheels")
    packages: Packages = Packages()


class Row(_Model):
    """Torch versions on accelerators, bases and flavors: every combination is an image."""

    torch: Torches
    accelerator: Accelerators
    base: Names
    flavor: Names = ("runtime",)
    cudnn: Annotated[str, Field(pattern=r"^[0-9]+$")] | None = None
    trim: bool | None = None
    packages: Packages = Packages()
    indexes: Indexes
    waive: Waivers


class Exclude(_Model):
    """Combinations that are not built. Every axis that is named must match."""

    torch: Torches | None = None
    accelerator: Accelerators | None = None
    base: Names | None = None
    flavor: Names | None = None
    reason: Annotated[str, AfterValidator(texts.one_line)] = Field(
        min_length=8, description="why; `list --explain` shows it"
    )


class ImageAddition(_Model):
    """Additions for the images whose id matches."""

    packages: Packages = Packages()
    trim: bool | None = None
    waive: Waivers


class InitImage(_Model):
    """An init container with its own version and repository."""

    version: Annotated[str, AfterValidator(texts.a_version)]
    base: str = Field(description="the base its program is compiled on; nothing of it stays in the image")
    waive: Waivers


class TagDefaults(_Model):
    """What a tag means where it says nothing."""

    accelerator: Annotated[str, Field(pattern=r"^(cpu|cuda[0-9]*(\.[0-9]+)?)$")] = "cuda"
    base: str
    flavor: str = "runtime"


class Tags(_Model):
    """The rolling tags: which forms there are, and what stands behind the short ones."""

    defaults: TagDefaults
    rolling: tuple[str, ...] = Field(min_length=1, description="forms, most specific first")


class Matrix(_Model):
    """The whole of matrix.yaml."""

    repository: Repository = Field(description="the images' repository, without a registry host")
    source: LabelText = Field("", description="where the sources live; the org.opencontainers.image.source label")
    licenses: LabelText = Field("BSD-3-Clause", description="an SPDX expression; the image.licenses label")
    defaults: Defaults = Defaults()
    indexes: Indexes
    bases: dict[Name, Base] = Field(min_length=1)
    flavors: dict[Name, Flavor] = Field(min_length=1)
    rows: tuple[Row, ...] = Field(min_length=1)
    exclude: tuple[Exclude, ...] = ()
    images: dict[str, ImageAddition] = Field(default_factory=dict)
    init: dict[Name, InitImage] = Field(default_factory=dict)
    tags: Tags


def load_matrix(path: Path) -> tuple[Matrix, Document]:
    """Read and validate; raises MatrixError that lists every problem with file, line and key."""
    document = read_document(path)
    return validate_matrix(document), document


def validate_matrix(document: Document) -> Matrix:
    """The model behind a document. Raises MatrixError."""
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of keys"
        raise MatrixError(
            f"{document.path}:1: {what}.",
            hint="It needs at least: repository, bases, flavors, rows and tags.",
        )
    try:
        return Matrix.model_validate(document.data)
    except ValidationError as error:
        # pydantic counts a list's good entries: a list of bad ones alone is not also too short.
        real = [found for found in error.errors() if found["type"] != "too_short" or not found["input"]]
        raise problems(document, [_explain(found) for found in real]) from None


def problems(document: Document, found: list[tuple[Location, str]]) -> MatrixError:
    """One error for all that is wrong, in the file's order."""
    unique = dict.fromkeys(found)  # one mistake in a row shows in each of its combinations
    lines = [f"{document.where(at)}: {text}" for at, text in sorted(unique, key=lambda p: document.line(p[0]))]
    head = lines[0] if len(lines) == 1 else f"{len(lines)} problems:\n  " + "\n  ".join(lines)
    return MatrixError(head, hint=f"Correct {document.path}; `nox -s schema` gives editors a schema for it.")


def _explain(problem: Any) -> tuple[Location, str]:
    location: Location = tuple(part for part in problem["loc"] if part != "[key]")
    kind, value = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        return location, _unknown_key(location)
    if kind == "missing":
        return location, "is missing"
    if kind == "value_error":
        return location, str(problem["ctx"]["error"])
    if kind == "string_pattern_mismatch":
        return location, f"{value!r} does not fit the form {problem['ctx']['pattern']}"
    shown = f" (got {value!r})" if isinstance(value, str) or value is None else f" (got a {_kind(value)})"
    said = _PLAIN.get(kind) or problem["msg"][0].lower() + problem["msg"][1:]
    return location, said + shown


# pydantic's words name Python's types, which a YAML file does not have.
_PLAIN = {
    "tuple_type": "should be a list",
    "dict_type": "should be a mapping",
    "model_type": "should be a mapping",
    "string_type": "should be one value",
    "too_short": "needs at least one entry",
}


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "mapping", list: "list"}
    return names.get(type(value), type(value).__name__)


def _unknown_key(location: Location) -> str:
    known = _known_keys(location[:-1])
    near = nearest(str(location[-1]), known, count=1)
    guess = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}" if known else ""
    return f"unknown key {location[-1]!r}{guess}"


def _known_keys(location: Location) -> list[str]:
    """The keys a mapping at ``location`` may have, read off the JSON Schema so that there is one list."""
    schema = Matrix.model_json_schema()
    node: dict[str, Any] = schema
    for part in location:
        node = _resolve(schema, node)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            extra: Any = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), {})
            node = node.get("properties", {}).get(part) or (extra if isinstance(extra, dict) else {})
    return list(_resolve(schema, node).get("properties", {}))


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node
