"""Build the selected images: bases, locks, plan, build, and tags in the engine."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from torchbake.build.backend import Backend, backend_of
from torchbake.build.bakefile import BuildOptions
from torchbake.build.base_image import BaseImage, find_base, make_base
from torchbake.build.base_look import check_version
from torchbake.build.commit import commit_time, revision, untrue_label
from torchbake.build.executor import Choice
from torchbake.build.native import bases_for
from torchbake.build.plan import BuildPlan, make_plan, same_inputs
from torchbake.build.prepare import ImagePreparation
from torchbake.build.result import BuildResult, up_to_date
from torchbake.core.paths import builder_folder, layers_folder, layers_limit
from torchbake.debian.lockfile import find_debian_lock
from torchbake.engine.client import Engine
from torchbake.engine.leftovers import remove_leftovers
from torchbake.errors import EngineError, TorchbakeError, UsageError
from torchbake.hostconfig.apt_config import AptConfig, read_apt_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.lock.builder_lock import make_builder_lock
from torchbake.matrix.project import Project, run_folder
from torchbake.matrix.spec import Spec
from torchbake.projects.package_sources import read_package_sources
from torchbake.store.layers import FetchLayer, LayerStore, fetch_none
from torchbake.ui import console
from torchbake.ui.steps import step


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """The options of `build`."""

    dry_run: bool = False
    locked: bool = False
    no_cache: bool = False
    pull: bool = False
    prune: bool = False
    jobs: int = 2
    builder: str | None = None
    executor: Choice = "auto"
    cache_to: tuple[str, ...] = ()
    cache_from: tuple[str, ...] = ()

    @property
    def force(self) -> bool:
        """True if images are built even if they are up to date."""
        return self.no_cache or self.pull


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """A build of images of a project, into an engine, or without an engine into the project's layout.

    ``fetch`` gets packed layers from released images.
    """

    project: Project
    request: BuildRequest
    engine: Engine | None
    fetch: FetchLayer = fetch_none

    def check(self) -> None:
        """Check that the executor can build here. Raises EngineError."""
        _ = self._backend

    def run(self, specs: Sequence[Spec]) -> list[BuildResult]:
        """Build images, and return the results in their order. Raises an error only if it ends the whole build."""
        store = self._backend.store  # first: without an executor nothing is locked or bootstrapped
        request, pip = self.request, read_package_sources(self.project)
        if self.engine and not request.dry_run:
            with suppress(EngineError):  # the next run removes them
                remove_leftovers(self.engine)
        preparation = ImagePreparation(
            project=self.project, pip=pip, locked=request.locked, dry_run=request.dry_run, say=console.say,
            wheel_folder=builder_folder(),
        )  # fmt: skip
        if not request.locked and not request.dry_run:
            make_builder_lock(self.project.root, pip)
        prepared_images = preparation.images(specs, self._bases(specs, preparation.refused(specs)))
        images = store.images(prepared_images)
        same = same_inputs(prepared_images, images, force=request.force)
        plan = make_plan(
            prepared_images,
            images,
            force=request.force,
            lacking={image.digest: untrue_label(self.project.root, image.labels) for image in same},
            place="the engine" if self.engine else "the store",
        )
        results = plan.decided
        if request.dry_run:
            results += [up_to_date(job.spec.id, job.ref, job.references, store.measure(one)) for job, one in plan.fresh]
        else:
            with step("checking the images that are up to date"):
                results += store.confirm(plan.fresh, images)
        if plan.jobs:
            results += self._build(plan, preparation)
        order = {spec.id: number for number, spec in enumerate(specs)}
        return sorted(results, key=lambda result: order[result.id])

    @cached_property
    def _backend(self) -> Backend:
        request = self.request
        others = {"--cache-to": request.cache_to, "--cache-from": request.cache_from, "--prune": request.prune}
        return backend_of(self.project, self.engine, request.executor, request.builder, others)

    def _bases(self, specs: Sequence[Spec], refused: Collection[str]) -> Mapping[str, BaseImage | TorchbakeError]:
        """Return each base, or the error for which there is none. It ends only the images on this base.

        A base that only ``refused`` images need is not made.
        """
        used_bases = {base.id for spec in specs if spec.id not in refused for base in bases_for(spec)}
        bases: dict[str, BaseImage | TorchbakeError] = {}
        state = self.project.state
        for spec in {base.id: base for image in specs for base in bases_for(image)}.values():
            try:
                self._backend.check_platform(spec.platform)
                with step(f"{spec.id}: checking the base of an earlier run"):
                    lock = find_debian_lock(self.project.root, spec)
                    known_base = None if self.request.pull else find_base(spec, state, lock, hashed=True)
                if known_base is None and (self.request.dry_run or spec.id not in used_bases):
                    known_base = BaseImage(
                        name=spec.id, image=spec.image, source="auto", digest="not known yet", created=""
                    )
                base = known_base or make_base(
                    spec, state, self._apt, source="auto", say=console.say,
                    start=partial(self._backend.start, cached=False), lock=lock,
                )  # fmt: skip
                check_version(spec, base.python)
                bases[spec.id] = base
            except TorchbakeError as error:
                bases[spec.id] = error
        return bases

    @cached_property
    def _apt(self) -> AptConfig:
        """The settings of apt, by a process that a run with nothing to do must not start."""
        return read_apt_config()

    def _build(self, plan: BuildPlan, preparation: ImagePreparation) -> list[BuildResult]:
        """Build the jobs of the plan; in a dry run, show the bake file."""
        from torchbake.build.run import BuildRun  # noqa: PLC0415 - a run with nothing to do does not load it

        backend = self._backend
        plan = replace(plan, jobs=[*map(backend.on_engine, plan.jobs)])
        request, options = self.request, self._options(backend)
        layers, limit = LayerStore(folder=layers_folder(), fetch=self.fetch), layers_limit()
        build = BuildRun(backend=backend, preparation=preparation, prune=request.prune, layers=layers)
        if request.dry_run:
            return _show(plan, build.bake_file(plan.jobs, options, self._apt))
        folder = run_folder(self.project.state)
        with layers.in_use():
            results = build.run(plan, options, self._apt, folder, jobs=1 if request.prune else request.jobs)
        with suppress(OSError):  # a read-only store
            layers.tidy(limit)
        return results

    def _options(self, backend: Backend) -> BuildOptions:
        request, root = self.request, self.project.root
        caches = (*request.cache_to, *request.cache_from)
        wrong = next((cache for cache in caches if "=" not in cache and "/" not in cache), None)
        if wrong:
            raise UsageError(
                f"{wrong!r} is no build cache.", hint="Write it as buildx does: type=registry,ref=HOST/NAME."
            )
        return BuildOptions(
            output=backend.output,
            created=commit_time(root),
            # For a dry run; a build has a temporary folder.
            exports=backend.store.layout.folder / "exports",
            revision=revision(root),
            proxies=proxy_variables(),
            no_cache=request.no_cache,
            pull=request.pull,
            cache_to=request.cache_to,
            cache_from=request.cache_from,
        )


def _show(plan: BuildPlan, bake_file: dict[str, Any]) -> list[BuildResult]:
    console.say("The bake file:", style="bold")
    console.err.print_json(data=bake_file)
    return [
        BuildResult(id=job.spec.id, ref=job.ref, tags=job.tags, status="planned", reason=plan.reasons[job.spec.id])
        for job in plan.jobs
    ]
