"""One run of builds: several images side by side, each tagged when it is done, one failure ending one image."""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torchbake.build.bakefile import Job, Options, bake_file, target_name
from torchbake.build.buildx import Builder, Outcome, prune
from torchbake.build.image_store import Store, result_of
from torchbake.build.plan import Plan
from torchbake.build.prepare import Preparation
from torchbake.build.progress_view import shown_on
from torchbake.build.result import Result
from torchbake.core.files import write_text
from torchbake.core.parallel import run_all
from torchbake.errors import TorchbakeError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board

_FULL = "no space left on device"
# What BuildKit says when it has lost track of a step that builds share, which it does now and then:
# https://github.com/moby/buildkit/issues/3635
_LOST_TRACK = "failed to get state for index"


@dataclass(frozen=True, kw_only=True)
class BuildRun:
    """Where and how a run builds."""

    store: Store
    preparation: Preparation
    builder: str | None
    prune: bool

    def run(self, plan: Plan, options: Options, apt: AptConfig, folder: Path, *, jobs: int) -> list[Result]:
        """Build every job of the plan; logs and the bake file go to ``folder``.

        Raises KeyboardInterrupt after ending what runs; an image that was finished by then has all its tags.
        """
        ready, results = self._prepare(plan.jobs)
        packing = self.store.layout.written() if self.store.layout else contextlib.nullcontext()
        with packing as exports, self._secrets(ready, apt) as secrets:
            options = replace(options, exports=exports)
            bake = folder / "bake.json"
            write_text(
                bake, json.dumps(bake_file(ready, options, self.preparation.project.root, secrets), indent=2) + "\n"
            )
            builder = Builder(bake, self.builder)
            with board(len(ready), doing="building") as shown:
                run_all(
                    ready,
                    lambda job: self._one(
                        builder, job, folder, shown, reason=plan.reasons[job.spec.id], exports=exports
                    ),
                    jobs=jobs,
                    stop=partial(_stop, builder),
                    on_done=lambda job, outcome: results.append(self._finish(job, outcome.result(), folder, shown)),
                )
        self.store.tidy()
        return results

    def bake_file(self, jobs: Sequence[Job], options: Options, apt: AptConfig) -> dict[str, Any]:
        """The bake file of a plan, for showing: its secrets are gone by the time it is read."""
        with self._secrets(jobs, apt) as secrets:
            return bake_file(jobs, options, self.preparation.project.root, secrets)

    def _prepare(self, jobs: Sequence[Job]) -> tuple[list[Job], list[Result]]:
        ready, failed = [], []
        for job in jobs:
            try:
                ready.append(self.preparation.with_wheels(job))
            except TorchbakeError as error:
                failed.append(result_of(job, "failed", error.message))
        return ready, failed

    def _secrets(self, jobs: Sequence[Job], apt: AptConfig) -> Any:
        return secret_files(self.preparation.pip, apt, [job.spec for job in jobs])

    def _one(
        self, builder: Builder, job: Job, folder: Path, shown: Board, *, reason: str, exports: Path | None
    ) -> Outcome:
        shown.start(job.spec.id, reason)
        export = exports / target_name(job.spec) if exports else None
        if export:
            self.store.lend(export)
        outcome = self._build(builder, job, folder, shown)
        if _says(outcome, _LOST_TRACK) and not builder.stopped:
            shown.look(job.spec.id, "BuildKit lost track of a step that images share: once more")
            first, outcome = outcome, self._build(builder, job, folder, shown)
            outcome = replace(outcome, seconds=first.seconds + outcome.seconds)
        if export and outcome.ok:
            outcome = self._taken_in(outcome, export, job, shown)
        if self.prune and not builder.stopped:
            # Here, before the next image begins: its export would lose what it is packing. So there is one job only.
            prune(self.builder)
        return outcome

    def _build(self, builder: Builder, job: Job, folder: Path, shown: Board) -> Outcome:
        return builder.build(target_name(job.spec), folder / f"{job.spec.id}.log", shown_on(shown, job.spec.id))

    def _taken_in(self, outcome: Outcome, export: Path, job: Job, shown: Board) -> Outcome:
        """The packed image, kept and handed to the engine."""
        started = time.monotonic()
        shown.look(job.spec.id, "handing it to the engine")
        try:
            self.store.take_in(outcome.digests[0], export)
            shown.look(job.spec.id, "reading what it holds")
            self.store.remember(outcome.digests[0], self.preparation.project.memory)
        except (TorchbakeError, OSError) as error:
            return replace(outcome, errors=(str(error),))
        return replace(outcome, seconds=outcome.seconds + time.monotonic() - started)

    def _finish(self, job: Job, outcome: Outcome, folder: Path, shown: Board) -> Result:
        if not outcome.ok:
            return self._failure(job, outcome, folder / f"{job.spec.id}.log", shown)
        digest = self.store.engine.find(outcome.digests)
        if digest is None:
            # A builder that keeps its results to itself, or an engine other than the one we ask.
            shown.end(job.spec.id, "built, but the engine does not have it", good=False)
            return result_of(job, "failed", "built, but not in the engine", seconds=outcome.seconds)
        self.store.tag(digest, job)
        image = self.store.engine.images()[job.ref]
        shown.end(job.spec.id, f"built in {outcome.seconds:.1f} s", good=True)
        return result_of(job, "built", "", self.store.measured(image), outcome.seconds)

    def _failure(self, job: Job, outcome: Outcome, log: Path, shown: Board) -> Result:
        full = _says(outcome, _FULL)
        reason = "the engine's disk is full" if full else outcome.errors[0].strip()
        shown.end(job.spec.id, f"failed after {outcome.seconds:.1f} s", good=False)
        for line in outcome.tail:
            console.say(f"    {line}", style="dim")
        console.say(f"    the whole log: {log}")
        if full:
            console.say("    next: free some space (docker buildx prune), or build with --prune", style="bold")
        return result_of(job, "failed", reason, seconds=outcome.seconds)


def _says(outcome: Outcome, words: str) -> bool:
    """Whether a failure is told in these words."""
    return not outcome.ok and any(words in line.lower() for line in (*outcome.errors, *outcome.tail))


def _stop(builder: Builder) -> None:
    console.say("stopping; what is finished is kept …", style="yellow")
    builder.stop()
