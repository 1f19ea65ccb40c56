"""The JSON that ranks send each other, read as the type that the receiver expects.

Unpickling runs whatever code the sender put in (https://docs.python.org/3/library/pickle.html), and torch's collectives
for objects unpickle. So ranks exchange JSON, and every value is checked before anything uses it.
"""

import dataclasses
import json
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_LARGEST = 2**63


def encode(value: Any) -> bytes:
    """Return a value as JSON: numbers, text, lists, tuples, dictionaries, sets and dataclasses of these."""
    return json.dumps(value, default=_as_plain).encode()


def decode(data: bytes, kind: type[T]) -> T:
    """Read a value of that type from JSON. Raises ValueError with a few words if the type is another."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    read: T = _read(value, kind)
    return read


def _as_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _read(value: Any, kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _read(value, inner[0])
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        _expect(isinstance(value, dict) and value.keys() == hints.keys(), kind)
        return kind(**{name: _read(value[name], hint) for name, hint in hints.items()})  # type: ignore[operator]
    if origin is dict:
        _expect(isinstance(value, dict), kind)
        return {_read(name, inner[0]): _read(each, inner[1]) for name, each in value.items()}
    if origin in (list, set, tuple):
        _expect(isinstance(value, list), kind)
        kinds = [inner[0]] * len(value) if origin is not tuple or inner[-1] is Ellipsis else list(inner)
        _expect(len(kinds) == len(value), kind)
        return origin(_read(each, expected) for each, expected in zip(value, kinds, strict=True))
    if kind is float and type(value) is int:
        value = float(_bound(value))
    _expect(type(value) is kind, kind)
    return _bound(value) if kind is int else value


def _bound(value: int) -> int:
    if not -_LARGEST <= value < _LARGEST:
        raise ValueError("a number of more than 64 bits")
    return value


def _expect(right: bool, kind: Any) -> None:
    if not right:
        raise ValueError(f"no {kind.__name__ if isinstance(kind, type) else kind}")
