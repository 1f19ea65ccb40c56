"""One run of builds: several images side by side, each tagged when it is done, one failure ending one image."""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchbake import console
from torchbake.bakefile import Job, Options, bake_file, target_name
from torchbake.board import Board, board
from torchbake.builder import Builder, Outcome, prune
from torchbake.engine import Engine, Image
from torchbake.errors import EngineError, TorchbakeError
from torchbake.files import write_text
from torchbake.handover import secret_files
from torchbake.mirrors import AptConfig
from torchbake.plan import Plan, Result
from torchbake.preparation import Preparation
from torchbake.project import Project

_FULL = "no space left on device"


@dataclass(frozen=True, kw_only=True)
class BuildRun:
    """Where and how a run builds."""

    project: Project
    engine: Engine
    preparation: Preparation
    builder: str | None
    prune: bool

    def run(self, plan: Plan, options: Options, apt: AptConfig, folder: Path, *, jobs: int) -> list[Result]:
        """Build every job of the plan; logs and the bake file go to ``folder``.

        Raises KeyboardInterrupt after ending what runs; an image that was finished by then has all its tags.
        """
        ready, results = self._prepare(plan.jobs)
        with self._secrets(ready, apt) as secrets:
            bake = folder / "bake.json"
            write_text(bake, json.dumps(bake_file(ready, options, self.project.root, secrets), indent=2) + "\n")
            builder = Builder(bake, self.builder)
            with board(len(ready)) as shown, ThreadPoolExecutor(max_workers=jobs) as pool:
                futures = {
                    pool.submit(self._one, builder, job, folder, shown, plan.reasons[job.spec.id]): job for job in ready
                }
                try:
                    results += self._collect(futures, folder, shown)
                except BaseException:
                    for future in futures:
                        future.cancel()
                    console.say("stopping; what is finished is kept …", style="yellow")
                    builder.stop()
                    raise
        return results

    def bake_file(self, jobs: Sequence[Job], options: Options, apt: AptConfig) -> dict[str, Any]:
        """The bake file of a plan, for showing: its secrets are gone by the time it is read."""
        with self._secrets(jobs, apt) as secrets:
            return bake_file(jobs, options, self.project.root, secrets)

    def confirm(self, fresh: Sequence[tuple[Job, Image]]) -> list[Result]:
        """The results of images that are up to date, their tags put back where they are missing."""
        images = self.engine.images() if fresh else {}
        results = []
        for job, image in fresh:
            moved = [tag for tag in job.tags if not _holds(images, job, tag, image)]
            if moved:
                self._tag(image.digest, job)
            results.append(self.up_to_date(job, image, moved=len(moved)))
        return results

    def up_to_date(self, job: Job, image: Image, *, moved: int = 0) -> Result:
        reason = "inputs unchanged" + (f"; {moved} tags put right" if moved else "")
        return _result(job, "up-to-date", reason, self._measured(image))

    def _prepare(self, jobs: Sequence[Job]) -> tuple[list[Job], list[Result]]:
        ready, failed = [], []
        for job in jobs:
            try:
                ready.append(self.preparation.with_wheels(job))
            except TorchbakeError as error:
                failed.append(_result(job, "failed", error.message))
        return ready, failed

    def _secrets(self, jobs: Sequence[Job], apt: AptConfig) -> Any:
        return secret_files(self.preparation.pip, apt, {job.spec.base.suite for job in jobs})

    def _one(self, builder: Builder, job: Job, folder: Path, shown: Board, reason: str) -> Outcome:
        shown.start(job.spec.id, reason)
        return builder.build(
            target_name(job.spec),
            folder / f"{job.spec.id}.log",
            lambda progress, steps: shown.step(job.spec.id, progress, steps),
        )

    def _collect(self, futures: dict[Future[Outcome], Job], folder: Path, shown: Board) -> list[Result]:
        results, waiting = [], set(futures)
        while waiting:
            # A bounded wait, so that Ctrl-C is seen at once on every platform.
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                job = futures[future]
                results.append(self._finish(job, future.result(), folder, shown))
                if self.prune:  # only ever one job then: another's export would lose what it is packing
                    prune(self.builder)
        return results

    def _finish(self, job: Job, outcome: Outcome, folder: Path, shown: Board) -> Result:
        if not outcome.ok:
            return self._failure(job, outcome, folder / f"{job.spec.id}.log", shown)
        digest = self.engine.find(outcome.digests)
        if digest is None:
            # A builder that keeps its results to itself, or an engine other than the one we ask.
            shown.end(job.spec.id, "built, but the engine does not have it", good=False)
            return _result(job, "failed", "built, but not in the engine", seconds=outcome.seconds)
        self._tag(digest, job)
        image = self.engine.images()[job.ref]
        shown.end(job.spec.id, f"built in {outcome.seconds:.1f} s", good=True)
        return _result(job, "built", "", self._measured(image), outcome.seconds)

    def _failure(self, job: Job, outcome: Outcome, log: Path, shown: Board) -> Result:
        full = any(_FULL in line for line in (*outcome.errors, *outcome.tail))
        reason = "the engine's disk is full" if full else outcome.errors[0].strip()
        shown.end(job.spec.id, f"failed after {outcome.seconds:.1f} s", good=False)
        for line in outcome.tail:
            console.say(f"    {line}", style="dim")
        console.say(f"    the whole log: {log}")
        if full:
            console.say("    next: free some space (docker buildx prune), or build with --prune", style="bold")
        return _result(job, "failed", reason, seconds=outcome.seconds)

    def _measured(self, image: Image) -> Image:
        """The image with its unpacked size; the engine's own figure also counts the packed layers."""
        with contextlib.suppress(EngineError):  # an image that lost its unpacked layers still is one
            return replace(image, size_bytes=self.engine.unpacked_size(image.digest))
        return image

    def _tag(self, digest: str, job: Job) -> None:
        """All tags or, when interrupted before, none."""
        with _uninterrupted():
            self.engine.tag(digest, job.spec.repository, job.tags)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM for the moment that setting an image's tags takes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _holds(images: dict[str, Image], job: Job, tag: str, image: Image) -> bool:
    held = images.get(f"{job.spec.repository}:{tag}")
    return held is not None and held.digest == image.digest


def _result(job: Job, status: Any, reason: str, image: Image | None = None, seconds: float = 0.0) -> Result:
    return Result(
        id=job.spec.id,
        ref=job.ref,
        tags=tuple(f"{job.spec.repository}:{tag}" for tag in job.tags) if image else (),
        status=status,
        reason=reason,
        digest=image.digest if image else None,
        size_bytes=image.size_bytes if image else None,
        seconds=round(seconds, 2),
    )
