"""Describe how the packages of a lock changed. Pure."""

from collections.abc import Iterable, Mapping

from torchbake.lock.lockfile import Pin

_NONE = ("(new)", "(gone)")
_MOST = 12  # packages in one message


def describe_changes(old: Iterable[Pin], new: Mapping[str, str]) -> str:
    """Describe changed packages: ``numpy 2.1.0 → 2.2.0, + einops 0.8.2, - six``; empty if there are none.

    ``new`` are versions by package; an empty one is unknown.
    """
    before = {pin.name: pin.version for pin in old}
    both = sorted(before.keys() & new.keys())
    lines = [f"{name} {before[name]} → {new[name]}" for name in both if new[name] and before[name] != new[name]]
    lines += [f"+ {name} {new[name]}".rstrip() for name in sorted(new.keys() - before.keys())]
    lines += [f"- {name}" for name in sorted(before.keys() - new.keys())]
    more = len(lines) - _MOST
    return ", ".join(lines[:_MOST]) + (f" and {more} more" if more > 0 else "")


def changed_versions(old: Mapping[str, Pin], new: Mapping[str, Pin]) -> dict[str, str]:
    """Return a line for each package with another version, by its name: ``numpy 2.1.0 -> 2.2.0``."""
    lines = {}
    for name in sorted(old.keys() | new.keys()):
        before = old[name].version if name in old else _NONE[0]
        after = new[name].version if name in new else _NONE[1]
        if before != after:
            lines[name] = f"{name} {before} -> {after}"
    return lines
