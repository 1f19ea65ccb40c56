"""`build`: images in the engine, from bases and locks to tags."""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from rich.text import Text

from torchbake.build.bakefile import Options, output_for, packed
from torchbake.build.base_image import Base, find_base, make_base
from torchbake.build.image_store import Store, up_to_date
from torchbake.build.plan import Plan, Result, make_plan, not_built, same_inputs
from torchbake.build.prepare import Preparation
from torchbake.build.source_date import content_epoch, created, revision
from torchbake.commands._options import add_selectors, add_shard, load_selection, positive
from torchbake.core.signals import interruptible
from torchbake.core.sizes import in_gigabytes
from torchbake.engine.client import CONTAINERD_STORE, Engine, builder_driver, check_buildx, connect
from torchbake.engine.image import Image
from torchbake.errors import EngineError, TorchbakeError, UsageError
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.lock.builder_lock import make_builder_lock
from torchbake.matrix.project import Project, run_folder
from torchbake.matrix.select import Selection
from torchbake.matrix.spec import bases_of
from torchbake.oci.layout import COMPRESSIONS, Compression, Layout
from torchbake.ui import console

EXAMPLES = (
    "nox -s build -- cpu",
    "nox -s build -- cuda12 '!devel' --jobs 2",
    "nox -s build -- 2.10.0 --dry-run",
    "nox -s build -- cuda12 --reproducible",
    "nox -s build -- all --prune --format json > images.json",
    "nox -s build -- cuda12 --builder kube --cache-to type=registry,ref=HOST/cache,mode=max "
    "--cache-from type=registry,ref=HOST/cache",
)
_STYLES = {
    "built": "green",
    "up-to-date": "dim",
    "failed": "bold red",
    "skipped": "yellow",
    "planned": "cyan",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_selectors(parser)
    add_shard(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the plan and the bake file; build nothing")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="of the result (default: table)")
    parser.add_argument(
        "--jobs", type=positive("--jobs"), default=2, metavar="N", help="images side by side (default: 2)"
    )
    parser.add_argument("--no-cache", action="store_true", help="run every step anew")
    parser.add_argument("--pull", action="store_true", help="get the bases anew first")
    parser.add_argument("--locked", action="store_true", help="never lock: a missing or stale lock is an error")
    parser.add_argument("--prune", action="store_true", help="one image at a time, and drop the build cache after each")
    parser.add_argument("--builder", metavar="NAME", help="a buildx builder, also a remote or Kubernetes one")
    parser.add_argument(
        "--reproducible", action="store_true",
        help="pack once, the same bytes each time, and keep them for publish",
    )  # fmt: skip
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, help="of --reproducible layers; gzip for old clients (default: zstd)"
    )
    parser.add_argument("--cache-to", action="append", default=[], metavar="CACHE", help="as docker buildx takes it")
    parser.add_argument("--cache-from", action="append", default=[], metavar="CACHE", help="as docker buildx takes it")


def run(args: argparse.Namespace) -> int:
    project, selection = load_selection(args)
    if args.compression and not args.reproducible:
        raise UsageError("--compression is of the layers that are kept.", hint="Give --reproducible with it.")
    engine = connect()
    store = Store(engine=engine, sizes=project.state / "sizes.json", layout=_layout(args, project, engine))
    with interruptible():
        results = _build(args, project, selection, store)
    _show(results, args.format)
    error = not_built(results)
    if error:
        raise error
    return 0


def _layout(args: argparse.Namespace, project: Project, engine: Engine) -> Layout | None:
    """Where images are packed reproducibly; None where that is not asked for."""
    if not args.reproducible:
        return None
    if not engine.containerd_store:
        raise EngineError(
            "This engine takes images apart, so what it tests would be another image than the one that is packed.",
            hint=f"{CONTAINERD_STORE}: nox -s setup",
        )
    return Layout(folder=project.layout)


def _build(args: argparse.Namespace, project: Project, selection: Selection, store: Store) -> list[Result]:
    # The engine takes about as long to list its images as we take to prepare the jobs.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return _plan_and_build(args, project, selection, store, pool.submit(store.engine.images))


def _plan_and_build(
    args: argparse.Namespace,
    project: Project,
    selection: Selection,
    store: Store,
    listing: Future[dict[str, Image]],
) -> list[Result]:
    pip = read_pip_config()
    preparation = Preparation(project=project, pip=pip, locked=args.locked, dry_run=args.dry_run, say=console.say)
    if not args.locked and not args.dry_run:
        make_builder_lock(project.root, pip)
    bases = _bases(args, project, selection)
    force = args.no_cache or args.pull
    prepared = preparation.images(selection.specs, bases)
    images = listing.result()
    lacking = _lacking(args, store, same_inputs(prepared, images, force=force))
    plan = make_plan(prepared, images, force=force, lacking=lacking)
    if args.dry_run:
        results = plan.decided + [up_to_date(job, store.measured(image)) for job, image in plan.fresh]
    else:
        results = plan.decided + store.confirm(plan.fresh, images)
    if plan.jobs:
        results += _build_jobs(args, plan, preparation, store)
    order = {spec.id: number for number, spec in enumerate(selection.specs)}
    return sorted(results, key=lambda result: order[result.id])


def _build_jobs(args: argparse.Namespace, plan: Plan, preparation: Preparation, store: Store) -> list[Result]:
    """Build the jobs of the plan; in a dry run, show what would be built and how."""
    from torchbake.build.run import BuildRun  # noqa: PLC0415 - a run with nothing to do need not load it

    check_buildx()
    apt = read_apt_config()  # it asks apt: nothing for a run with nothing to do
    project = preparation.project
    options = _options(args, project, store)
    build = BuildRun(store=store, preparation=preparation, builder=args.builder, prune=args.prune)
    if args.dry_run:
        return _dry_run(plan, build.bake_file(plan.jobs, options, apt))
    folder = run_folder(project.state)
    return build.run(plan, options, apt, folder, jobs=1 if args.prune else args.jobs)


def _bases(args: argparse.Namespace, project: Project, selection: Selection) -> Mapping[str, Base | TorchbakeError]:
    """Each base, or why there is none: that ends the images on it, not the others."""
    bases: dict[str, Base | TorchbakeError] = {}
    for spec in bases_of(selection.specs):
        known = None if args.pull else find_base(spec, project.state)
        try:
            if known is None and args.dry_run:
                known = Base(name=spec.name, image=spec.image, source="auto", digest="not known yet", created="")
            bases[spec.name] = known or make_base(
                spec, project.state, read_apt_config(), source="auto", say=console.say
            )
        except TorchbakeError as error:
            bases[spec.name] = error
    return bases


def _lacking(args: argparse.Namespace, store: Store, images: Sequence[Image]) -> dict[str, str]:
    """Why images are not packed as they are asked for, by digest; empty where packed ones are not asked for."""
    if not store.layout:
        return {}
    return {image.digest: store.layout.lacks(image.digest, _compression(args)) for image in images}


def _compression(args: argparse.Namespace) -> Compression:
    return args.compression or "zstd"


def _options(args: argparse.Namespace, project: Project, store: Store) -> Options:
    driver = builder_driver(args.builder)
    caches = (*args.cache_to, *args.cache_from)
    wrong = next((cache for cache in caches if "=" not in cache and "/" not in cache), None)
    if wrong:
        raise UsageError(f"{wrong!r} is no build cache.", hint="Write it as buildx does: type=registry,ref=HOST/NAME.")
    unpacked = output_for(driver, containerd_store=store.engine.containerd_store)
    return Options(
        output=packed(_compression(args)) if store.layout else unpacked,
        created=created(project.root),
        epoch=content_epoch() if store.layout else None,
        # As a dry run shows it; each run makes its own.
        exports=store.layout.folder / "exports" if store.layout else None,
        revision=revision(project.root),
        proxies=proxy_variables(),
        no_cache=args.no_cache,
        pull=args.pull,
        cache_to=tuple(args.cache_to),
        cache_from=tuple(args.cache_from),
    )


def _dry_run(plan: Plan, bake_file: dict[str, Any]) -> list[Result]:
    console.say("The bake file:", style="bold")
    console.err.print_json(data=bake_file)
    return [
        Result(id=job.spec.id, ref=job.ref, tags=job.tags, status="planned", reason=plan.reasons[job.spec.id])
        for job in plan.jobs
    ]


def _show(results: list[Result], form: str) -> None:
    if form == "json":
        console.show_json({"images": [asdict(result) for result in results]})
        return
    rows = [_row(result) for result in results]
    console.show_table(("id", "status", "size", "time", "digest", "reason"), rows)


def _row(result: Result) -> tuple[Text | str, ...]:
    size = in_gigabytes(result.size_bytes or 0)
    return (
        Text(result.id, style="bold"),
        Text(result.status, style=_STYLES[result.status]),
        size,
        f"{result.seconds:.1f} s" if result.seconds else "",
        (result.digest or "").removeprefix("sha256:")[:12],
        result.reason.partition("\n")[0],
    )
