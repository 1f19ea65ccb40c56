"""The registry of a command: that of the option, of the environment, or of the matrix."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchbake import REGISTRY_VARIABLE
from torchbake.errors import MatrixError, UsageError
from torchbake.matrix.yaml_source import read_document
from torchbake.oci.reference import names_host, parse_registry
from torchbake.ui import console

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Arguments = TypeVar("Arguments", bound=DataclassInstance)

OPTION = "--registry"
_ONCE = f"write it into matrix.yaml (`registry: ghcr.io/acme`), or set {REGISTRY_VARIABLE}."
_HINT = f"Name it: --registry HOST/NAMESPACE. To type it once, {_ONCE}"


@dataclass(frozen=True, kw_only=True)
class RegistryChoice:
    """A registry with its namespace, such as ``ghcr.io/acme``, and a sentence that says where it comes from.

    The sentence is empty if the command line alone names the registry, and changes no namespace.
    """

    registry: str
    message: str = ""


def choose(sources: Sequence[tuple[str, str]], repository: str) -> RegistryChoice:
    """Choose the first registry of (source, registry), and give it the namespace of ``repository`` if it has none.

    Raises UsageError for text that is no registry.
    """
    (origin, text), *others = sources
    registry, path = parse_registry(text), _path_of(repository)
    namespace = path.rpartition("/")[0]
    result = text if registry.path else registry.host
    if namespace and not registry.path:
        result = str(registry / namespace)
    passed_over = [f"{other} of {source}" for source, other in others if other not in (text, result)]
    words = [f"{result}, by {origin}"] + ([f"not {passed_over[0]}"] if passed_over else [])
    if namespace and f"/{result}/".find(f"/{namespace}/") < 0:
        words.append(f"without the namespace {namespace} of {repository}")
    is_plain = origin.startswith("--") and len(words) == 1 and result == text
    return RegistryChoice(registry=result, message="" if is_plain else f"registry: {', '.join(words)}")


def with_registry(args: "Arguments") -> "Arguments":
    """Fill in the registry of a command that takes one, and say where it comes from.

    An empty text on the command line means that there is none. Raises UsageError if the command needs one.
    """
    field = next((each for each in fields(args) if "registry_use" in each.metadata), None)
    if field is None:
        return args
    values: Any = args
    use, typed = field.metadata["registry_use"], getattr(args, field.name)
    is_configured = typed != "" and use.configured(args)
    document = _document(values.matrix) if typed or is_configured else {}
    sources = [(OPTION, typed)] if typed else []
    if is_configured:
        sources += _configured(document, values.matrix.name)
    if not sources:
        if use.required:
            raise UsageError(f"{OPTION} is empty." if typed == "" else "Which registry?", hint=_HINT)
        return replace(args, **{field.name: None})
    choice = _choose(sources, document)
    if choice.message:
        console.say(choice.message, style="dim")
    return replace(args, **{field.name: choice.registry})


def configured_registry(matrix: Path) -> str:
    """Return the registry of the environment or of a matrix, with its namespace; empty if neither names one.

    Raises UsageError for text that is no registry.
    """
    document = _document(matrix)
    sources = list(_configured(document, matrix.name))
    return _choose(sources, document).registry if sources else ""


def _choose(sources: Sequence[tuple[str, str]], document: Mapping[str, Any]) -> RegistryChoice:
    repository = document.get("repository")
    return choose(sources, repository if isinstance(repository, str) else "")


def _configured(document: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    """Yield the registries of the environment and of the matrix, each with its source; the first wins."""
    if variable := os.environ.get(REGISTRY_VARIABLE):
        yield REGISTRY_VARIABLE, variable
    for key, text in (("registry", document.get("registry")), ("repository", document.get("repository"))):
        if isinstance(text, str) and (key == "registry" or names_host(text)):
            yield f"`{key}` of {name}", text if key == "registry" else text.rpartition("/")[0]


def _document(matrix: Path) -> dict[str, Any]:
    """Return the keys of a matrix. A file that is missing or wrong has none here: the command reports it."""
    with suppress(MatrixError):
        data = read_document(matrix).data
        return data if isinstance(data, dict) else {}
    return {}


def _path_of(repository: str) -> str:
    return repository.partition("/")[2] if names_host(repository) else repository
