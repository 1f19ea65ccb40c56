"""Moves rolling tags to a release that is there: forward (promote) and back (rollback)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchbake.errors import PublishError, RegistryError
from torchbake.oci.tag_names import HELD, ImmutableTag, artifact_tag, revisions_of
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Idle, Verifier
from torchbake.release.decide import Move, moves_to
from torchbake.release.immutable_tag import put_once
from torchbake.release.mutex import locked
from torchbake.release.repository_view import Holdings
from torchbake.release.rolling_tags import move_tags
from torchbake.release.verification import Verification

_NOBODY = Idle(skip_reason="no key was given")  # verifies


@dataclass(frozen=True, kw_only=True)
class Shift:
    """What moving an image's rolling tags to one of its releases means. ``current`` is where they are now.

    ``digest`` is the target's. ``held_back`` are tags that stay where they are, with the reason.
    """

    current: ImmutableTag | None
    target: ImmutableTag
    digest: str
    moves: tuple[Move, ...]
    held_back: dict[str, str]

    @property
    def due(self) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.changes)


def shift(
    registry: Registry,
    tags: Sequence[str],
    *,
    to: int | None,
    back: bool,
    dry: bool = False,
    verifier: Verifier = _NOBODY,
) -> Shift:
    """Move the tags of an image to its release ``to``; without one, to the release before the current one (``back``)
    or to the newest one. With ``dry`` nothing is changed.

    Who goes to an older release than the newest stays there: that is noted before the tags move, so that no run
    finishes what was begun after it.

    Raises PublishError where there is no such release, or it is not ours (`verification`), and RegistryError; tags that
    were moved until then go back.
    """
    with locked(registry):
        planned, newest = _plan(registry, verifier, tags, to, back=back)
        if not dry:
            manifest = Holdings(registry).manifest(planned.digest)
            if planned.target != newest:
                put_once(registry, manifest, artifact_tag(str(newest), HELD))
            try:
                move_tags(registry, manifest, planned.due)
            except RegistryError as error:
                if planned.target != newest:
                    error.hint = f"{error.hint or ''} {newest} counts as rolled back from now on.".strip()
                raise
    return planned


def _plan(
    registry: Registry, verifier: Verifier, tags: Sequence[str], to: int | None, *, back: bool
) -> tuple[Shift, ImmutableTag]:
    """What is to be moved, and the newest release."""
    name, served, holdings = tags[0], registry.tags(), Holdings(registry)
    revisions = revisions_of(name, served)
    if not revisions:
        raise PublishError(f"{registry.repository} has no release of {name}.", hint="See: nox -s publish -- --help")
    rolling = holdings.rolling(tags, served)
    own = rolling[name]
    current = next((tag for tag in reversed(revisions) if own and registry.digest(str(tag)) == own.digest), None)
    target = _target(revisions, current, to, back=back)
    held = holdings.look(str(target))
    if held is None:
        raise RegistryError(f"{registry.repository}:{target} is gone.")
    Verification(registry=registry, verifier=verifier).record(target, held)
    moves, held_back = moves_to(held.digest, held.labels, rolling)
    return Shift(current=current, target=target, digest=held.digest, moves=moves, held_back=held_back), revisions[-1]


def _target(
    revisions: Sequence[ImmutableTag], current: ImmutableTag | None, to: int | None, *, back: bool
) -> ImmutableTag:
    if to is not None:
        wanted = next((tag for tag in revisions if tag.revision == to), None)
        if wanted is None:
            names = ", ".join(f"r{tag.revision}" for tag in revisions)
            raise PublishError(f"{revisions[0].name} has no release r{to}.", hint=f"There are {names}.")
        return wanted
    if not back:
        return revisions[-1]
    before = [tag for tag in revisions if current and tag < current]
    if not before:
        where = f"is at {current}" if current else "points at no release"
        raise PublishError(f"{revisions[0].name} {where}: there is none before it.", hint="Name one: --to N")
    return before[-1]
