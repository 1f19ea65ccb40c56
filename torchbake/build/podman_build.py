"""Running targets of bake files by podman, over its socket: what `Builder` does by BuildKit."""

import base64
import contextlib
import io
import json
import os
import queue
import re
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from torchbake.build.buildkit_progress import Progress, Step
from torchbake.build.buildx import Outcome
from torchbake.build.own_inputs import files_of
from torchbake.build.podman_file import OURS, podman_file
from torchbake.build.podman_image import put_files, put_image
from torchbake.core.files import write_text
from torchbake.engine import podman
from torchbake.errors import BuildError, TorchbakeError
from torchbake.render.build_context import all_sources
from torchbake.store.layout import Layout

OnStep: TypeAlias = Callable[[Progress, list[Step]], None]
_IMAGE, _LAYOUT, _TARGET = "docker-image://", "oci-layout://", "target:"
_STEP = re.compile(r"(?:\[(?P<stage>\d+)/\d+\] )?STEP (?P<number>\d+/\d+): (?P<text>.*)")
_CACHED = "--> Using cache"
_OCI = "application/vnd.oci.image.manifest.v1+json"
_POLL = 0.5  # seconds until a build notices that it shall stop


class PodmanBuilder:
    """Runs targets of bake files; thread-safe. ``bring`` gets an image of a layout into the engine and returns its ID.

    It has the methods of a `Builder`. Without ``cached`` podman's build cache is not used.
    """

    def __init__(self, bring: Callable[[Layout, str], str], *, cached: bool) -> None:
        self._bring, self._cached = bring, cached
        self._stopping = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """End every build that runs."""
        self._stopping.set()

    def build(self, bake_file: Path, target: str, log: Path, on_step: OnStep) -> Outcome:
        """Build one target; blocks. ``on_step`` is called with each piece of progress. The log is kept."""
        started, errors, digests = time.monotonic(), tuple[str, ...](), tuple[str, ...]()
        run = _Run(
            targets=json.loads(bake_file.read_text())["target"], bring=self._bring, stopping=self._stopping,
            on_step=on_step, cached=self._cached,
        )  # fmt: skip
        try:
            digests = run.output(target)
        except (TorchbakeError, OSError, tarfile.TarError, ValueError, LookupError) as error:
            said = error.sentence if isinstance(error, TorchbakeError) else str(error)
            errors = tuple(run.progress.causes) or (said,)
        finally:
            with contextlib.suppress(OSError):
                write_text(log, "\n".join(run.progress.log) + "\n")
        return Outcome(
            seconds=time.monotonic() - started, digests=digests, errors=errors, tail=tuple(run.progress.tail())
        )


@dataclass(kw_only=True)
class _Run:
    """One run of a target, with the targets that it is based on."""

    targets: Mapping[str, Any]
    bring: Callable[[Layout, str], str]
    stopping: threading.Event
    on_step: OnStep
    cached: bool
    progress: Progress = field(default_factory=Progress)
    bases: list[Layout] = field(default_factory=list)
    steps: int = 0

    def output(self, name: str) -> tuple[str, ...]:
        """Build a target and write what it says; return the digests of its manifest and config, if it is exported."""
        target = _literal(self.targets[name])
        image, steps = self._image(target)
        how = dict(pair.partition("=")[::2] for pair in target["output"][0].split(","))
        if how["type"] == "local":
            Path(how["dest"]).mkdir(parents=True, exist_ok=True)
            with podman.saved(image) as chunks:
                put_files(chunks, Path(how["dest"]))
        if how["type"] != "oci":
            return ()
        created = datetime.fromtimestamp(int(target["args"]["SOURCE_DATE_EPOCH"]), UTC).isoformat()
        with podman.saved(image) as chunks:
            layout = Layout(folder=Path(how["dest"]))
            manifest = put_image(chunks, layout, bases=self.bases, steps=steps, created=created)
        return (manifest.digest, manifest.config.digest)

    def _image(self, target: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
        """Build a target; return the ID of its image, and its steps. Raises BuildError and EngineError."""
        images, folders = self._contexts(target.get("contexts", {}))
        root = Path(target["context"])
        inline = target.get("dockerfile-inline")
        dockerfile = inline or (root / target["dockerfile"]).read_text()
        inside = {name: f"{OURS}/context-{number}" for number, name in enumerate(folders)}
        file = podman_file(
            dockerfile, target.get("target", ""), images=images, folders=inside, arguments=_arguments(target)
        )
        taken = [each for name, folder in folders.items() for each in _some_of(folder, inside[name], file.taken[name])]
        secrets = [dict(pair.partition("=")[::2] for pair in each.split(",")) for each in target.get("secret", ())]
        with tempfile.TemporaryFile() as archive:
            texts = {f"{OURS}/Dockerfile": file.text, **file.documents}
            paths = {f"secret-{number}": Path(secret["src"]) for number, secret in enumerate(secrets)}
            own = _all_of(root, "") if inline else _own_files(root, file.text)
            _write_archive(archive, [*own, *taken], texts, paths)
            archive.seek(0)
            options = {
                "dockerfile": json.dumps([f"{OURS}/Dockerfile"]),
                "target": file.target,
                "buildargs": json.dumps(_arguments(target)),
                "secrets": json.dumps([f"id={each['id']},src=secret-{at}" for at, each in enumerate(secrets)]),
                "layers": "true",
                "nocache": str(bool(target.get("no-cache")) or not self.cached).lower(),
                **dict.fromkeys(("rm", "forcerm"), "true"),
                "outputformat": _OCI,
            }
            return self._built(archive, options), file.steps

    def _contexts(self, contexts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Path]]:
        """Contexts as images and as folders, by name."""
        images, folders = dict[str, str](), dict[str, Path]()
        for name, value in contexts.items():
            if value.startswith(_TARGET):
                images[name], _ = self._image(_literal(self.targets[value.removeprefix(_TARGET)]))
            elif value.startswith(_IMAGE):
                images[name] = value.removeprefix(_IMAGE)
            elif value.startswith(_LAYOUT):
                folder, _, digest = value.removeprefix(_LAYOUT).rpartition("@")
                layout = Layout(folder=Path(folder))
                self.bases.append(layout)
                images[name] = self.bring(layout, digest).removeprefix("sha256:")
            else:
                folders[name] = Path(value)
        return images, folders

    def _built(self, archive: IO[bytes], options: Mapping[str, str]) -> str:
        """Run a build to its end, and return the ID of the image."""
        last, step = "", _Steps(self)
        for event in _waited_for(archive, options, self.stopping):
            if "error" in event:
                step.end(str(event["error"]).strip())
                raise BuildError(str(event["error"]).strip())
            for line in str(event.get("stream", "")).splitlines():
                step.line(line)
                last = line.strip() or last
        step.end()
        if not re.fullmatch(r"[0-9a-f]{64}", last):
            raise BuildError(f"Podman ended a build without an image: {last or 'it says nothing'}")
        return last


