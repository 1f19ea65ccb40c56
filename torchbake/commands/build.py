"""`build`: build and tag the selected images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from torchbake.build.images import BuildRequest, ImageBuild
from torchbake.build.plan import build_error
from torchbake.build.result import BuildResult, as_json
from torchbake.commands import _options as opt
from torchbake.commands._build_options import WithExecutor, WithLayers
from torchbake.commands._selection import load_selection
from torchbake.core.digest import short_digest
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.engine.client import connect
from torchbake.errors import UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.ui import console

if TYPE_CHECKING:
    from torchbake.release.fetched_layers import FetchedLayers

EXAMPLES = (
    "cpu",
    "cuda12 '!devel' --jobs 2",
    "2.10.0 --dry-run",
    "cpu --no-engine",
    "cuda12 --layers-from ghcr.io/acme --layers-key cosign.pub",
    "all --prune --format json > images.json",
    "cuda12 --builder kube --cache-to type=registry,ref=HOST/cache:{id},mode=max "
    "--cache-from type=registry,ref=HOST/cache:{id}",
)
_CACHE = "as docker buildx takes it; {id} in it is the image's id: a cache each"
_STYLES = {"built": "green", "up-to-date": "dim", "failed": "bold red", "skipped": "yellow", "planned": "cyan"}


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors, WithExecutor, WithLayers):
    shard: tuple[int, int] | None = opt.shard()
    dry_run: bool = opt.option("show the plan and the bake file; build nothing")
    format: opt.Format = opt.result_format()
    jobs: int = opt.jobs()
    no_cache: bool = opt.option("run every step again")
    pull: bool = opt.option("get the bases again first")
    locked: bool = opt.option("never lock: a missing or stale lock is an error")
    prune: bool = opt.option("one image at a time, and drop the build cache after each")
    builder: str | None = opt.option(
        "a buildx builder, also a remote or Kubernetes one; not on podman, which builds by itself", metavar="NAME"
    )
    no_engine: bool = opt.option("ask no container engine: build by buildah, and keep the images in the store")
    cache_to: tuple[str, ...] = opt.option(_CACHE, metavar="CACHE")
    cache_from: tuple[str, ...] = opt.option(_CACHE, metavar="CACHE")


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors, args.shard)
    shared = _shared(args, project, selection.specs)
    request = BuildRequest(
        dry_run=args.dry_run, locked=args.locked, no_cache=args.no_cache, pull=args.pull, prune=args.prune,
        jobs=args.jobs, builder=args.builder, executor=args.executor, cache_to=args.cache_to,
        cache_from=args.cache_from,
    )  # fmt: skip
    with interruptible():
        engine = None if args.no_engine else connect()
        build = ImageBuild(project=project, request=request, engine=engine)
        build = replace(build, fetch=shared.fetch) if shared else build
        results = build.run(selection.specs)
    _show(results, args, shared, selection.specs)
    if error := build_error(results):
        raise error
    return 0


def _shared(args: Arguments, project: Project, specs: Sequence[Spec]) -> "FetchedLayers | None":
    if args.unused:
        raise UsageError(
            "--layers-key, --plain-http and --no-transparency-log apply to --layers-from.",
            hint="Give --layers-from HOST/NAMESPACE with them, or leave them out.",
        )
    if not args.layers_from:
        return None
    from torchbake.commands._layers_from import layers_from  # noqa: PLC0415 - it loads the client of registries

    return layers_from(args, project, specs)


def _show(
    results: list[BuildResult], args: Arguments, shared: "FetchedLayers | None", specs: Sequence[Spec]
) -> None:  # fmt: skip
    fetched: dict[str, Any] = {}
    if shared and not args.dry_run:
        layers, size = len(shared.sizes), sum(shared.sizes)
        fetched = {"layers_from": {"registry": args.layers_from, "layers": layers, "bytes": size}}
        console.say(f"--layers-from {args.layers_from}: {layers} layers of wheels came from there ({human(size)})")
    rows = [
        (
            Text(result.id, style="bold"),
            Text(result.status, style=_STYLES[result.status]),
            human(result.size_bytes) if result.size_bytes else "",
            f"{result.seconds:.1f} s" if result.seconds else "",
            short_digest(result.digest or ""),
            result.reason.partition("\n")[0],
        )
        for result in results
    ]
    value = {"images": as_json(results, specs), **fetched}
    console.show_result(args.format, value, ("id", "status", "size", "time", "digest", "reason"), rows)
