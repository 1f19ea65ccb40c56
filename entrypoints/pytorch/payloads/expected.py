"""What `versions` compares with: the versions that a row of the matrix, or an image's labels, promise."""

import json
from collections.abc import Mapping

KEYS = ("torch", "cuda", "cudnn", "nccl", "python")


def parse_expected(text: str) -> dict[str, str | None]:
    """``{"torch": "2.7.1", …}``; every key may be left out, and null means that it must not be there.

    Raises ValueError with a sentence.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{text!r} is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{text!r} is not a JSON object")
    for key, value in values.items():
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r}, there are {', '.join(KEYS)}")
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(f"{key} is {value!r}, it must be text like '2.7' or null")
    return values


def disagreements(expected: Mapping[str, str | None], found: Mapping[str, str | None]) -> list[str]:
    """One sentence for each key of ``expected`` that ``found`` does not meet."""
    return [
        f"{key} is {found.get(key) or 'not there'}, expected {wanted or 'none'}"
        for key, wanted in expected.items()
        if not _meets(key, wanted, found.get(key))
    ]


def _meets(key: str, wanted: str | None, found: str | None) -> bool:
    if wanted is None or found is None:
        return wanted == found
    if key == "torch":
        return _torch_meets(wanted, found)
    return _agree(wanted, found)


def _torch_meets(wanted: str, found: str) -> bool:
    """A wheel that is listed as 2.7.1 may call itself 2.7.1+cu126; one that is promised as 2.7.1+cpu must be that."""
    release, _, local = wanted.partition("+")
    found_release, _, found_local = found.partition("+")
    return release == found_release and local in ("", found_local)


def _agree(wanted: str, found: str) -> bool:
    """The numbers that both name are equal: a wheel of cuDNN is 9.5.1.17, and the library calls itself 9.5.1."""
    ours, theirs = wanted.split("."), found.split(".")
    return all(one == other for one, other in zip(ours, theirs, strict=False))
