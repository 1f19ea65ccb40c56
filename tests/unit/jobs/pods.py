"""The pods of a manifest of any kind."""

from collections.abc import Iterator
from typing import Any

import yaml


def pods_of(manifest: str) -> list[Any]:
    """Return each pod's spec, in the manifest's order."""
    return [spec for each in yaml.safe_load_all(manifest) for spec in _specs(each)]


def variables_of(pod: Any) -> dict[str, str]:
    """Return the variables with values in the manifest."""
    (container,) = pod["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def _specs(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and "containers" in value:
        yield value
        return
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _specs(inner)
