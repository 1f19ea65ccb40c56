"""Move rolling tags, either all of them or none, and never over a change of another machine."""

import contextlib
from collections.abc import Sequence

from torchbake.errors import RegistryError
from torchbake.oci.manifest import Manifest
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError
from torchbake.release.decide import Move
from torchbake.ui.command import Command

_PATTERNS = Command("help", "tags#make-them-immutable-in-the-registry")


def move_tags(registry: Registry, manifest: Manifest, moves: Sequence[Move]) -> None:
    """Set rolling tags in order. If a tag cannot be set, move the tags before it back, and raise the error.

    Raises RegistryError, also if a tag has moved since the decision. A registry cannot set a tag on a condition, so
    another machine may still set a tag after it was read here. That is detected after the write.
    """
    tags = [move.tag for move in moves]
    for move, text in zip(moves, registry.digests(tags), strict=True):
        if text not in (move.before, move.after):
            raise _moved_error(registry, f"{move.tag} was {move.before or 'not there'} just now, and is {text}")
    outputs: list[str] = []
    try:
        for move, text in zip(moves, registry.put_all(manifest, tags, outputs.append), strict=True):
            if text != move.after:
                raise _moved_error(registry, f"{move.tag} was set to {move.after}, and now is {text}")
    except BaseException as error:
        _restore(registry, [move for move in moves if move.tag in outputs])
        if isinstance(error, StatusError) and error.is_about_content:
            hint = f"If the registry makes tags immutable, exclude rolling tags: {_PATTERNS}"
            error.hint = error.hint or hint
        raise


def _restore(registry: Registry, moves: Sequence[Move]) -> None:
    """Move tags back, except tags that another machine has set since, whose release must stay complete."""
    for move in reversed(moves):
        if move.before:
            with contextlib.suppress(RegistryError):  # the caller reports its own error
                manifest = registry.manifest(move.before)
                if manifest and registry.digest(move.tag) == move.after:
                    registry.put(manifest, move.tag)


def _moved_error(registry: Registry, what: str) -> RegistryError:
    return RegistryError(
        f"{registry.repository}: {what}. Somebody else releases there at the same time.",
        hint=f"Run it again. If several machines release, let one run wait for the other: {Command('help', 'ci')}",
    )
