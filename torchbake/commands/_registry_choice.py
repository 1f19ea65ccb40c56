"""The registries of a command: those of the option, of the environment, or of the matrix."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchbake import REGISTRY_VARIABLE
from torchbake.commands._destinations import Destination
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
class RegistrySource:
    """The place that names registries, such as an option, with their texts.

    Each registry gets an image under each name of the matrix. Without texts the names themselves have the hosts.
    """

    origin: str
    registries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RegistryChoice:
    """The destinations of a command, and a sentence that says where they come from.

    The sentence is empty if the command line alone names them, and no namespace changes.
    """

    destinations: tuple[Destination, ...]
    message: str = ""

    @property
    def registry(self) -> str:
        """The first registry with its namespace, for a command that uses one."""
        return self.destinations[0].registry


def choose(sources: Sequence[RegistrySource], names: Sequence[str]) -> RegistryChoice:
    """Choose the registries of the first source, and give each the namespace of a name if it has none.

    The ``names`` are the repositories of the matrix, with a host or without. Raises UsageError for text that is no
    registry.
    """
    source, *others = sources
    pairs = list(product(source.registries, names or [""])) if source.registries else _own_hosts(names)
    origins = {_destination(text, name, source.origin): (text, name) for text, name in pairs}
    results = {each.registry for each in origins}
    registries = results | {text for text, _ in pairs}
    passed_over = [f"{' and '.join(each.registries)} of {each.origin}" for each in others
                   if not {*each.registries} <= registries]  # fmt: skip
    words = [f"{' and '.join(dict.fromkeys(each.registry for each in origins))}, by {source.origin}"]
    words += [f"not {passed_over[0]}"] if passed_over else []
    for each, (_, name) in origins.items():
        namespace = _path_of(name).rpartition("/")[0]
        if namespace and f"/{each.registry}/".find(f"/{namespace}/") < 0:
            words.append(f"without the namespace {namespace} of {name}")
    is_plain = source.origin.startswith("--") and len(words) == 1 and results == {text for text, _ in pairs}
    message = "" if is_plain else f"registry: {', '.join(dict.fromkeys(words))}"
    return RegistryChoice(destinations=tuple(origins), message=message)


def _own_hosts(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each name with its registry and namespace. A name without a host is in the registry of the first host."""
    first = next(name.partition("/")[0] for name in names if names_host(name))
    return [(name.rpartition("/")[0] if names_host(name) else first, name) for name in names]


def _destination(text: str, name: str, origin: str) -> Destination:
    registry = parse_registry(text)
    namespace, _, last = _path_of(name).rpartition("/")
    place = registry / namespace if namespace and not registry.path else registry
    result = str(place) if place.path else place.host
    return Destination(registry=result, name=last, typed=text if origin.startswith("--") else "")


def with_registry(args: "Arguments") -> "Arguments":
    """Fill in the registry of a command that takes one, or its destinations, and say where they come from.

    An empty text on the command line means that there is none. Raises UsageError if the command needs one.
    """
    field = next((each for each in fields(args) if "registry_use" in each.metadata), None)
    if field is None:
        return args
    values: Any = args
    use, typed = field.metadata["registry_use"], _typed(getattr(args, field.name))
    is_configured = typed != () and use.configured(args)
    document = _document(values.matrix) if typed or is_configured else {}
    sources = [RegistrySource(origin=OPTION, registries=typed)] if typed else []
    if is_configured:
        sources += _configured(document, values.matrix.name)
    if not sources:
        if use.required:
            raise UsageError(f"{OPTION} is empty." if typed == () else "Which registry?", hint=_HINT)
        return replace(args, **{field.name: () if use.several else None})
    choice = choose(sources, _names(document))
    if choice.message:
        first = "" if use.several or len(choice.destinations) == 1 else f" (here the first, {choice.registry})"
        console.say(choice.message + first, style="dim")
    return replace(args, **{field.name: choice.destinations if use.several else choice.registry})


def _typed(value: str | tuple[Destination, ...] | None) -> tuple[str, ...] | None:
    """Return the registries of the option: none for an empty text, and None if it is not given."""
    if value is None or value == ():
        return None
    texts = [value] if isinstance(value, str) else [each.registry for each in value]
    return tuple(part for text in texts for part in _split(text))


def _split(text: str) -> Iterator[str]:
    yield from filter(None, (part.strip() for part in text.split(",")))


def configured_registry(matrix: Path) -> str:
    """Return the first registry of the environment or of a matrix, with its namespace; empty if neither names one.

    Raises UsageError for text that is no registry.
    """
    document = _document(matrix)
    sources = list(_configured(document, matrix.name))
    return choose(sources, _names(document)).registry if sources else ""


def _configured(document: Mapping[str, Any], name: str) -> Iterator[RegistrySource]:
    """Yield the registries of the environment and of the matrix, each with its source; the first wins."""
    if variable := tuple(_split(os.environ.get(REGISTRY_VARIABLE, ""))):
        yield RegistrySource(origin=REGISTRY_VARIABLE, registries=variable)
    if registries := _texts(document, "registry"):
        yield RegistrySource(origin=f"`registry` of {name}", registries=registries)
    if any(map(names_host, _names(document))):
        yield RegistrySource(origin=f"`repository` of {name}")


def _names(document: Mapping[str, Any]) -> tuple[str, ...]:
    return _texts(document, "repository")


def _texts(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    values = value if isinstance(value, list) else [value]
    return tuple(text for text in values if isinstance(text, str) and text)


def _document(matrix: Path) -> dict[str, Any]:
    """Return the keys of a matrix. A file that is missing or wrong has none here: the command reports it."""
    with suppress(MatrixError):
        data = read_document(matrix).data
        return data if isinstance(data, dict) else {}
    return {}


def _path_of(repository: str) -> str:
    return repository.partition("/")[2] if names_host(repository) else repository
