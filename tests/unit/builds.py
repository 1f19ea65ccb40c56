"""A small project on disk, and buildx in memory: it builds what its bake file says into an engine, or a layout."""

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.unit.conftest import SMALL, cpu_pins, lock_for, pin
from tests.unit.engines import Daemon
from tests.unit.layouts import archive, file, put, saved
from tests.unit.processes import Process
from torchbake.build.backend import Backend
from torchbake.build.base_image import BaseImage
from torchbake.build.image_store import Store
from torchbake.build.podman_file import steps_of
from torchbake.build.prepare import ImagePreparation
from torchbake.core.files import write_text
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.builder_lock import builder_lock_path
from torchbake.lock.image_lock import format_checked, lock_path
from torchbake.lock.lockfile import Lock, assign_layers, format_lock
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.manifest import sha256
from torchbake.store.layout import Layout

RUNTIME, DEVEL, INIT = "2.13.0-cpu-runtime-debian12", "2.13.0-cpu-devel-debian12", "volume-permissions"
BASE = BaseImage(
    name="debian12", image="debian:bookworm-slim", source="registry", digest=f"sha256:{'d' * 64}", created="2026-01-01"
)
_TIMES = {"started": "2026-01-01T00:00:00Z", "completed": "2026-01-01T00:00:03Z"}


def small_project(root: Path, *, matrix: str = SMALL) -> Project:
    """The small matrix, with the locks of its CPU images and of the builder."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "matrix.yaml").write_text(matrix)
    project = load_project(root / "matrix.yaml")
    for name in (RUNTIME, DEVEL):
        write_lock(project, name)
    builder = Lock(inputs="uv==0.9.1", layers=assign_layers([pin("uv", "0.9.1")]))
    write_text(builder_lock_path(root), format_lock(builder))
    return project


def write_lock(project: Project, name: str, *, numpy: str = "2.4.6") -> None:
    spec = spec_of(project, name)
    assert isinstance(spec, ImageSpec)
    more = [pin("ninja", "1.13")] if spec.flavor == "devel" else []
    pins = [one for one in cpu_pins() if one.name != "numpy"]
    lock = lock_for(spec, [*pins, pin("numpy", numpy), *more])
    write_text(lock_path(project.root, spec), format_checked(spec, lock))


def own_template_in(project: Project) -> Project:
    """Replace the Dockerfiles by a whole one of the project, so that a builder makes all layers."""
    text = "FROM {{ spec.base.image }}\nRUN true\nARG INPUTS\n"
    write_text(project.root / "templates/pytorch.Dockerfile.j2", text)
    return load_project(project.root / "matrix.yaml")


def spec_of(project: Project, name: str) -> Spec:
    return next(spec for spec in project.expansion.specs if spec.id == name)


def preparation_of(project: Project, **changes: Any) -> ImagePreparation:
    settings: dict[str, Any] = {"pip": PipConfig(), "locked": True, "dry_run": False, "say": lambda _: None}
    return ImagePreparation(project=project, **settings | changes)


def backend_of(project: Project, daemon: Daemon, builder: str | None = None) -> Backend:
    """BuildKit, and an engine that gets its images."""
    store = Store(engine=daemon.engine, sizes=project.state / "sizes.json", layout=Layout(folder=project.layout))
    return Backend(project=project, engine=daemon.engine, executor="buildx", store=store, builder=builder)


@dataclass
class Buildx:
    """`docker buildx` on ``daemon``. ``failing`` has the messages with which targets fail, by their image's id.

    A message that begins with ``ERROR: `` is the command's own, else it is the output of a step. Each build of an image
    calls ``during`` with the id and the process. The function ``layer`` returns the file of an image, by the id and the
    number of the build. The images in ``loses`` never reach the engine.
    """

    daemon: Daemon
    failing: Mapping[str, str] = field(default_factory=dict)
    during: Callable[[str, Process], int] = lambda *_: 0
    layer: Callable[[str, int], bytes] = lambda name, _: name.encode()
    loses: Sequence[str] = ()
    cache: set[str] = field(default_factory=set)
    most_cached: int = 0
    most_at_once: int = 0
    builders: list[str] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)  # as they are while an image is built
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, process: Process) -> int:
        if process.command[:3] == ["docker", "buildx", "prune"]:
            self.cache.clear()
            return 0
        assert process.command[:3] == ["docker", "buildx", "bake"]
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            return self._bake(process)
        finally:
            with self._lock:
                self._running -= 1

    def _bake(self, process: Process) -> int:
        target = json.loads(Path(process.option("--file")).read_text())["target"][process.command[-1]]
        name = Path(target["dockerfile"]).parent.name
        with self._lock:
            self.targets.append(target)
            number = len(self.targets)
            self.builders.append(process.option("--builder") if "--builder" in process.command else "")
            self.cache.add(name)
            self.most_cached = max(self.most_cached, len(self.cache))
            for text in target["secret"]:
                place = Path(text.partition("src=")[2])
                self.secrets[str(place)] = place.read_text()
        code = self.during(name, process)
        if code:
            process.say(f"ERROR: {name} was interrupted\n")
            return code
        if name in self.failing:
            return _fail(process, self.failing[name])
        process.say(json.dumps({"vertexes": [{"digest": "a", "name": "RUN install", **_TIMES}]}) + "\n")
        digest = self._export(name, target, number)
        Path(process.option("--metadata-file")).write_text(
            json.dumps({process.command[-1]: {"containerimage.digest": digest}})
        )
        return 0

    def _export(self, name: str, target: Mapping[str, Any], number: int) -> str:
        labels = {ID: name, INPUTS: target["args"]["INPUTS"]}
        content = archive(file("content", self.layer(name, number)))
        history = _history(target)
        (output,) = target["output"]
        if "dest=" in output:
            lines = {"config": {"Labels": labels}, "history": history}
            return put(Layout(folder=Path(output.partition("dest=")[2])), content, config=lines, packing="tar")
        lines = {"config": {"Labels": labels}, "rootfs": {"diff_ids": [sha256(content)]}, "history": history}
        config = json.dumps(lines).encode()
        digest = sha256(config)
        if name not in self.loses:
            own_name = output.partition("name=")[2]
            self.daemon.hold(digest, *([own_name] if own_name else []), labels=labels, layers=[sha256(content)])
            self.daemon.archives[digest] = saved(config, content)
        return digest


def _history(target: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history of an image of one layer, which the last step makes."""
    dockerfile = Path(target["context"], target["dockerfile"]).read_text()
    steps = steps_of(dockerfile, replaced=target["contexts"], arguments=target["args"])
    *others, last = ({"created_by": step.text} for step in steps)
    return [*({**step, "empty_layer": True} for step in others), last]


def _fail(process: Process, words: str) -> int:
    if words.startswith("ERROR: "):  # of the command itself, which has cancelled the steps
        cancelled = {"digest": "a", "name": "RUN install", "error": "context canceled: context canceled", **_TIMES}
        process.say(json.dumps({"vertexes": [cancelled]}) + "\n")
        process.say(f"{words}\n")
        return 1
    output = base64.b64encode(f"{words}\n".encode()).decode()
    process.say(json.dumps({"logs": [{"vertex": "a", "data": output}]}) + "\n")
    failed = {"digest": "a", "name": "RUN install", "error": "process did not complete: exit code: 1", **_TIMES}
    process.say(json.dumps({"vertexes": [failed]}) + "\n")
    return 1
