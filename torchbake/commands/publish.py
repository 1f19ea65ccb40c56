"""`publish`: release tested images, each under an immutable tag, then under its rolling tags."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from torchbake.build.prepare import ImagePreparation
from torchbake.checks.waivers import parse_waivers
from torchbake.commands import _options as opt
from torchbake.commands._candidates import candidate_of
from torchbake.commands._registries import registry_of
from torchbake.commands._release_images import release_images
from torchbake.commands._selection import load_selection, repository_of
from torchbake.commands._signing import signer_of
from torchbake.commands._verdicts import WithVerdicts, signed_verdicts
from torchbake.core.parallel import run_all
from torchbake.core.paths import layers_folder
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.errors import PublishError, sentence_of
from torchbake.matrix.spec import Spec
from torchbake.oci.manifest import Blob
from torchbake.oci.reference import Repository
from torchbake.oci.variants import CompressionName
from torchbake.registry.cosign import Signer
from torchbake.release.attestations import supply_of
from torchbake.release.candidate import Candidate, Publication, Supply
from torchbake.release.decide import as_json as decision_json
from torchbake.release.publisher import Publisher
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.progress_board import Board, board
from torchbake.ui.steps import step

EXAMPLES = (
    "cuda12 --registry ghcr.io/acme",
    "all --registry 127.0.0.1:5000/team --dry-run",
    "cpu --registry ghcr.io/acme --key cosign.key --require-signature",
    "cuda12 --registry ghcr.io/acme --verdicts verdicts --verdict-key cosign.pub",
    "cpu --registry ghcr.io/acme --no-engine --verdicts verdicts --verdict-key cosign.pub",
    "cpu --registry ghcr.io/acme --benchmark examples/benchmark/plan.yaml",
    "cpu --registry ghcr.io/acme --compression both",
    "cpu --registry ghcr.io/acme --waive 'process.size=the new libraries are wanted'",
)
_SUMMARY = "GITHUB_STEP_SUMMARY"
_HEAD = ("image", "result", "immutable tag", "rolling tags")
_WORDS = {"release": "released", "finish": "finished", "nothing": "unchanged", "held": "held back"}


@dataclass(frozen=True, kw_only=True)
class Due:
    """An image to release, and its repository. ``candidate`` raises CheckError if the image must not be released."""

    spec: Spec
    candidate: Callable[[], Candidate]
    publisher: Publisher
    supply: Supply
    repository: Repository


@dataclass(frozen=True, kw_only=True)
class PublishResult:
    """The result of one image; ``problem`` is why it was not released, ``waived`` are the checks that may fail."""

    id: str
    repository: Repository
    published: Publication | None = None
    problem: str = ""
    waived: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors, WithVerdicts):
    shard: tuple[int, int] | None = opt.shard()
    registry: str = opt.registry(required=True)
    waive: tuple[str, ...] = opt.option(
        "release although this check failed; the reason stays in the release record; repeat for more",
        metavar="CHECK=REASON",
    )
    compression: CompressionName | None = opt.option(
        "of layers in the registry; both: an index of two images, gzip first (default: the matrix's, else zstd)"
    )
    immutable_only: bool = opt.option(
        "push the immutable tag, and move no rolling tag; `promote --pending` moves those later"
    )
    benchmark: Path | None = opt.option(
        "do not release an image that is slower in this plan than the one its tag holds, or too noisy to tell",
        metavar="PLAN",
    )
    no_engine: bool = opt.option(
        "ask no container engine: release the images of the store, with verdicts of `reports/` or of --verdicts"
    )
    dry_run: bool = opt.option("say what would be done, and ask the registry whether it can; change nothing")
    jobs: int = opt.jobs()
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors, args.shard)
    waivers, signer = parse_waivers(args.waive), signer_of(args)
    built = release_images(project, no_engine=args.no_engine, benchmark=args.benchmark)
    publishers, preparation = _publishers(args, selection.specs, signer), ImagePreparation.to_ask(project, console.say)
    with step("finding the images and their verdicts"):
        images, verdicts = built.find(selection.specs, preparation), signed_verdicts(args, built.config)
        source = built.transport(images, args.compression or project.matrix.compression)
    prepare = partial(source.prepare, dry=args.dry_run)
    ready = partial(candidate_of, images=images, waivers=waivers, prepare=prepare, others=verdicts, advice=built.advice)
    due = [
        Due(
            spec=spec,
            candidate=partial(ready, preparation, spec),
            publisher=publishers[spec.repository],
            supply=supply_of(spec.repository, source, project.cache, layers_folder()),
            repository=repository_of(args.registry, spec),
        )
        for spec in selection.specs
    ]
    judged = None
    if args.benchmark and built.engine:
        from torchbake.commands._benchmark_gate import gate_of  # noqa: PLC0415 - it is as large as the rest of a release

        judged = gate_of(args.benchmark, project, built.engine, plain_http=args.plain_http).judge
    with interruptible(), built.layout.in_use():  # no build removes an image of the store in this time
        if judged and not args.dry_run:
            due = [
                replace(image, candidate=judged(image.candidate, image.publisher.plan, image.spec, image.repository))
                for image in due
            ]
        results = _plan(due) if args.dry_run else _publish(due, args.jobs)
    source.tidy()
    _show(results, args.format, dry=args.dry_run)
    _append_summary(_HEAD, [_row(image, dry=args.dry_run) for image in results])
    if bad := [(image.id, image.problem) for image in results if image.problem]:
        reason = with_reasons(f"{len(bad)} of {len(results)} were not released:", bad)
        raise PublishError(reason, hint="Correct it, and run again: finished releases stay.")
    return 0


def _append_summary(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Add a table to the summary of a step of GitHub Actions, if there is one.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#adding-a-job-summary
    """
    page = os.environ.get(_SUMMARY)
    if not page:
        return
    whole = [head, ("---",) * len(head), *rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in whole]
    try:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")
    except OSError as error:
        console.say(f"{_SUMMARY}={page} cannot be written: {error.strerror}", style="yellow")


