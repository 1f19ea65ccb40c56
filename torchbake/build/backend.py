"""The executor of a build, and the engine or the store that gets its images."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from torchbake.build.bakefile import BuildJob, BuildOptions, export_spec, into_engine
from torchbake.build.bakery import Bakery
from torchbake.build.base_image import BaseImage
from torchbake.build.buildah import Buildah
from torchbake.build.buildah_build import BuildahBuilder
from torchbake.build.buildkit_progress import shown_on
from torchbake.build.buildx import Builder, builder_driver, builder_platforms
from torchbake.build.commit import content_epoch
from torchbake.build.executor import Choice, Executor, buildah_of, check_options, executor_of
from torchbake.build.image_store import Store
from torchbake.build.kept_images import KeptImages
from torchbake.build.result import sizes_file
from torchbake.build.saved_image import SavedImages
from torchbake.core.machine import host_platform
from torchbake.engine.capability import uses_layouts
from torchbake.engine.client import Engine
from torchbake.engine.emulation import no_emulation, runs
from torchbake.errors import EngineError
from torchbake.matrix.project import Project
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.own_layers import OwnLayers
from torchbake.ui import console
from torchbake.ui.progress_board import Board


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An executor and the store of its images. ``builder`` is a buildx builder; None is docker's default.

    With ``buildah`` this program builds, not BuildKit.
    """

    project: Project
    engine: Engine | None
    executor: Executor
    store: KeptImages
    builder: str | None = None
    buildah: Buildah | None = None

    @cached_property
    def saving(self) -> SavedImages | None:
        """The export of images by `docker save`, if BuildKit reads and writes no image layouts."""
        if self.engine is None or self.buildah or not isinstance(self.store, Store):
            return None
        if uses_layouts(self.engine.capabilities, driver=builder_driver(self.builder)):
            return None
        return SavedImages(store=self.store, state=self.project.state)

    def check_platform(self, platform: str) -> None:
        """Raise EngineError if images of a platform cannot be built here. The machine's own platform is not checked."""
        if platform == host_platform():
            return
        if self.executor != "buildx" or self.saving:
            how = self.executor if self.executor != "buildx" else "Docker's classic image store"
            raise EngineError(
                f"Images for {platform} cannot be built here: torchbake builds by {how} for {host_platform()} alone.",
                hint="Use Docker with its containerd image store, or a builder of buildx: --builder NAME.",
            )
        self.check_scripts(platform)

    def check_scripts(self, platform: str) -> None:
        """Raise EngineError if a script cannot run in a container of a platform here, without an image to export."""
        here = platform in self._platforms if self.executor == "buildx" else runs(platform)
        if platform != host_platform() and not here:
            problem = no_emulation(platform)
            raise EngineError(f"The builder has no {platform}. {problem.reason}", hint=problem.remedy)

    @cached_property
    def _platforms(self) -> tuple[str, ...]:
        return builder_platforms(self.builder)

    @property
    def output(self) -> str:
        """The output of the builds, in the form of a bake file."""
        return into_engine() if self.saving else export_spec()

    def on_engine(self, job: BuildJob) -> BuildJob:
        """Return a job with the contexts of this backend."""
        return self.saving.on_engine(job) if self.saving else job

    def base_context(self, base: BaseImage) -> str:
        """Return the context of a base, which is imported into the engine if builds read it there.

        Raises EngineError and BuildError.
        """
        if not self.saving or base.source != "bootstrap":
            return base.context(self.project.state)
        self.saving.import_base(base)
        return base.context_in_engine

    def import_base(self, job: BuildJob) -> None:
        """Import a job's base into the engine if the build reads it there. Raises EngineError and BuildError."""
        if self.saving:
            self.saving.import_base(job.base)

    def start(self, *, cached: bool = True) -> Builder | BuildahBuilder:
        """Return a runner of builds. Without ``cached`` buildah keeps no image for the next build."""
        if self.buildah is None:
            return Builder(self.builder)
        bring = self.buildah.bring
        if self.buildah.address and isinstance(self.store, Store):
            bring = self.store.bring
        return BuildahBuilder(self.buildah, bring, cached=cached and self.buildah.cached)

    def bakery(
        self, job: BuildJob, builder: Builder | BuildahBuilder, *, options: BuildOptions, secrets: Mapping[str, Path],
        log: Path,
        progress: Board, layers: LayerStore,
    ) -> Bakery:  # fmt: skip
        """Return the builder of a job's image, which shows its progress on a board."""
        name, base = job.spec.id, job.base
        layout = Layout(folder=base.layout(self.project.state)) if base.source == "bootstrap" else None
        return Bakery(
            builder=builder, root=self.project.root, options=options, secrets=secrets, log=log,
            on_step=shown_on(progress, name), again=partial(progress.look, name), saving=self.saving,
            own=OwnLayers(store=layers, epoch=content_epoch(), base=layout),
        )  # fmt: skip


def backend_of(
    project: Project, engine: Engine | None, choice: Choice, builder: str | None, others: Mapping[str, object]
) -> Backend:  # fmt: skip
    """Choose an executor and check that it can build here. Raises EngineError and UsageError.

    ``others`` are the values of options that only BuildKit has.
    """
    capabilities, layout = engine.capabilities if engine else None, Layout(folder=project.layout)
    executor = executor_of(choice, capabilities)
    check_options(executor, {"--builder": builder, **others})
    buildah = buildah_of(executor, capabilities)
    store = (
        Store(engine=engine, sizes=sizes_file(project.state), layout=layout, say=console.say)
        if engine
        else KeptImages(layout=layout)
    )
    return Backend(project=project, engine=engine, executor=executor, store=store, builder=builder, buildah=buildah)
