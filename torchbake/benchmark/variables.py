"""References `${name}` in a plan, to variables of the plan or the command line, or to keys of an experiment. Pure.

Variables are replaced before the file is validated, so a variable can be any value. Keys of an experiment are replaced
when the experiments are known, in the keys of `LATER`. The environment is not read, so that a plan gives the same
experiments everywhere; `-P name="$NAME"` passes a variable of the shell.
"""

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

from torchbake.core.suggest import nearest
from torchbake.matrix.yaml_source import Location

Problems: TypeAlias = list[tuple[Location, str]]

NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
KEYS = (  # of an experiment
    "model", "batch_size", "dtype", "phase", "gpus", "nodes", "num_batches", "num_warmup_batches", "device",
    "data_backend", "data_shuffle", "num_loader_threads", "cudnn_benchmark", "monitor_seconds",
)  # fmt: skip
LATER = ("args", "env", "data_dir", "docker.options")
_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)(\}?)")


def references(value: Any) -> Iterator[str]:
    """Yield each name that a value refers to."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from references(one)
    elif isinstance(value, str):
        yield from (name for escape, name, _ in _REFERENCE.findall(value) if not escape)


def values_of(variables: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Replace references in the values of variables, and add mistakes to ``problems``."""
    graph = {name: [one for one in references(value) if one in variables] for name, value in variables.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = error.args[1]
        problems.append((("variables", circle[0]), f"variables refer to each other in a circle: {' → '.join(circle)}"))
        return {}
    values: dict[str, Any] = {}
    for name in order:
        values[name] = _replace(variables[name], values, ("variables", name), problems)
    return values


def with_values(value: Any, values: Mapping[str, Any], at: Location, problems: Problems) -> Any:
    """Replace variables in a value of the file; keys of an experiment stay if they are filled in later."""
    if isinstance(value, dict):
        return {key: with_values(one, values, (*at, key), problems) for key, one in value.items()}
    if isinstance(value, list):
        return [with_values(one, values, (*at, number), problems) for number, one in enumerate(value)]
    return _final(_replace(value, values, at, problems), at, problems)


def fill(text: str, values: Mapping[str, object]) -> str:
    """Replace keys of an experiment in a text, and then the escape `$${` by `${`."""

    def replacement(match: re.Match[str]) -> str:
        value = values.get(match[2], match[0])
        return match[0][1:] if match[1] else str(value).lower() if isinstance(value, bool) else str(value)

    return _REFERENCE.sub(replacement, text)


def _replace(value: Any, values: Mapping[str, Any], at: Location, problems: Problems) -> Any:
    """Replace references to variables in a value. A variable that is a list must be the whole value of a key."""
    if isinstance(value, list):
        return [_replace(one, values, (*at, number), problems) for number, one in enumerate(value)]
    if not isinstance(value, str):
        return value
    match = _REFERENCE.fullmatch(value)
    if match and not match[1] and isinstance(values.get(match[2]), list) and isinstance(at[-1], str):
        return values[match[2]]

    def replacement(match: re.Match[str]) -> str:
        if problem := _problem(match, values):
            problems.append((at, problem))
        return match[0] if match[1] or match[2] in KEYS else str(values.get(match[2], ""))

    return _REFERENCE.sub(replacement, value)


def _problem(match: re.Match[str], values: Mapping[str, Any]) -> str:
    """Return the reason why a reference cannot be replaced, or an empty text."""
    escape, name, closed = match.groups()
    if escape:
        return ""
    if not closed or not re.match(NAME, name):
        return f"{match[0]!r} names no variable; write $${{ for the characters ${{"
    if name in values:
        is_list = isinstance(values[name], list)
        return f"${{{name}}} is a list: it can only be the whole value of a key" if is_list else ""
    if name in KEYS:
        return ""
    near = nearest(name, [*values, *KEYS], count=1)
    return f"${{{name}}} is unknown; " + (f"did you mean ${{{near[0]}}}?" if near else "name it in `variables`")


def _final(value: Any, at: Location, problems: Problems) -> Any:
    """Resolve escapes in a value, unless keys of an experiment are replaced later."""
    path = [part for part in at if isinstance(part, str)]
    path = path[2:] if path[:2] == ["when", "set"] else path
    is_later = any(path[: name.count(".") + 1] == name.split(".") for name in LATER)
    if isinstance(value, list):
        return [_final(one, at, problems) for one in value]
    if not isinstance(value, str) or is_later:
        return value
    early = next(references(value), "")
    if early in KEYS:
        problems.append((at, f"${{{early}}} is a key of an experiment, which can stand in {', '.join(LATER)} alone"))
    return fill(value, {})