def _publishers(args: Arguments, specs: Sequence[Spec], signer: Signer) -> dict[str, Publisher]:
    """Make a publisher for each repository, which mounts layers from the other repositories."""
    where = {spec.repository: repository_of(args.registry, spec) for spec in specs}
    paths = {repository.path for repository in where.values()}
    return {
        name: Publisher(
            registry_of(repository, plain_http=args.plain_http),
            mounts=sorted(paths - {repository.path}),
            signer=signer,
            immutable_only=args.immutable_only,
        )
        for name, repository in where.items()
    }


def _plan(due: Sequence[Due]) -> list[PublishResult]:
    results = []
    for image in due:
        with step(f"{image.spec.id}: asking {image.repository}"):
            results.append(_attempt(image, image.publisher.rehearse))
    return results


def _publish(due: Sequence[Due], jobs: int) -> list[PublishResult]:
    def stop() -> None:
        console.say("stopping; the next publish finishes the others …", style="yellow")

    with board(len(due), doing="publishing") as progress:
        return run_all(due, lambda image: _one(image, progress), jobs=jobs, stop=stop)


def _one(due: Due, progress: Board) -> PublishResult:
    name = due.spec.id
    progress.start(name, f"to {due.repository}")
    look = partial(progress.look, name)
    count = _Count(look)
    result = _attempt(due, lambda candidate: due.publisher.publish(candidate, due.supply, look, count.add))
    words = result.problem or (_summary(result.published) if result.published else "")
    progress.end(name, words, good=not result.problem)
    return result


