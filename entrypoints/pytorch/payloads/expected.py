"""The expected versions of `smoke versions`, from a row of the matrix or an image's labels."""

import json
from collections.abc import Mapping

KEYS = ("torch", "cuda", "cudnn", "nccl", "python")


def parse_expected(text: str) -> dict[str, str | None]:
    """Parse ``{"torch": "2.7.1", …}``, where null means that it must be absent. Raises ValueError with a sentence."""
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


def disagreements(expected: Mapping[str, str | None], actual: Mapping[str, str | None]) -> list[str]:
    """Return a sentence for each key of ``expected`` that ``actual`` does not meet."""
    return [
        f"{key} is {actual.get(key) or 'not there'}, expected {expected_value or 'none'}"
        for key, expected_value in expected.items()
        if not _meets(key, expected_value, actual.get(key))
    ]


def _meets(key: str, expected: str | None, actual: str | None) -> bool:
    if expected is None or actual is None:
        return expected == actual
    if key == "torch":  # a wheel that is listed as 2.7.1 may be 2.7.1+cu126
        release, _, local = expected.partition("+")
        found_release, _, found_local = actual.partition("+")
        return release == found_release and local in ("", found_local)
    # The shorter version decides: a wheel of cuDNN is 9.5.1.17, and its library reports 9.5.1.
    return all(one == other for one, other in zip(expected.split("."), actual.split("."), strict=False))
