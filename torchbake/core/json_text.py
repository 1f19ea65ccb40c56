"""Strict reading of JSON that other programs wrote. Pure."""

import json
import re
from itertools import chain
from typing import Any

DEEPEST = 64  # arrays and objects within each other; a manifest has 4, an SBOM 8
_LONE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character in UTF-16, perhaps without its other half


class NotJsonError(ValueError):
    """Data is not JSON in UTF-8, or not safe to use. The message gives the reason in a few words."""


def read_json(data: bytes) -> Any:
    """Parse a JSON text. Raises NotJsonError.

    Refuses also forms that Python's parser accepts: other encodings, NaN, lone surrogates, and nesting so deep that
    recursive code would fail.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse)
        if _LONE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise NotJsonError("it is not UTF-8 text") from None
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
    except ValueError as error:
        raise NotJsonError(f"it is not JSON ({error})") from None
    if _deeper_than(value, DEEPEST):
        raise NotJsonError("it is nested too deeply")
    return value


def read_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises NotJsonError, also for any other value."""
    value = read_json(data)
    if not isinstance(value, dict):
        raise NotJsonError("it is not a JSON object")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [*chain.from_iterable(inner)]
    return any(isinstance(part, dict | list) for part in level)