class _Steps:
    """Translate the lines that podman prints into BuildKit's events, for the same board and log."""

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
            done = {"completed": _now(), "cached": self._cached, **({"error": error} if error else {})}
            self._feed({"vertexes": [self._vertex() | done]})
        self._name = ""

    def _vertex(self) -> dict[str, Any]:
        return {"digest": str(self._run.steps), "name": self._name, "started": self._started}

    def _feed(self, event: dict[str, Any]) -> None:
        self._run.on_step(self._run.progress, self._run.progress.feed(event))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _waited_for(archive: IO[bytes], options: Mapping[str, str], stopping: threading.Event) -> Iterator[dict[str, Any]]:
    """The events of a build, until it ends or shall stop.

    A build can be silent for minutes, and nothing interrupts a read. So a thread reads, which ends with the process;
    podman ends the build when its connection is closed.
    """
    events: queue.Queue[dict[str, Any] | Exception | None] = queue.Queue()

    def read() -> None:
        try:
            for event in podman.build(archive, options):
                events.put(event)
                if stopping.is_set():
                    return
            events.put(None)
        except Exception as error:  # whatever it is, the build must not wait for more
            events.put(error)

    threading.Thread(target=read, name="podman build", daemon=True).start()
    while True:
        try:
            event = events.get(timeout=_POLL)
        except queue.Empty:
            if stopping.is_set():
                raise BuildError("stopped") from None
            continue
        if isinstance(event, Exception):
            raise event
        if event is None:
            return
        yield event


def _literal(value: Any) -> Any:
    """A value of a bake file as bake reads it: variables of the environment, and what only looks like one."""
    if isinstance(value, str):
        filled = re.sub(r"(?<![$])\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), value)
        return filled.replace("$${", "${").replace("%%{", "%{")
    if isinstance(value, list):
        return [_literal(each) for each in value]
    return {name: _literal(each) for name, each in value.items()} if isinstance(value, dict) else value


def _arguments(target: Mapping[str, Any]) -> dict[str, str]:
    """Build arguments but BuildKit's own, by which newer versions of podman set times: `put_image` does for all."""
    return {name: value for name, value in target["args"].items() if name != "SOURCE_DATE_EPOCH"}


def _own_files(root: Path, dockerfile: str) -> list[tuple[str, Path]]:
    """The files of a build's folder that a Dockerfile takes, by their paths in the archive."""
    sources = sorted(source for source in all_sources(dockerfile) if not source.startswith(f"{OURS}/"))
    return [
        (path.relative_to(root).as_posix(), path) for source in sources for path in files_of(root, source, modes=True)
    ]


def _some_of(folder: Path, below: str, paths: Iterable[str]) -> list[tuple[str, Path]]:
    """These files and folders of a folder, by the paths in the archive; with the path ``.`` all of it."""
    if "." in paths:
        return _all_of(folder, below)
    found = [(below, folder)] if paths else []
    for path in sorted(paths):
        if (folder / path).is_dir():
            found += _all_of(folder / path, f"{below}/{path}")
        elif (folder / path).exists():
            found.append((f"{below}/{path}", folder / path))
    return found


def _all_of(folder: Path, below: str) -> list[tuple[str, Path]]:
    """A folder with all its files but bytecode, by their paths in the archive."""
    found = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.relative_to(folder).parts]
    named = [(f"{below}/{path.relative_to(folder).as_posix()}".lstrip("/"), path) for path in found]
    return [(below, folder), *named] if below else named


def _write_archive(
    target: IO[bytes], files: list[tuple[str, Path]], texts: Mapping[str, str], secrets: Mapping[str, Path]
) -> None:
    """Write the archive of a build. Podman takes secrets out of it before it begins."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in [*files, *secrets.items()]:
            info = archive.gettarinfo(path, name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.islnk():  # another name of a file that is in the archive already
                info.type, info.size = tarfile.REGTYPE, path.stat().st_size
            with path.open("rb") if info.isreg() else contextlib.nullcontext() as file:
                archive.addfile(info, cast(IO[bytes], file))
        for name, text in texts.items():
            info, data = tarfile.TarInfo(name), text.encode()
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
