"""Build targets of bake files by buildah or podman, as `Builder` does by BuildKit."""

import base64
import contextlib
import json
import os
import re
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from torchbake.build.buildah import Buildah, manifest_in, put_files
from torchbake.build.buildah_context import all_of, own_files, some_of, write_context
from torchbake.build.buildkit_progress import BuildStep, Progress
from torchbake.build.buildx import BuildOutcome, sentence_of
from torchbake.build.podman_file import EMPTY, OURS, podman_file
from torchbake.build.processes import BuildProcesses
from torchbake.core.files import write_text
from torchbake.errors import BuildError, TorchbakeError
from torchbake.oci.reference import parse_reference
from torchbake.render.template_effect import WHOLE
from torchbake.store.layout import Layout

OnStep: TypeAlias = Callable[[Progress, list[BuildStep]], None]
_IMAGE, _LAYOUT, _TARGET = "docker-image://", "oci-layout://", "target:"
_STEP = re.compile(r"(?:\[(?P<stage>\d+)/\d+\] )?STEP (?P<number>\d+/\d+): (?P<text>.*)")
_CACHED = "--> Using cache"
_IMAGE_LINE, _ID = re.compile(r"(?:--> )?([0-9a-f]{11,64})"), re.compile(r"[0-9a-f]{64}")
_VARIABLE = "${%s}"  # a variable of the environment in a bake file


class BuildahBuilder:
    """Runs targets of bake files, with the methods of a `Builder`. Thread-safe.

    ``bring`` pulls an image of a layout, and returns its ID. A target on which others are based is built once. With
    ``cached`` the build cache is used, and images are kept as the cache of the next build.
    """

    def __init__(self, buildah: Buildah, bring: Callable[[Layout, str], str], *, cached: bool) -> None:
        self.buildah, self.bring, self.cached = buildah, bring, cached
        self.processes, self.image_ids = BuildProcesses(), list[str]()  # IDs of images
        self._images, self._lock = dict[str, str](), threading.RLock()

    @property
    def stopped(self) -> bool:
        return self.processes.stopped

    def stop(self) -> None:
        """End every running build."""
        self.processes.stop()

    def close(self) -> None:
        """Remove the images of this run, unless they are the build cache of the next one."""
        if not self.cached:
            self.buildah.remove(reversed(self.image_ids))

    def build(self, bake_file: Path, target: str, log: Path, on_step: OnStep) -> BuildOutcome:
        """Build one target, and write its log. ``on_step`` is called for each event of the progress."""
        start, errors, digests = time.monotonic(), tuple[str, ...](), tuple[str, ...]()
        targets = json.loads(bake_file.read_text())["target"]
        run = _Run(targets=targets, builder=self, on_step=on_step, folder=log.parent)
        try:
            digests = run.output(target)
        except (TorchbakeError, OSError, tarfile.TarError, ValueError, LookupError) as error:
            errors = tuple(run.progress.causes) or (sentence_of(error),)
        finally:
            with contextlib.suppress(OSError):
                write_text(log, "\n".join(run.progress.log) + "\n")
        return BuildOutcome(
            seconds=time.monotonic() - start, digests=digests, errors=errors, tail=tuple(run.progress.tail())
        )

    def once(self, key: str, make: Callable[[], str]) -> str:
        """Return the image of a key, which is built at the first call."""
        with self._lock:
            if key not in self._images:
                self._images[key] = make()
            return self._images[key]


