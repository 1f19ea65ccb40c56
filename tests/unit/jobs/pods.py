"""The pods of a manifest, wherever an operator's kind has them."""

from collections.abc import Iterator
from typing import Any

import yaml


def pods_of(manifest: str) -> list[Any]:
    """Each pod's spec, in the manifest's order."""
    return [spec for each in yaml.safe_load_all(manifest) for spec in _specs(each)]


def variables_of(pod: Any) -> dict[str, str]:
    """What the manifest itself sets, but for secrets."""
    (container,) = pod["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def _specs(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and "containers" in value:
        yield value
        return
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _specs(inner)
