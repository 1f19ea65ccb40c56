"""`tags`: show the tags of images, or the tags that a release would move in a registry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torchbake.build.plan import ref_of, refs_of
from torchbake.build.prepare import ImagePreparation
from torchbake.commands import _options as opt
from torchbake.commands._destinations import Destination, repositories_of
from torchbake.commands._index_releases import Platforms
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import load_selection, lock_of
from torchbake.core.digest import short_digest
from torchbake.engine.client import connect
from torchbake.engine.image import EngineImage
from torchbake.errors import UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.matrix.tags import engine_tags
from torchbake.registry.client import Registry
from torchbake.release.candidate import Candidate
from torchbake.release.planner import Planner
from torchbake.render.dockerfile import promised_labels
from torchbake.ui import console
from torchbake.ui.steps import step

EXAMPLES = ("all", "cuda12 --format json", "cuda12 --registry ghcr.io/acme --diff")
_UNBUILT = "not built yet"


@dataclass(frozen=True, kw_only=True)
class TagLine:
    """A tag in a registry: the digest that it names now, and the change by a release, if one is ``due``."""

    tag: str
    id: str
    platform: str
    now: str
    then: str
    due: bool


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    registry: tuple[Destination, ...] = opt.registries(
        "the tags of each are compared", configured=lambda args: args.diff
    )
    plain_http: bool = opt.plain_http()
    diff: bool = opt.option("only what a release would move in the registry")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors)
    if args.registry:
        where = [(spec, place) for spec in selection.specs for place in repositories_of(args.registry, spec)]
        registries = [(spec, registry_of(place, plain_http=args.plain_http)) for spec, place in where]
        _show_registries(args, project, registries)
        return 0
    if args.diff:
        raise UsageError("--diff compares with a registry.", hint="Say which: --registry HOST/NAMESPACE")
    # As in the engine, where each platform has its own: in a registry all of them share a tag.
    pairs = [(tag, spec) for spec in selection.specs for tag in engine_tags(spec, project.tags[spec.id])]
    holders = {f"{spec.repository}:{tag}": spec.id for tag, spec in pairs}
    console.show_result(args.format, holders, ("tag", "image"), holders.items())
    return 0


def _show_registries(args: Arguments, project: Project, registries: Sequence[tuple[Spec, Registry]]) -> None:
    refs = refs_of((spec for spec, _ in registries), project.tags)
    images = connect().tagged_images(refs.values())
    with step(f"comparing with {' and '.join(each.registry for each in args.registry)}"):
        lines = [line for spec, registry in registries for line in _lines(registry, project, spec, images)]
    if args.diff:
        lines = [line for line in lines if line.due]
    if args.format == "json":
        console.show_json({"tags": [vars(line) for line in lines]})
    elif lines:
        rows = [(line.tag, line.id, line.now, line.then) for line in lines]
        console.show_table(("tag", "image", "in the registry", "a release would"), rows)
    else:
        console.say("A release would move no tag.")


def _lines(registry: Registry, project: Project, spec: Spec, images: Mapping[str, EngineImage]) -> list[TagLine]:
    """List the immutable tag of an image's next release, then its rolling tags.

    The rolling tags of several platforms are at their index, which a release of each of them may move.
    """
    repository, tags = registry.repository, project.tags[spec.id]
    platforms = Platforms(project=project, preparation=ImagePreparation.to_ask(project, console.say))
    decision = Planner(registry).decide(_candidate(project, spec, images, platforms))
    now = {move.tag: move.before for move in decision.moves}
    new, due = decision.action == "release", {move.tag for move in decision.due}
    first = "" if new else short_digest(decision.digest)
    line = partial(TagLine, id=spec.id, platform=spec.platform)
    lines = [line(tag=f"{repository}:{decision.tag}", now=first, then="set it" if new else "", due=new)]
    waits = new and not platforms.tags(spec)
    for tag in tags:
        digest = now[tag] if tag in now else registry.digest(tag)
        then = f"move it to {decision.tag}" if tag in due else "move it, after all platforms" if waits else ""
        if tag in decision.held_back:
            then = f"leave it: {decision.held_back[tag]}"
        before = short_digest(digest) if digest else ""
        lines.append(line(tag=f"{repository}:{tag}", now=before, then=then, due=tag in due or waits))
    return lines


def _candidate(
    project: Project, spec: Spec, images: Mapping[str, EngineImage], platforms: Platforms
) -> Candidate:  # fmt: skip
    """Describe the engine's image; without one, the image that the lock promises, which counts as a new release."""
    tags = project.tags[spec.id]
    image = images.get(ref_of(spec, tags))
    labels = image.labels if image else promised_labels(spec, lock_of(project, spec))
    digest = image.digest if image else _UNBUILT
    return Candidate(
        id=spec.id, digest=digest, labels=labels, tags=platforms.tags(spec), own=platforms.name(spec), verdict=None
    )  # fmt: skip