def _attempt(due: Due, work: Callable[[Candidate], Publication]) -> PublishResult:
    """Release one image; a failure is a result, so that the others are released."""
    try:
        candidate = due.candidate()
        published = work(candidate)
        return PublishResult(id=due.spec.id, repository=due.repository, published=published, waived=candidate.waived)
    except Exception as error:
        return PublishResult(id=due.spec.id, repository=due.repository, problem=sentence_of(error))


class _Count:
    """The progress of the layers of an upload, as text."""

    def __init__(self, look: Callable[[str], None]) -> None:
        self._look, self._sent_bytes = look, dict[Blob, int]()

    def add(self, blob: Blob, count: int) -> None:
        self._sent_bytes[blob] = self._sent_bytes.get(blob, 0) + count
        going = [f"{human(part)} of {human(blob.size)}" for blob, part in self._sent_bytes.items() if part < blob.size]
        blobs = [blob for blob, part in self._sent_bytes.items() if part >= blob.size]
        words = [f"{len(blobs)} layers sent" if blobs else "", f"sending {', '.join(going)}" if going else ""]
        self._look("; ".join(filter(None, words)))


def _summary(publication: Publication) -> str:
    decision, transfer = publication.decision, publication.transfer
    words = [f"{_WORDS[decision.action]} as {decision.tag}"]
    if transfer:
        words.append(f"{human(transfer.bytes)} of {human(transfer.whole)} sent in {transfer.layers} blobs")
    if decision.due:
        words.append(f"{len(decision.due)} tags moved")
    return ", ".join(words)


def _show(results: Sequence[PublishResult], form: str, *, dry: bool) -> None:
    if form == "json":
        console.show_json({"images": [_entry(image, dry=dry) for image in results]})
    else:
        console.show_table(_HEAD, [_row(image, dry=dry) for image in results])
        matches = {str(one.repository): one.published.abilities for one in results if one.published}
        rows = [
            (repository, name.replace("_", " "), answer)
            for repository, abilities in matches.items()
            if abilities
            for name, answer in asdict(abilities).items()
        ]
        if rows:
            console.show_table(("repository", "ability", "answer"), rows)


def _row(image: PublishResult, *, dry: bool) -> tuple[str, str, str, str]:
    if image.published is None:
        return image.id, "failed", "", image.problem
    decision = image.published.decision
    state = f"would be {_WORDS[decision.action]}" if dry else _WORDS[decision.action]
    waived = [f"waived: {check} ({reason})" for check, reason in image.waived.items()]
    packing = [] if decision.digest else ["its layers would be compressed by gzip first"]
    return (
        image.id,
        state,
        f"{image.repository}:{decision.tag}",
        "; ".join([_moves(image.published), *packing, *waived]),
    )


def _moves(publication: Publication) -> str:
    decision = publication.decision
    if decision.action == "held":
        return f"rolled back by hand; `{Command('promote')}` moves its tags forward"
    words = [", ".join(move.tag for move in decision.due)] if decision.due else []
    words += [f"{tag} stays: {reason}" for tag, reason in decision.held_back.items()]
    if publication.released_by:
        words.append(f"the same image, compressed by {publication.released_by}, stays ({decision.digest})")
    elif decision.digest != publication.tested:
        words.append(f"another build of the same inputs ({decision.digest}) stays")
    return "; ".join(words) or "where they belong"


def _entry(image: PublishResult, *, dry: bool) -> dict[str, object]:
    entry: dict[str, object] = {"id": image.id, "repository": str(image.repository), "problem": image.problem}
    entry |= {"dry_run": dry, "waived": dict(image.waived)}
    if image.published:
        transfer = image.published.transfer
        entry |= decision_json(image.published.decision) | {"tested": image.published.tested}
        entry["same_image"] = image.published.tested == entry["digest"] or bool(image.published.released_by)
        abilities = image.published.abilities
        entry |= {"registry": asdict(abilities)} if abilities else {}
        entry |= {
            "sent_bytes": transfer.bytes if transfer else 0,
            "bytes": transfer.whole if transfer else None,
        }
    return entry
