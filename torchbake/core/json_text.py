"""JSON that somebody else wrote, read so that nothing in it can surprise whoever uses it. Pure."""

import json
import re
from typing import Any

DEEPEST = 64  # arrays and objects within each other; a manifest has 4, an SBOM 8
_LONE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character in UTF-16, perhaps without its other half


class NotJsonError(ValueError):
    """What was read is not JSON in UTF-8, or none that can be worked with. It says why, in a few words."""


def read_json(data: bytes) -> Any:
    """The value of a JSON text.

    Raises NotJsonError, also for what Python's own reader takes: other encodings, numbers that are none, halves of
    characters, and values so deep that walking them ends the program.
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
    """The same for an object: anything else raises NotJsonError too."""
    value = read_json(data)
    if not isinstance(value, dict):
        raise NotJsonError("it is not a JSON object")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            part
            for outer in level
            if isinstance(outer, dict | list)
            for part in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(part, dict | list) for part in level)
