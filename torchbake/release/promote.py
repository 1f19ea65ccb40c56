"""Move rolling tags to an existing release: forward (promote) and back (rollback)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchbake.errors import PublishError, RegistryError
from torchbake.oci.tag_names import HOLD_SUFFIX, ImmutableTag, artifact_tag, revisions_of
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier
from torchbake.release.decide import Move, moves_to
from torchbake.release.mutex import locked
from torchbake.release.planner import UNSIGNED
from torchbake.release.repository_view import Holdings
from torchbake.release.rolling_tags import move_tags
from torchbake.release.verification import Verification
from torchbake.ui.command import Command


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The moves of an image's rolling tags from its release ``current`` to ``target``, which has this ``digest``.

    The tags ``held_back`` do not move, for these reasons.
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
    verifier: Verifier = UNSIGNED,
) -> Shift:
    """Move the tags of an image to its release ``to``. With ``dry`` nothing is changed.

    Without ``to`` they move to the release before the current one (``back``), or to the newest one. A rollback from the
    newest release is noted under a tag first, so that no later run moves the tags forward again.

    Raises PublishError if the release does not exist or is not ours (`verification`), and RegistryError. Then tags that
    have already moved are moved back.
    """
    with locked(registry):
        planned, newest = _plan(registry, verifier, tags, to, back=back)
        if not dry:
            manifest = Holdings(registry).manifest(planned.digest)
            note = artifact_tag(str(newest), HOLD_SUFFIX)
            if planned.target != newest and registry.digest(note) is None:  # it may be immutable
                registry.put(manifest, note)
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
    """Return the moves, and the newest release."""
    name, served, holdings = tags[0], registry.tags(), Holdings(registry)
    revisions = revisions_of(name, served)
    if not revisions:
        raise PublishError(
            f"{registry.repository} has no release of {name}.", hint=f"See: {Command('publish', '--help')}"
        )
    rolling = holdings.rolling(tags, served)
    own = rolling[name]
    current = next((tag for tag in reversed(revisions) if own and registry.digest(str(tag)) == own.digest), None)
    target = _target(revisions, current, to, back=back)
    holder = holdings.look(str(target))
    if holder is None:
        raise RegistryError(f"{registry.repository}:{target} is gone.")
    Verification(registry=registry, verifier=verifier).record(target, holder)
    moves, held_back = moves_to(holder.digest, holder.labels, rolling)
    return Shift(current=current, target=target, digest=holder.digest, moves=moves, held_back=held_back), revisions[-1]


def _target(
    revisions: Sequence[ImmutableTag], current: ImmutableTag | None, to: int | None, *, back: bool
) -> ImmutableTag:
    if to is not None:
        target_tag = next((tag for tag in revisions if tag.revision == to), None)
        if target_tag is None:
            names = ", ".join(f"r{tag.revision}" for tag in revisions)
            raise PublishError(f"{revisions[0].name} has no release r{to}.", hint=f"There are {names}.")
        return target_tag
    if not back:
        return revisions[-1]
    before = [tag for tag in revisions if current and tag < current]
    if not before:
        where = f"is at {current}" if current else "points at no release"
        raise PublishError(f"{revisions[0].name} {where}: no release is before it.", hint="Name a release: --to N")
    return before[-1]
