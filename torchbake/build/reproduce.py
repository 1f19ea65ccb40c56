"""Build images twice without the build cache, and compare the results. The engine's images do not change."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from torchbake.build.backend import Backend
from torchbake.build.bakefile import BuildJob, BuildOptions, target_name
from torchbake.build.buildx import BuildOutcome
from torchbake.build.composition import Composition
from torchbake.build.host_layers import HostLayers
from torchbake.build.prepare import ImagePreparation
from torchbake.core.parallel import run_all
from torchbake.errors import BuildError, ReproduceError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.store.diff import ImageDiff, compare
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.ui.progress_board import Board

BUILDS = ("first", "second")


@dataclass(frozen=True, kw_only=True)
class ReproductionResult:
    """The comparison of two builds of an image, or the ``problem`` for which there is none."""

    id: str
    comparison: ImageDiff | None = None
    problem: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.comparison is not None and not self.comparison.differences


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Builds images twice, by the backends for the first and the second build."""

    preparation: ImagePreparation
    options: BuildOptions
    apt: AptConfig
    backends: tuple[Backend, Backend]
    logs: Path

    def of(self, job: BuildJob, progress: Board) -> ReproductionResult:
        """Build a job twice without the cache, in a temporary folder, and compare the images."""
        start, name = time.monotonic(), job.spec.id
        progress.start(name, "two cold builds")
        self.logs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.logs, prefix=f".{name}-") as folder:
            try:
                comparison = compare(*self._build_twice(job, Path(folder), progress))
                state = ReproductionResult(id=name, comparison=comparison, seconds=time.monotonic() - start)
            except (BuildError, ReproduceError) as error:
                state = ReproductionResult(id=name, problem=error.message, seconds=time.monotonic() - start)
        progress.end(name, _summary(state), good=state.good)
        return state

    def _build_twice(self, job: BuildJob, folder: Path, progress: Board) -> list[tuple[Layout, str]]:
        ready, built = self.preparation.with_packages(job), []
        for which, backend in zip(BUILDS, self.backends, strict=True):
            outcome = self._build(ready, folder / which, backend, which, progress)
            if not outcome.ok:
                log = self._log(job, which)
                raise ReproduceError(f"The {which} build failed: {outcome.errors[0].strip()}\nthe whole log: {log}")
            built.append((Layout(folder=folder / which / target_name(job.spec)), outcome.digests[0]))
        return built

    def _build(self, job: BuildJob, exports: Path, backend: Backend, which: str, progress: Board) -> BuildOutcome:
        options = replace(self.options, output=backend.output, exports=exports, no_cache=True)
        running = backend.start(cached=False)
        # Each build writes all layers, as it runs all steps.
        layers = LayerStore(folder=exports.with_name(f"{exports.name}-layers"))
        composition = Composition(host=HostLayers(store=layers, pip=self.preparation.pip))

        def stop() -> None:
            running.stop()
            composition.stop()

        with backend.store.serving(), secret_files(self.preparation.pip, self.apt, [job.spec]) as secrets:
            backend.import_base(job)
            # In another thread, so that Ctrl-C ends the build in order.
            bakery = backend.bakery(
                job, running, options=options, secrets=secrets[job.spec.id], log=self._log(job, which),
                progress=progress,
                layers=layers,
            )  # fmt: skip
            try:
                (outcome,) = run_all(
                    [backend.on_engine(job)],
                    lambda job: composition.build(job, exports / target_name(job.spec), bakery),
                    jobs=1,
                    stop=stop,
                )
            finally:
                running.close()
        return outcome

    def _log(self, job: BuildJob, which: str) -> Path:
        return self.logs / f"{job.spec.id}-{which}.log"


def _summary(state: ReproductionResult) -> str:
    if state.comparison is None:
        return state.problem
    if state.good:
        return f"the same twice: {state.comparison.digests[0]}"
    return "; ".join(f"{one.where}: {one.what}" for one in state.comparison.differences[:1])
