"""`publish`: release tested images, each under an immutable tag, then under its rolling tags."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torchbake.build.prepare import ImagePreparation
from torchbake.checks.waivers import parse_waivers
from torchbake.commands import _options as opt
from torchbake.commands._candidates import candidate_of
from torchbake.commands._destinations import Destination, repositories_of
from torchbake.commands._earlier_releases import judge_kept
from torchbake.commands._gate_tables import show_gate
from torchbake.commands._index_releases import IndexPlace, Platforms, release_indexes
from torchbake.commands._publish_tables import PublishResult, problems_of, show_publications, summary_of
from torchbake.commands._registries import registry_of
from torchbake.commands._release_gate import GatedImage, ReleaseGate, behind, judge_images, open_gate
from torchbake.commands._release_images import release_images
from torchbake.commands._selection import load_selection
from torchbake.commands._signing import signer_of
from torchbake.commands._upload_text import UploadText
from torchbake.commands._verdicts import WithVerdicts, signed_verdicts
from torchbake.core.parallel import run_all
from torchbake.core.paths import layers_folder
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.engine.client import Engine
from torchbake.errors import PublishError, sentence_of
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.reference import Repository
from torchbake.oci.variants import CompressionName
from torchbake.registry.cosign import Signer
from torchbake.release.attestations import supply_of
from torchbake.release.candidate import Candidate, Publication, Supply
from torchbake.release.platforms import PlatformSet
from torchbake.release.publisher import Publisher
from torchbake.release.upload import Tell
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board
from torchbake.ui.steps import step

EXAMPLES = (
    "cuda12 --registry ghcr.io/acme",
    "all --registry 127.0.0.1:5000/team --dry-run",
    "cpu --registry ghcr.io/acme --key cosign.key --require-signature",
    "cuda12 --registry ghcr.io/acme --verdicts verdicts --verdict-key cosign.pub",
    "cpu --registry ghcr.io/acme --no-engine --verdicts verdicts --verdict-key cosign.pub",
    "cpu --registry ghcr.io/acme --benchmark examples/benchmark/plan.yaml",
    "cpu --registry ghcr.io/acme --gate gate.yaml --dry-run",
    "cpu --registry ghcr.io/acme --compression both",
    "all --registry ghcr.io/acme --registry 127.0.0.1:5000/team",
    "cpu --registry ghcr.io/acme --waive 'process.size=the new libraries are wanted'",
)


@dataclass(frozen=True, kw_only=True)
class DueRelease:
    """A repository for the release of an image.

    Its ``publisher`` moves the rolling tags with the release, or by itself after all repositories have it (``later``).
    """

    publisher: Publisher
    supply: Supply
    repository: Repository
    later: bool = False


@dataclass(frozen=True, kw_only=True)
class Due:
    """An image to release, and where. ``candidate`` raises CheckError if the image must not be released."""

    spec: Spec
    candidate: Callable[[], Candidate]
    releases: tuple[DueRelease, ...]
    gated: GatedImage | None = None


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors, WithVerdicts):
    shard: tuple[int, int] | None = opt.shard()
    registry: tuple[Destination, ...] = opt.registries("released in each, then the rolling tags move", required=True)
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
    gate: Path | None = opt.option(
        "do not release an image that this gate refuses by known vulnerabilities; attach what it accepts as VEX",
        metavar="FILE",
    )
    no_engine: bool = opt.option(
        "ask no container engine: release the images of the store, with verdicts of `reports/` or of --verdicts"
    )
    dry_run: bool = opt.option("say what would be done, and ask the registry whether it can; change nothing")
    jobs: int = opt.jobs()
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors, args.shard)
    gate = open_gate(args.gate) if args.gate else None
    waivers, signer = parse_waivers(args.waive), signer_of(args)
    built = release_images(project, no_engine=args.no_engine, benchmark=args.benchmark)
    releases, preparation = _releases(args, selection.specs, signer), ImagePreparation.to_ask(project, console.say)
    with step("finding the images and their verdicts"):
        images, verdicts = built.find(selection.specs, preparation), signed_verdicts(args, built.config)
        source = built.transport(images, args.compression or project.matrix.compression)
    prepare = partial(source.prepare, dry=args.dry_run)
    ready = partial(candidate_of, images=images, waivers=waivers, prepare=prepare, others=verdicts, advice=built.advice)
    due = []
    for spec in selection.specs:
        supply = supply_of(spec.repository, source, project.cache, layers_folder())
        where = tuple(releases(spec, supply))
        due.append(Due(spec=spec, candidate=partial(ready, preparation, spec), releases=where))
    with interruptible(), built.layout.in_use():  # no build removes an image of the store in this time
        if gate:
            due = _gated(due, judge_images(gate, project, selection.specs, images, source))
        if args.benchmark and built.engine and not args.dry_run:
            due = _judged(args, args.benchmark, project, built.engine, due)
        results = _plan(due) if args.dry_run else _publish(due, args.jobs)
        if not args.immutable_only:
            platforms = Platforms(project=project, preparation=preparation)
            results = _with_indexes(due, platforms.sets(selection.specs), results, gate, dry=args.dry_run)
    source.tidy()
    if gate and args.format == "table":
        earlier = [one for result in results for one in result.gates.values()]
        show_gate(gate.file, [*(image.gated.result for image in due if image.gated), *earlier])
    show_publications(results, args.format, dry=args.dry_run)
    if bad := problems_of(results):
        reason = with_reasons(f"{len(bad)} of {len(results)} were not released:", bad)
        raise PublishError(reason, hint="Correct it, and run again: finished releases stay.")
    return 0


def _releases(args: Arguments, specs: Sequence[Spec], signer: Signer) -> Callable[[Spec, Supply], list[DueRelease]]:
    """Return a function that lists the releases of an image.

    With several repositories the rolling tags move after each of them has the release. A publisher mounts layers from
    the other repositories of its registry.
    """
    where = {spec.id: repositories_of(args.registry, spec) for spec in specs}
    places = {repository for repositories in where.values() for repository in repositories}
    several = any(len(repositories) > 1 for repositories in where.values()) and not args.dry_run
    publishers = {
        repository: Publisher(
            registry_of(repository, plain_http=args.plain_http),
            mounts=sorted(one.path for one in places - {repository} if one.host == repository.host),
            signer=signer,
            immutable_only=args.immutable_only or several,
        )
        for repository in places
    }
    later = several and not args.immutable_only
    return lambda spec, supply: [
        DueRelease(publisher=publishers[one], supply=supply, repository=one, later=later) for one in where[spec.id]
    ]


def _gated(due: Sequence[Due], images: Mapping[str, GatedImage]) -> list[Due]:
    return [
        replace(one, gated=gated, candidate=behind(gated, one.candidate))
        for one, gated in ((one, images.get(one.spec.id)) for one in due)
    ]


def _judged(args: Arguments, plan: Path, project: Project, engine: Engine, due: Sequence[Due]) -> list[Due]:
    """Let each image be compared with its release in the first repository, if a release is due there."""
    from torchbake.commands._benchmark_gate import gate_of  # noqa: PLC0415 - it is as large as the rest of a release

    judge = gate_of(plan, project, engine, plain_http=args.plain_http).judge
    firsts = [(image, image.releases[0]) for image in due]
    return [
        replace(image, candidate=judge(image.candidate, first.publisher.plan, image.spec, first.repository))
        for image, first in firsts
    ]


def _plan(due: Sequence[Due]) -> list[PublishResult]:
    results = []
    for image in due:
        with step(f"{image.spec.id}: asking {_names(image)}"):
            results += _attempt(image, lambda release, candidate: release.publisher.rehearse(candidate))
    return results


def _publish(due: Sequence[Due], jobs: int) -> list[PublishResult]:
    def stop() -> None:
        console.say("stopping; the next publish finishes the others …", style="yellow")

    with board(len(due), doing="publishing") as progress:
        results = run_all(due, lambda image: _one(image, progress), jobs=jobs, stop=stop)
    return [result for each in results for result in each]


def _one(due: Due, progress: Board) -> list[PublishResult]:
    name = due.spec.id
    progress.start(name, f"to {_names(due)}")
    look = partial(progress.look, name)

    def publish(release: DueRelease, candidate: Candidate) -> Publication:
        publication = release.publisher.publish(candidate, release.supply, look, UploadText(look).add)
        if due.gated is None:
            return publication
        # If nothing is accepted, an empty document takes the place of an earlier one.
        vex, always = due.gated.vex(publication.decision.digest), bool(due.gated.result.allowed)
        return release.publisher.attach(publication, vex, look, always=always)

    results = _attempt(due, publish, look)
    words = [one.problem or (summary_of(one.published) if one.published else "") for one in results]
    if len(results) > 1:
        words = [f"{one.repository}: {text}" for one, text in zip(results, words, strict=True)]
    progress.end(name, "; ".join(words), good=not any(one.problem for one in results))
    return results


def _names(due: Due) -> str:
    return " and ".join(str(release.repository) for release in due.releases)


def _attempt(
    due: Due, work: Callable[[DueRelease, Candidate], Publication], tell: Tell = lambda _: None
) -> list[PublishResult]:
    """Release one image in each repository; a failure is a result, so that the others are released."""
    gate = due.gated.result if due.gated else None
    first, spec = due.releases[0].repository, due.spec
    ready = PublishResult(id=spec.id, platform=spec.platform, repository=first, gate=gate)
    try:
        candidate = due.candidate()
    except Exception as error:
        return [replace(ready, problem=sentence_of(error))]
    ready = replace(ready, waived=candidate.waived)
    results = []
    for release in due.releases:
        result = replace(ready, repository=release.repository)
        try:
            if due.gated:
                result = replace(result, gates=judge_kept(due.gated.gate, release.publisher, candidate))
                for tag, decision in result.gates.items():
                    due.gated.gate.pass_result(decision, f"the build that stays as {tag}")
            results.append(replace(result, published=work(release, candidate)))
        except Exception as error:
            results.append(replace(result, problem=sentence_of(error)))
    return [
        _promoted(release, candidate, result, tell) if release.later else result
        for release, result in zip(due.releases, results, strict=True)
    ]


def _promoted(release: DueRelease, candidate: Candidate, result: PublishResult, tell: Tell) -> PublishResult:
    """Move the rolling tags of a release, unless it failed."""
    if result.published is None:
        return result
    try:
        moved = release.publisher.promote(candidate, tell)
    except Exception as error:
        return replace(result, problem=sentence_of(error))
    first = result.published.decision.action
    action = moved.action if first == "nothing" else first
    decision = replace(moved, action=action)
    return replace(result, published=replace(result.published, decision=decision))


def _with_indexes(
    due: Sequence[Due], sets: Mapping[str, PlatformSet], results: Sequence[PublishResult], gate: ReleaseGate | None,
    *, dry: bool,
) -> list[PublishResult]:  # fmt: skip
    """Release the indexes of images with several platforms, and add their results."""
    places = {
        (sets[one.spec.id].id, release.repository): IndexPlace(
            image=sets[one.spec.id], repository=release.repository, publisher=release.publisher, later=release.later
        )
        for one in due
        if one.spec.id in sets
        for release in one.releases
    }
    parts = [replace(one, index=sets[one.id].id) if one.id in sets else one for one in results]
    with step("joining the platforms of images"):
        return parts + release_indexes(list(places.values()), results, lambda _: None, dry=dry, gate=gate)
