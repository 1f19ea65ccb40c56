"""Moves rolling tags to a release that is there: forward (promote) and back (rollback)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchbake.errors import PublishError, RegistryError
from torchbake.publish import Publisher
from torchbake.registry import Registry
from torchbake.standing import ImmutableTag, Move, moves_to, revisions_of
from torchbake.turns import locked


@dataclass(frozen=True, kw_only=True)
class Shift:
    """What moving an image's rolling tags to one of its releases means. ``current`` is where they are now.

    ``kept`` are tags that stay where they are, with the reason.
    """

    current: ImmutableTag | None
    target: ImmutableTag
    moves: tuple[Move, ...]
    kept: dict[str, str]

    @property
    def due(self) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.changes)


def shift(
    registry: Registry, publisher: Publisher, tags: Sequence[str], *, to: int | None, back: bool, dry: bool = False
) -> Shift:
    """Move the tags of an image to its release ``to``; without one, to the release before the current one (``back``)
    or to the newest one. With ``dry`` nothing is changed.

    Raises PublishError where there is no such release, and RegistryError; tags that were moved until then go back.
    """
    with locked(registry):
        planned = _plan(registry, publisher, tags, to, back=back)
        if planned.due and not dry:
            manifest = registry.manifest(str(planned.target))
            if manifest is None:
                raise RegistryError(f"{registry.repository}:{planned.target} is gone.")
            publisher.move(manifest, planned.due)
    return planned


def _plan(registry: Registry, publisher: Publisher, tags: Sequence[str], to: int | None, *, back: bool) -> Shift:
    name, there = tags[0], registry.tags()
    revisions = revisions_of(name, there)
    if not revisions:
        raise PublishError(f"{registry.repository} has no release of {name}.", hint="See: nox -s publish -- --help")
    rolling = publisher.rolling(tags, there)
    own = rolling[name]
    current = next((tag for tag in reversed(revisions) if own and registry.digest(str(tag)) == own.digest), None)
    target = _target(revisions, current, to, back=back)
    held = publisher.look(str(target))
    if held is None:
        raise RegistryError(f"{registry.repository}:{target} is gone.")
    moves, kept = moves_to(held.digest, held.labels, rolling)
    return Shift(current=current, target=target, moves=moves, kept=kept)


def _target(
    revisions: Sequence[ImmutableTag], current: ImmutableTag | None, to: int | None, *, back: bool
) -> ImmutableTag:
    if to is not None:
        found = next((tag for tag in revisions if tag.revision == to), None)
        if found is None:
            there = ", ".join(f"r{tag.revision}" for tag in revisions)
            raise PublishError(f"{revisions[0].name} has no release r{to}.", hint=f"There are {there}.")
        return found
    if not back:
        return revisions[-1]
    before = [tag for tag in revisions if current and tag < current]
    if not before:
        where = f"is at {current}" if current else "points at no release"
        raise PublishError(f"{revisions[0].name} {where}: there is none before it.", hint="Name one: --to N")
    return before[-1]
