"""Run `docker buildx bake` and `docker buildx prune`.

One process builds one image, so that a failure ends no other build. BuildKit shares steps between images.
"""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchbake.build.buildkit_progress import BuildStep, Progress, events
from torchbake.build.processes import BuildProcesses
from torchbake.core.files import write_text
from torchbake.core.plain_text import last_line
from torchbake.engine.address import docker_command
from torchbake.engine.client import starting_docker
from torchbake.errors import EngineError, TorchbakeError
from torchbake.ui.tool_environment import environment_of


@dataclass(frozen=True, kw_only=True)
class BuildOutcome:
    """The end of one build.

    ``digests`` are the possible IDs of the image in an engine: of its manifest and of its config. After a success
    ``errors`` is empty; else it has the reason for each failed step. ``tail`` are the log's last lines.
    """

    seconds: float = 0
    digests: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors


def sentence_of(error: Exception) -> str:
    """Return an error on one line, with the next step if it has one."""
    return error.sentence if isinstance(error, TorchbakeError) else str(error)


class Builder:
    """Runs targets of bake files. Thread-safe."""

    def __init__(self, builder: str | None) -> None:
        self._builder = builder
        self._processes = BuildProcesses()

    @property
    def stopped(self) -> bool:
        return self._processes.stopped

    def build(
        self, bake_file: Path, target: str, log: Path, on_step: Callable[[Progress, list[BuildStep]], None]
    ) -> BuildOutcome:
        """Build one target, and write its log. ``on_step`` is called for each event of BuildKit's progress."""
        start = time.monotonic()
        progress, messages = Progress(), list[str]()
        metadata = log.with_suffix(".json")
        process = self._start(bake_file, target, metadata)
        try:
            for event in events(process.stdout or ()):
                if isinstance(event, str):
                    messages.append(event)
                else:
                    on_step(progress, progress.feed(event))
            code = process.wait()
        finally:
            self._processes.forget(process)
            with contextlib.suppress(OSError):  # a full disk here must not fail a finished build
                write_text(log, "\n".join([*progress.log, *messages]) + "\n")
        failure = [line.removeprefix("ERROR: ") for line in messages[-1:]] or [f"docker buildx bake ended with {code}"]
        return BuildOutcome(
            seconds=time.monotonic() - start,
            digests=() if code else _digests(metadata),
            errors=tuple(progress.causes or failure) if code else (),
            tail=tuple(progress.tail() or messages[-15:]),
        )

    def stop(self) -> None:
        """End every running build, and wait until each has removed its partial exports."""
        self._processes.stop()

    def close(self) -> None:
        """Do nothing: BuildKit keeps its build cache by itself."""

    def _start(self, bake_file: Path, target: str, metadata: Path) -> "subprocess.Popen[str]":
        command = docker_command("buildx", "bake", "--file", str(bake_file), "--progress", "rawjson")
        command += ["--metadata-file", str(metadata)]
        command += ["--builder", self._builder] if self._builder else []
        # By default the engine would pack and unpack the targets on which others are based.
        environment = {**environment_of("docker"), "BUILDX_NO_DEFAULT_LOAD": "1"}
        with starting_docker():
            return self._processes.start([*command, target], environment)


def _digests(metadata: Path) -> tuple[str, ...]:
    targets = json.loads(metadata.read_text()).values()
    keys = ("containerimage.digest", "containerimage.config.digest")
    return tuple(target[key] for target in targets if isinstance(target, dict) for key in keys if key in target)


def prune(builder: str | None) -> None:
    """Remove the build cache without the downloaded wheels, for disks that are too small for a matrix's cache."""
    command = docker_command("buildx", "prune", "--force", "--filter", "type=regular")
    words = [*command, *(["--builder", builder] if builder else [])]
    subprocess.run(words, env=environment_of("docker"), capture_output=True, check=False)


def builder_driver(builder: str | None) -> str:
    """Return the driver of a builder, such as ``docker-container``. Raises EngineError if there is no such builder."""
    return _inspect(builder, r"^Driver:\s+(\S+)")[0]


def builder_platforms(builder: str | None) -> tuple[str, ...]:
    """Return the platforms of a builder's nodes, with the emulated ones. Raises EngineError if there is no builder.

    A builder that does not run yet is started, as buildx does not know its platforms.
    """
    lines = _inspect(builder, r"^Platforms:\s+(.+)", "--bootstrap")
    return tuple(name.strip().rstrip("*") for line in lines for name in line.split(","))


def _inspect(builder: str | None, pattern: str, *options: str) -> list[str]:
    """Return the matches of a pattern in the description of a builder. Raises EngineError if there is none."""
    command = docker_command("buildx", "inspect", *options, *([builder] if builder else []))
    process = subprocess.run(command, env=environment_of("docker"), capture_output=True, text=True, check=False)
    matches = re.findall(pattern, process.stdout, flags=re.MULTILINE)
    if process.returncode or not matches:
        reason = last_line(process.stderr)
        raise EngineError(f"No builder {builder or '(default)'!r}: {reason}", hint="See: docker buildx ls")
    return [str(match) for match in matches]
