"""The settings that differ between two images, without the values of secrets. Pure.

https://github.com/opencontainers/image-spec/blob/main/config.md
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchbake.core.secret_values import masked


@dataclass(frozen=True, kw_only=True)
class ConfigChange:
    """A setting that differs, such as ``User`` or ``Env.PATH``; a value is None if an image lacks the setting."""

    key: str
    before: str | None
    after: str | None


def config_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[ConfigChange, ...]:
    """Compare two configurations of images by their settings, in order; their time and history are left out."""
    old, new = dict(_settings(before)), dict(_settings(after))
    return tuple(
        ConfigChange(key=key, before=_value_of(key, old), after=_value_of(key, new))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    )


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings that are not empty: an image that lacks one means the same as one with an empty value."""
    settings = config.get("config")
    for key, value in (settings if isinstance(settings, Mapping) else {}).items():
        if parts := _parts(key, value):
            yield from ((f"{key}.{name}", _text(each)) for name, each in parts.items())
        elif value not in (None, "", [], {}, False):
            yield key, _text(value)


def _parts(key: str, value: object) -> Mapping[str, object]:
    """Return a setting as its parts: variables, labels, and the empty objects of ports and volumes."""
    if key == "Env" and isinstance(value, list):
        return dict(str(each).partition("=")[::2] for each in value)
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value == {} else json.dumps(value, ensure_ascii=False)


def _value_of(key: str, settings: Mapping[str, str]) -> str | None:
    return masked(settings[key], name=key) if key in settings else None
