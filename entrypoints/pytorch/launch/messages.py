"""The messages between nodes, and between a rank and its node, with the form of each kind.

Every received line is checked here before its use: kind, names, types, ranges, lengths.
"""

import json
import signal
import string
from collections.abc import Callable, Mapping
from typing import Any

from .launch_error import Code

Message = dict[str, Any]
Check = Callable[[Any], bool]

MOST_WORDS = 40  # lines of a rank's stderr
LONGEST_WORD = 2000
LONGEST_SENTENCE = 1000
LONGEST_LIST = 64
_MOST = 999_999_999
_NO_SUCH_MESSAGE = "it does not speak as `run` does"


def parse(line: bytes) -> Message:
    """Read one line as a message. Raises ValueError if it is not valid."""
    try:
        values = json.loads(line)
    except RecursionError:
        raise ValueError(_NO_SUCH_MESSAGE) from None
    if not isinstance(values, dict) or not isinstance(kind := values.pop("kind", None), str):
        raise ValueError(_NO_SUCH_MESSAGE)
    if kind not in _SHAPES or not _has(_SHAPES[kind])(values):
        raise ValueError(_NO_SUCH_MESSAGE)
    return {"kind": kind, **values}


def whole(least: int, most: int = _MOST) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def text(longest: int) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= longest


def _hexadecimal(length: int) -> Check:
    return lambda value: isinstance(value, str) and len(value) == length and set(value) <= set(string.hexdigits)


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


def _one_of(*values: object) -> Check:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


def _list_of(check: Check, longest: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= longest and all(map(check, value))


def _has(shape: Mapping[str, Check]) -> Check:
    return lambda value: (
        isinstance(value, dict) and value.keys() == shape.keys() and all(shape[name](value[name]) for name in shape)
    )


_FLAG = _one_of(True, False)
_WORDS = _list_of(text(LONGEST_WORD), MOST_WORDS)
_REFUSAL: Mapping[str, Check] = {
    "code": _one_of(*(code.value for code in Code)),
    "sentence": text(LONGEST_SENTENCE),
}
# The code of a failure is never 0: a report cannot turn a failure into success.
_FAILURE = _has(
    {
        "node": whole(0),
        "code": whole(1, 255),
        "rank": _either(_one_of(None), whole(0)),
        "local_rank": _either(_one_of(None), whole(0)),
        "why": text(LONGEST_SENTENCE),
        "words": _WORDS,
        "told": _FLAG,
    }
)
_SHAPES: Mapping[str, Mapping[str, Check]] = {
    # Both ways, all the time.
    "beat": {},
    # Between node 0 and a connecting node: see handshake.py.
    "greeting": {"version": whole(1), "instance": _hexadecimal(32), "nonce": _hexadecimal(32)},
    "hello": {
        "node": whole(0),
        "nnodes": whole(1),
        "nproc": whole(1),
        "commit": text(64),
        "trouble": _either(_one_of(None), _has(_REFUSAL)),
        "nonce": _hexadecimal(32),
        "proof": _hexadecimal(64),
    },
    "welcome": {"proof": _hexadecimal(64)},
    "unproven": {},
    "waiting": {"missing": text(LONGEST_SENTENCE)},
    "refused": _REFUSAL,
    "start": {},
    # While the job runs.
    "failed": {"failure": _FAILURE},
    "done": {"rank": whole(0)},
    "stop": {"signal": _one_of(int(signal.SIGTERM), int(signal.SIGINT))},
    "ended": {},
    "verdict": {
        "cause": _either(_one_of(None), _FAILURE),
        "notes": _list_of(text(LONGEST_SENTENCE), LONGEST_LIST),
    },
    # A rank to its node: see rank.py.
    "rank": {"rank": whole(0), "local_rank": whole(0), "attempt": whole(0)},
    "script": {"pid": whole(1)},
    "rank-ended": {"code": whole(0, 255), "words": _WORDS, "told": _FLAG},
}