@dataclass(kw_only=True)
class _Run:
    """One run of a target and of the targets on which it is based. ``folder`` is for temporary files."""

    targets: Mapping[str, Any]
    builder: BuildahBuilder
    on_step: OnStep
    folder: Path
    progress: Progress = field(default_factory=Progress)
    steps: int = 0

    def output(self, name: str) -> tuple[str, ...]:
        """Build a target and write its output; return the digests of an image's manifest and config."""
        raw = self.targets[name]
        target = _literal(raw)
        image = self._image(raw)
        output = dict(pair.partition("=")[::2] for pair in target["output"][0].split(","))
        dest = Path(output["dest"])
        if output["type"] != "local":
            self.builder.buildah.save(image, dest)
            manifest = manifest_in(Layout(folder=dest))
            return (manifest.digest, manifest.config.digest)
        dest.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=dest.parent, prefix=".saved-") as folder:
            layout = Layout(folder=Path(folder, "image"))
            self.builder.buildah.save(image, layout.folder)
            put_files(layout, dest)
        return ()

    def _image(self, raw: Mapping[str, Any]) -> str:
        """Build a target of the bake file; return the ID of its image. Raises BuildError."""
        target = _literal(raw)
        images, folders = self._contexts(target.get("contexts", {}))
        root = Path(target["context"])
        inline = target.get("dockerfile-inline")
        inside = {name: f"{OURS}/context-{number}" for number, name in enumerate(folders)}
        file = podman_file(
            inline or (root / target["dockerfile"]).read_text(), target.get("target", ""),
            images=images, folders=inside, arguments=target["args"],
        )  # fmt: skip
        files = all_of(root, "") if inline else own_files(root, file.text)
        for name, folder in folders.items():
            files += some_of(folder, inside[name], file.context_files[name])
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".context-") as name:
            context = Path(name)
            write_context(context, files, {f"{OURS}/Dockerfile": file.text, **file.documents})
            (context / EMPTY).mkdir()
            passed = {name for name, value in raw["args"].items() if value == _VARIABLE % name}  # may be a password
            command = self.builder.buildah.build(
                context, context / OURS / "Dockerfile", target=file.target,
                arguments={name: None if name in passed else each for name, each in target["args"].items()},
                secrets=target.get("secret", ()),
                cached=self.builder.cached and not target.get("no-cache"),
            )  # fmt: skip
            return self._run_build(command)

    def _contexts(self, contexts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Path]]:
        """Return the contexts that are images, and the contexts that are folders, by name."""
        images, folders = dict[str, str](), dict[str, Path]()
        for name, value in contexts.items():
            if value.startswith(_TARGET):
                inner = self.targets[value.removeprefix(_TARGET)]
                images[name] = self.builder.once(json.dumps(inner, sort_keys=True), partial(self._image, inner))
            elif value.startswith(_IMAGE):
                # Without the tag if there is a digest: buildah does not take both.
                image = parse_reference(value.removeprefix(_IMAGE))
                images[name] = f"{image.repository}@{image.digest}" if image.digest else str(image)
            elif value.startswith(_LAYOUT):
                folder, _, digest = value.removeprefix(_LAYOUT).rpartition("@")
                layout = Layout(folder=Path(folder))
                image_ref = self.builder.once(value, partial(self.builder.bring, layout, digest))
                images[name] = image_ref.removeprefix("sha256:")
                if name == WHOLE:  # an image of this build, and no base of others
                    self.builder.image_ids.append(images[name])
            else:
                folders[name] = Path(value)
        return images, folders

    def _run_build(self, command: Sequence[str]) -> str:
        """Run a build, and return the ID of the image. Raises BuildError."""
        last, step, processes = "", _Steps(self), self.builder.processes
        try:
            process = processes.start(command, self.builder.buildah.environment)
        except KeyboardInterrupt:
            raise BuildError("stopped") from None
        try:
            for line in process.stdout or ():
                step.line(line.rstrip("\n"))
                last = line.strip() or last
                if match := _IMAGE_LINE.fullmatch(last):
                    self.builder.image_ids.append(match[1])
            code = process.wait()
        finally:
            processes.forget(process)
        whole = code == 0 and _ID.fullmatch(last)
        step.end("" if whole else last)
        if not whole:
            raise BuildError("stopped" if processes.stopped else last or f"{command[0]} ended with {code}")
        return last


class _Steps:
    """Translates buildah's output to BuildKit's events, for the same board and log."""

    def __init__(self, run: _Run) -> None:
        self._run, self._name, self._started, self._cached = run, "", "", False

    def line(self, line: str) -> None:
        match = _STEP.fullmatch(line)
        if match:
            self.end()
            self._run.steps += 1
            self._name, self._started, self._cached = f"[{match['number']}] {match['text']}", _now(), False
            self._feed({"vertexes": [self._vertex()]})
        elif line.startswith(_CACHED):
            self._cached = True
        elif self._name and line.strip():
            data = base64.b64encode(f"{line}\n".encode()).decode()
            self._feed({"logs": [{"vertex": str(self._run.steps), "data": data}]})

    def end(self, error: str = "") -> None:
        if self._name:
            finished = {"completed": _now(), "cached": self._cached, **({"error": error} if error else {})}
            self._feed({"vertexes": [self._vertex() | finished]})
        self._name = ""

    def _vertex(self) -> dict[str, Any]:
        return {"digest": str(self._run.steps), "name": self._name, "started": self._started}

    def _feed(self, event: dict[str, Any]) -> None:
        self._run.on_step(self._run.progress, self._run.progress.feed(event))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _literal(value: Any) -> Any:
    """Return a value of a bake file as bake reads it: variables are replaced, and escapes removed."""
    if isinstance(value, str):
        filled = re.sub(r"(?<![$])\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), value)
        return filled.replace("$${", "${").replace("%%{", "%{")
    if isinstance(value, list):
        return [_literal(each) for each in value]
    return {name: _literal(each) for name, each in value.items()} if isinstance(value, dict) else value
