"""Run the builds of several images in parallel. Each image is tagged when it is built; a failure ends one image."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchbake.build.backend import Backend
from torchbake.build.bakefile import BuildJob, BuildOptions, bake_file, target_name
from torchbake.build.bakery import says
from torchbake.build.buildah_build import BuildahBuilder
from torchbake.build.buildx import Builder, BuildOutcome, prune, sentence_of
from torchbake.build.composition import Composition
from torchbake.build.host_layers import HostLayers
from torchbake.build.image_store import result_of
from torchbake.build.kept_images import KeptImages
from torchbake.build.plan import BuildPlan
from torchbake.build.prepare import ImagePreparation
from torchbake.build.result import BuildResult
from torchbake.core.parallel import run_all
from torchbake.errors import EngineError, TorchbakeError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.store.layers import LayerStore
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board
from torchbake.ui.steps import step

_FULL = "no space left on device"


@dataclass(frozen=True, kw_only=True)
class _Site:
    """The common state of the builds of one run. ``exports`` is a folder for their images."""

    builder: Builder | BuildahBuilder
    folder: Path
    progress: Board
    options: BuildOptions
    secrets: Mapping[str, Mapping[str, Path]]
    exports: Path
    composition: Composition

    def stop(self) -> None:
        """End all builds, and stop packing."""
        console.say("stopping; finished images are kept …", style="yellow")
        self.composition.stop()
        self.builder.stop()


@dataclass(frozen=True, kw_only=True)
class BuildRun:
    """The settings of a run. ``layers`` is the store of this machine's layers."""

    backend: Backend
    preparation: ImagePreparation
    prune: bool
    layers: LayerStore

    @property
    def store(self) -> KeptImages:
        return self.backend.store

    def run(
        self, plan: BuildPlan, options: BuildOptions, apt: AptConfig, folder: Path, *, jobs: int
    ) -> list[BuildResult]:
        """Build every job of the plan, with logs and bake files in ``folder``.

        Raises KeyboardInterrupt after the end of all builds. Images that were finished have all their tags.
        """
        ready, results = self._prepare(plan.jobs)
        with (
            self.store.layout.write_lock() as exports, self._secrets(ready, apt) as secrets,
            board(len(ready), doing="building") as progress, self.store.serving(),
        ):  # fmt: skip
            site = _Site(
                builder=self.backend.start(),
                folder=folder,
                progress=progress,
                options=replace(options, exports=exports),
                secrets=secrets,
                exports=exports,
                composition=Composition(
                    host=HostLayers(store=self.layers, pip=self.preparation.pip),
                    ahead=self.store.ahead,
                ),
            )
            try:
                run_all(
                    ready,
                    lambda job: self._one(site, job, reason=plan.reasons[job.spec.id]),
                    jobs=jobs,
                    stop=site.stop,
                    on_end=lambda job, outcome: results.append(self._finish(job, outcome.result(), folder, progress)),
                )
            finally:
                # Layers that are still being packed or pulled are for failed images.
                site.composition.close()
                site.builder.close()
        self.store.tidy(results)
        return results

    def bake_file(self, jobs: Sequence[BuildJob], options: BuildOptions, apt: AptConfig) -> dict[str, Any]:
        """Return the bake file of jobs for a dry run. Its secrets are removed before it is shown."""
        options = replace(options, exports=None) if self.backend.saving else options
        with self._secrets(jobs, apt) as secrets:
            return bake_file(jobs, options, self.preparation.project.root, secrets)

    def _prepare(self, jobs: Sequence[BuildJob]) -> tuple[list[BuildJob], list[BuildResult]]:
        ready, failed = [], []
        if self.backend.saving:
            self.backend.saving.remove_leftovers()
        for job in jobs:
            try:
                with step(f"{job.spec.id}: preparing its base and wheels"):
                    self.backend.import_base(job)
                    ready.append(self.preparation.with_packages(job))
            except TorchbakeError as error:
                failed.append(result_of(job, "failed", error.sentence))
        return ready, failed

    def _secrets(self, jobs: Sequence[BuildJob], apt: AptConfig) -> Any:
        return secret_files(self.preparation.pip, apt, [job.spec for job in jobs])

    def _one(self, site: _Site, job: BuildJob, *, reason: str) -> BuildOutcome:
        site.progress.start(job.spec.id, reason)
        start = time.monotonic()
        try:
            outcome = self._handed_over(site, job, site.exports / target_name(job.spec))
        except (TorchbakeError, OSError) as error:  # for example, its lock was changed during the build
            outcome = BuildOutcome(errors=(str(error),))
        outcome = replace(outcome, seconds=time.monotonic() - start)  # with the time to pack
        if self.prune and not site.builder.stopped:
            # Before the next image begins, whose export would lose its layers. So --prune allows one job.
            prune(self.backend.builder)
        return outcome

    def _handed_over(self, site: _Site, job: BuildJob, export: Path) -> BuildOutcome:
        """Build an image and give it to the engine; a second time if a stored layer is damaged."""
        began = time.time()
        outcome = self._compose(site, job, export)
        damaged = self.layers.drop_damaged(began) if not outcome.ok and not site.builder.stopped else ()
        if not damaged:
            return outcome
        console.say(f"{job.spec.id}: packing damaged layers again: {', '.join(dict.fromkeys(damaged))}")
        return self._compose(site, job, export)

    def _compose(self, site: _Site, job: BuildJob, export: Path) -> BuildOutcome:
        name = job.spec.id
        bakery = self.backend.bakery(
            job, site.builder, options=site.options, secrets=site.secrets[name], log=site.folder / f"{name}.log",
            progress=site.progress, layers=self.layers,
        )  # fmt: skip
        outcome = site.composition.build(job, export, bakery)
        if not outcome.ok:
            return outcome
        site.progress.look(job.spec.id, "giving it to the engine")
        try:
            self.store.take_in(outcome.digests[0], export)
        except (TorchbakeError, OSError) as error:
            if isinstance(error, EngineError):
                self.store.discard(outcome.digests[0], job)
            return replace(outcome, errors=(sentence_of(error),))
        return outcome

    def _finish(self, job: BuildJob, outcome: BuildOutcome, folder: Path, progress: Board) -> BuildResult:
        if not outcome.ok:
            return self._failure(job, outcome, folder / f"{job.spec.id}.log", progress)
        digest = self.store.find(outcome.digests)
        if digest is None:
            # The builder keeps its results, or another engine has the image.
            progress.end(job.spec.id, "built, but the engine does not have it", good=False)
            return result_of(job, "failed", "built, but not in the engine", seconds=outcome.seconds)
        if self.preparation.inputs_changed(job):
            reason = "its files were changed while it was built"
            progress.end(job.spec.id, reason, good=False)
            return result_of(job, "failed", f"{reason}: build it again", seconds=outcome.seconds)
        image = self.store.tag_image(digest, job)
        if image is None:
            progress.end(job.spec.id, "built, but the engine lost it", good=False)
            return result_of(job, "failed", "the engine has lost the image: build it again", seconds=outcome.seconds)
        progress.end(job.spec.id, f"built in {outcome.seconds:.1f} s", good=True)
        return result_of(job, "built", "", self.store.measure(image), outcome.seconds)

    def _failure(self, job: BuildJob, outcome: BuildOutcome, log: Path, progress: Board) -> BuildResult:
        full = says(outcome, _FULL)
        reason = "the engine's disk is full" if full else outcome.errors[0].strip()
        progress.end(job.spec.id, f"failed after {outcome.seconds:.1f} s", good=False)
        for line in outcome.tail:
            console.say(f"    {line}", style="dim")
        console.say(f"    the whole log: {log}")
        if full:
            console.say("    next: free some space (docker buildx prune), or build with --prune", style="bold")
        return result_of(job, "failed", reason, seconds=outcome.seconds)
