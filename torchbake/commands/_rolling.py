"""The steps that `promote` and `rollback` share: move rolling tags to an existing release."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchbake.build.prepare import ImagePreparation
from torchbake.commands import _options as opt
from torchbake.commands._destinations import Destination, differing_digests, distinct_names, repositories_of
from torchbake.commands._index_releases import Platforms
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import load_selection
from torchbake.commands._signing import Signing, Verifying, mover_of, signer_of, trust_of
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.errors import PublishError, UsageError, sentence_of
from torchbake.matrix.platforms import shared_id, tag_key
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.reference import Repository
from torchbake.registry.cosign import Signer, Verifier
from torchbake.release.promote import Shift, shift
from torchbake.release.publisher import Publisher
from torchbake.ui import console
from torchbake.ui.steps import step


def _revision(text: str) -> int:
    number = text.removeprefix("r")
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a release; write 3 or r3")
    return int(number)


@dataclass(frozen=True, kw_only=True)
class Shifting(opt.WithSelectors, Verifying):
    """The options of a command that moves rolling tags."""

    registry: tuple[Destination, ...] = opt.registries("the tags move in each", required=True)
    to: int | None = opt.option(
        "the release: 3 or r3 (default: promote takes the newest, rollback the one before the current one)",
        type=_revision, metavar="N",
    )  # fmt: skip
    dry_run: bool = opt.option("say what would be moved; move nothing")
    format: opt.Format = opt.result_format()


@dataclass(frozen=True, kw_only=True)
class Promoting(Signing, Shifting):
    """The options of `promote`, which verifies the records of signed releases by the key that signs."""


@dataclass(frozen=True, kw_only=True)
class ShiftResult:
    """The result of one image in one repository; ``problem`` is the reason why its tags were not moved.

    An index waits for the platforms that are ``lacking``, for the reasons.
    """

    id: str
    repository: Repository
    shift: Shift | None = None
    problem: str = ""
    lacking: Mapping[str, str] = field(default_factory=dict)


def run_shift(args: Shifting, *, back: bool) -> int:
    """Move the tags of every selected image; one that cannot be moved leaves the others alone."""
    project, selection = load_selection(args.matrix, args.selectors)
    verifier = trust_of(args)
    with interruptible():
        results = _each(args, selection.specs, lambda spec, one: _one(args, project, spec, one, verifier, back=back))
    return _conclude(args, results)


def run_pending(args: Promoting) -> int:
    """Move the rolling tags that are pending: finish the newest release of every selected image."""
    if args.to is not None:
        raise UsageError("--pending moves tags to the newest release.", hint="Leave --to out.")
    project, selection = load_selection(args.matrix, args.selectors)
    signer = mover_of(args, signer_of(args))
    platforms = Platforms(project=project, preparation=ImagePreparation.to_ask(project, console.say))
    with interruptible():
        results = _each(args, selection.specs, lambda spec, one: _finish(args, platforms, spec, one, signer))
    return _conclude(args, results)


def _each(
    args: Shifting, specs: Sequence[Spec], work: Callable[[Spec, ShiftResult], ShiftResult]
) -> list[ShiftResult]:  # fmt: skip
    """Move the tags of each image in each of its repositories; a failure is a result, so that the others move.

    Images that differ by their platform alone share their tags, which are moved once.
    """
    results = []
    for spec in {tag_key(spec): spec for spec in specs}.values():
        for repository in repositories_of(args.registry, spec):
            result = ShiftResult(id=shared_id(spec), repository=repository)
            with step(f"{spec.id}: moving its rolling tags in {repository}"):
                try:
                    results.append(work(spec, result))
                except Exception as error:
                    results.append(replace(result, problem=sentence_of(error)))
    return results


def _finish(args: Promoting, platforms: Platforms, spec: Spec, result: ShiftResult, signer: Signer) -> ShiftResult:
    publisher = Publisher(registry_of(result.repository, plain_http=args.plain_http), signer=signer)
    image, decision = platforms.sets([spec]).get(spec.id), None
    if image:
        index = publisher.publish_index(image, lambda _: None, dry=args.dry_run)
        decision, result = index.decision, replace(result, lacking=index.lacking)
    # An index that waits for a platform leaves the release before it, whose tags may be pending.
    decision = decision or publisher.finish(platforms.project.tags[spec.id], lambda _: None, dry=args.dry_run)
    if decision is None:
        return result
    held_back = {decision.tag.name: "rolled back"} if decision.action == "held" else dict(decision.held_back)
    shift_ = Shift(current=None, target=decision.tag, digest=decision.digest, moves=decision.moves, held_back=held_back)
    return replace(result, shift=shift_)


def _conclude(args: Shifting, results: Sequence[ShiftResult]) -> int:
    _show(results, args.format, dry=args.dry_run)
    targets = [(image.id, image.repository, image.shift.digest) for image in results if image.shift]
    for text in differing_digests(targets):
        console.say(f"{text}: the tags name different images. Each repository has its own releases.", style="yellow")
    bad = [(name, image.problem) for name, image in zip(_names(results), results, strict=True) if image.problem]
    if bad:
        raise PublishError(
            with_reasons(f"{len(bad)} of {len(results)} were not moved:", bad), hint="Correct it, and run again."
        )
    return 0


def _names(results: Sequence[ShiftResult]) -> list[str]:
    return distinct_names([(image.id, image.repository) for image in results])


def _one(
    args: Shifting, project: Project, spec: Spec, result: ShiftResult, verifier: Verifier, *, back: bool
) -> ShiftResult:
    registry = registry_of(result.repository, plain_http=args.plain_http)
    moved = shift(registry, project.tags[spec.id], to=args.to, back=back, dry=args.dry_run, verifier=verifier)
    return replace(result, shift=moved)


def _show(results: Sequence[ShiftResult], form: str, *, dry: bool) -> None:
    rows = [(name, *_row(image, dry=dry)) for name, image in zip(_names(results), results, strict=True)]
    entries = [_entry(image, dry=dry) for image in results]
    console.show_result(form, {"images": entries}, ("image", "from", "to", "rolling tags"), rows)


def _row(image: ShiftResult, *, dry: bool) -> tuple[str, str, str]:
    waits = [f"waits for {platform}: {reason}" for platform, reason in image.lacking.items()]
    if image.shift is None:
        return "", "", image.problem or "; ".join(waits) or "no release"
    before, after, words = _words(image.shift, dry=dry)
    return before, after, "; ".join((words, *waits))


def _words(done_shift: Shift, *, dry: bool) -> tuple[str, str, str]:
    what = (
        [", ".join(move.tag for move in done_shift.due) + (" would be moved" if dry else "")] if done_shift.due else []
    )
    what += [f"{tag} stays: {reason}" for tag, reason in done_shift.held_back.items()]
    before = f"r{done_shift.current.revision}" if done_shift.current else "no release"
    return before, f"r{done_shift.target.revision}", "; ".join(what) or "are there already"


def _entry(image: ShiftResult, *, dry: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": image.id, "repository": str(image.repository), "problem": image.problem}
    entry["dry_run"] = dry
    entry |= {"lacking": dict(image.lacking)} if image.lacking else {}
    if image.shift:
        entry |= {
            "from": str(image.shift.current) if image.shift.current else None,
            "to": str(image.shift.target),
            "moves": [{"tag": move.tag, "before": move.before, "after": move.after} for move in image.shift.due],
            "held_back": image.shift.held_back,
        }
    return entry
