"""Running `docker buildx bake`: one process an image, several side by side, and an orderly end of all.

BuildKit does the work and shares what images have in common; a process each is what keeps one image's
failure from ending the others.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchbake.build.buildkit_progress import Progress, Step, events
from torchbake.build.processes import Processes
from torchbake.core.files import write_text
from torchbake.engine.address import docker_command
from torchbake.engine.client import starting_docker
from torchbake.ui.tool_environment import environment_of


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one build ended.

    ``digests`` are what the engine may know the image by: its manifest's, or its configuration's.
    ``errors`` says why each step failed, and is empty when it went well; ``tail`` are the log's last lines.
    """

    seconds: float
    digests: tuple[str, ...]
    errors: tuple[str, ...]
    tail: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.errors


class Builder:
    """Runs targets of bake files; thread-safe."""

    def __init__(self, builder: str | None) -> None:
        self._builder = builder
        self._processes = Processes()

    @property
    def stopped(self) -> bool:
        return self._processes.stopped

    def build(
        self, bake_file: Path, target: str, log: Path, on_step: Callable[[Progress, list[Step]], None]
    ) -> Outcome:
        """Build one target; blocks. ``on_step`` is called with each piece of progress. The log is kept."""
        started = time.monotonic()
        progress, said = Progress(), []
        metadata = log.with_suffix(".json")
        process = self._start(bake_file, target, metadata)
        try:
            for event in events(process.stdout or ()):
                if isinstance(event, str):
                    said.append(event)
                else:
                    on_step(progress, progress.feed(event))
            code = process.wait()
        finally:
            self._processes.forget(process)
            # An image is worth more than its log: a full disk here must not lose what the engine has finished.
            with contextlib.suppress(OSError):
                write_text(log, "\n".join([*progress.log, *said]) + "\n")
        errors = tuple(progress.causes or _failure(said) or [f"docker buildx bake ended with {code}"]) if code else ()
        return Outcome(
            seconds=time.monotonic() - started,
            digests=() if code else _digests(metadata),
            errors=errors,
            tail=tuple(progress.tail() or said[-15:]),
        )

    def stop(self) -> None:
        """End every build that runs, and wait until each has taken back what it had begun."""
        self._processes.stop()

    def close(self) -> None:
        """Do nothing: BuildKit keeps its build cache by itself."""

    def _start(self, bake_file: Path, target: str, metadata: Path) -> "subprocess.Popen[str]":
        command = docker_command("buildx", "bake", "--file", str(bake_file), "--progress", "rawjson")
        command += ["--metadata-file", str(metadata)]
        command += ["--builder", self._builder] if self._builder else []
        with starting_docker():
            return self._processes.start([*command, target], _environment())


def _environment() -> dict[str, str]:
    """Targets that others build upon are not images: without this the engine would pack and unpack each."""
    return {**environment_of("docker"), "BUILDX_NO_DEFAULT_LOAD": "1"}


def _failure(said: list[str]) -> list[str]:
    """What buildx itself says of a failure, last of all."""
    return [line.removeprefix("ERROR: ") for line in said[-1:]]


def _digests(metadata: Path) -> tuple[str, ...]:
    targets = json.loads(metadata.read_text()).values()
    keys = ("containerimage.digest", "containerimage.config.digest")
    return tuple(target[key] for target in targets if isinstance(target, dict) for key in keys if key in target)


def prune(builder: str | None) -> None:
    """Drop the build cache, but not the downloaded wheels: for disks that cannot hold a whole matrix's cache."""
    command = docker_command("buildx", "prune", "--force", "--filter", "type=regular")
    words = [*command, *(["--builder", builder] if builder else [])]
    subprocess.run(words, env=environment_of("docker"), capture_output=True, check=False)
