"""Rolling tags are set all together or not at all, and never over what somebody else has set meanwhile."""

import contextlib
from collections.abc import Sequence

from torchbake.errors import RegistryError
from torchbake.oci.manifest import Manifest
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError
from torchbake.release.decide import Move

_PATTERNS = "docs/tags.md#make-them-immutable-in-the-registry"


def move_tags(registry: Registry, manifest: Manifest, moves: Sequence[Move]) -> None:
    """Set rolling tags, in order; where one cannot be set, those before it go back, and the error is raised.

    Raises RegistryError, also for a tag that has moved since the moves were decided. A registry has no way to set a tag
    on a condition: between the question and the answer somebody may still come, which is seen afterwards.
    """
    tags = [move.tag for move in moves]
    for move, found in zip(moves, registry.digests(tags), strict=True):
        if found not in (move.before, move.after):
            raise _moved(registry, f"{move.tag} was {move.before or 'not there'} just now, and is {found}")
    begun: list[str] = []
    try:
        for move, found in zip(moves, registry.put_all(manifest, tags, begun.append), strict=True):
            if found != move.after:
                raise _moved(registry, f"{move.tag} was set to {move.after}, and now is {found}")
    except BaseException as error:
        _restore(registry, [move for move in moves if move.tag in begun])
        if isinstance(error, StatusError) and error.is_about_content:
            error.hint = (
                error.hint or f"If the registry makes tags immutable, rolling ones must be left out: {_PATTERNS}"
            )
        raise


def _restore(registry: Registry, moves: Sequence[Move]) -> None:
    """Back to where they were, but for what somebody else has set since: his release stays whole."""
    for move in reversed(moves):
        if move.before:
            with contextlib.suppress(RegistryError):  # the first error is the one to tell
                manifest = registry.manifest(move.before)
                if manifest and registry.digest(move.tag) == move.after:
                    registry.put(manifest, move.tag)


def _moved(registry: Registry, what: str) -> RegistryError:
    return RegistryError(
        f"{registry.repository}: {what}. Somebody else releases there at the same time.",
        hint="Run it again; let releases from several machines wait for each other: docs/ci.md",
    )
