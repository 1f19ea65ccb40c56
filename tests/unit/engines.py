"""A container engine in memory, below the real `Engine`: images with tags, containers that run a function, networks."""

import contextlib
import io
import itertools
import json
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from signal import SIGKILL
from typing import IO, Any, cast

from docker import DockerClient
from docker.errors import APIError, ImageNotFound, NotFound
from requests.exceptions import ReadTimeout

from torchbake.engine.address import DEFAULT
from torchbake.engine.client import Engine, read_load
from torchbake.engine.docker_cli import DockerCli
from torchbake.oci.manifest import sha256

_CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]
_BEGAN, _END = "2026-01-01T00:00:00.000000000Z", "2026-01-01T00:00:02.500000000Z"
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(kw_only=True)
class Picture:
    """An image that the engine holds. ``unpacked`` are the bytes of its layers on disk, ``size`` what it lists.

    ``pulled``: it came from a registry, so that it has a digest there. ``architecture`` may be another one than the
    engine's.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    unpacked: int = 2_000
    size: int = 3_000
    pulled: bool = False
    architecture: str = "amd64"
    layers: Sequence[str] = ()


@dataclass(kw_only=True)
class Box:
    """A container, with the options that it was created with. ``code`` is None as long as it runs."""

    daemon: "Daemon"
    id: str
    image: str
    command: tuple[str, ...]
    options: Mapping[str, Any]
    started: bool = False
    code: int | None = None
    stdout: str = ""
    stderr: str = ""
    messages: list[int] = field(default_factory=list)
    archives: list[bytes] = field(default_factory=list)  # copied into it

    @property
    def environment(self) -> Mapping[str, str]:
        return dict(self.options["environment"])

    @property
    def state(self) -> str:
        return "created" if not self.started else "running" if self.code is None else "exited"

    def hear(self, number: int) -> None:
        """A signal: SIGTERM is for the program to take, which may go on."""
        self.messages.append(number)
        if number == SIGKILL:
            self.code = 137
        elif self.daemon.on_signal:
            self.code = self.daemon.on_signal(self)

    @property
    def attrs(self) -> dict[str, Any]:
        began, end = (_BEGAN if self.started else _NEVER), (_END if self.state == "exited" else _NEVER)
        return {"State": {"ExitCode": self.code or 0, "StartedAt": began, "FinishedAt": end}}

    def start(self) -> None:
        if self.options.get("device_requests") and not self.daemon.gpu:
            raise APIError("500 Server Error", explanation="could not select device driver")
        self.started = True
        self.daemon.started.append(self)
        ends = self.daemon.program(self)
        if ends is not None:
            self.code, self.stdout, self.stderr = ends

    def reload(self) -> None:
        if self.id not in self.daemon.boxes:
            raise NotFound("No such container")

    def wait(self, *, timeout: float) -> None:
        """A command that runs on is not waited for: the time is over at once."""
        if self.state == "running":
            raise ReadTimeout

    def remove(self, *, force: bool, v: bool) -> None:
        self.daemon.api.remove_container(self.id, force=force, v=v)

    def put_archive(self, path: str, archive: IO[bytes]) -> None:
        assert path == "/"
        self.archives.append(archive.read())

    def commit(self, repository: str, tag: str, *, changes: Sequence[str]) -> None:
        """Make an image of the container, whose labels get to the image unless they are replaced."""
        image = self.daemon.pictures[self.daemon.resolve(self.image)]
        labels = dict(image.labels) | dict(self.options["labels"])
        labels |= {name: value.strip('"') for name, _, value in (each.split()[1].partition("=") for each in changes)}
        layers = [*image.layers, *map(sha256, self.archives)]
        self.daemon.hold(f"sha256:{self.daemon.next_id()}", f"{repository}:{tag}", labels=labels, layers=layers)

    def logs(self, *, stdout: bool, stderr: bool) -> bytes:
        return (self.stdout if stdout else self.stderr).encode()


Program = Callable[[Box], tuple[int, str, str] | None]  # exit code, stdout, stderr; None: it runs until it is killed


class Daemon:
    """The parts of an engine that torchbake uses of the SDK's client.

    Containers run ``program``. A callable in ``before`` is called before each change of a tag. The events of a `load`
    are in ``says``. If ``unusable`` has a reason, no container can be created. A load changes the image's layers by
    ``puts_on``.
    """

    def __init__(self, program: Program = lambda _: (0, "", ""), *, containerd: bool = True, gpu: bool = False) -> None:
        self.program, self.gpu = program, gpu
        self.pictures: dict[str, Picture] = {}
        self.pointers: dict[str, str] = {}  # digests by repository:tag
        self.boxes: dict[str, Box] = {}
        self.started: list[Box] = []  # all that ever ran
        self.nets: dict[str, Mapping[str, str]] = {}  # labels by name
        self.stores: dict[str, Mapping[str, str]] = {}  # the volumes, likewise
        self.before: Callable[[str], object] = lambda _: None
        self.on_signal: Callable[[Box], int | None] | None = None  # the code with which a container ends by SIGTERM
        self.refuses = ""  # why it loads no image
        self.forgets = False  # has no layers unpacked
        self.says: list[dict[str, str]] = []
        self.unusable = ""
        self.pulls: Callable[[str, str], object] | None = None
        self.puts_on: Callable[[Sequence[str]], Sequence[str]] = lambda layers: layers
        self.archives: dict[str, bytes] = {}  # what `docker save` writes
        self.loads = 0
        self._numbers = itertools.count(1)
        self.address = DEFAULT
        self._info = {
            "ServerVersion": "26.1.5",
            "Architecture": "x86_64",
            "DriverStatus": _CONTAINERD if containerd else [],
            "DockerRootDir": "/var/lib/docker",
        }
        self.api = self.images = self.containers = self.networks = _Facade(self)
        self.volumes = _Volumes(self)

    @property
    def engine(self) -> "MemoryEngine":
        return MemoryEngine(self)

    def hold(self, digest: str, *references: str, **picture: Any) -> str:
        """Put an image there, with these tags."""
        self.pictures[digest] = Picture(**picture)
        self.pointers |= dict.fromkeys(references, digest)
        return digest

    def tags_of(self, digest: str) -> set[str]:
        return {reference for reference, text in self.pointers.items() if text == digest}

    def resolve(self, name: str) -> str:
        """The digest of an image by its digest or a tag of it."""
        short = name.removeprefix("docker.io/").removeprefix("library/")
        digest = self.pointers.get(short, short.partition("@")[2] or short)
        if digest not in self.pictures:
            raise ImageNotFound("404 Client Error", explanation=f"No such image: {name}")
        return digest

    def next_id(self) -> str:
        return f"{next(self._numbers):064x}"

    def info(self) -> dict[str, Any]:
        return self._info

    def version(self) -> dict[str, Any]:
        return {"ApiVersion": "1.45", "Components": [{"Name": "Engine", "Version": "26.1.5"}]}


class MemoryEngine(Engine):
    """The real one, on a daemon in memory."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(cast(DockerClient, daemon), daemon.address)
        self.daemon = daemon
        self.cli = DockerCli(path="/usr/bin/docker", buildx="0.13.1")

    def pull(self, repository: str, key: str, login: dict[str, str] | None, platform: str | None = None) -> None:
        """Pull an image: every registry has every image, but a pull from this machine runs ``daemon.pulls``."""
        from torchbake.errors import EngineError  # noqa: PLC0415

        if repository.startswith("127.0.0.1:"):
            if self.daemon.pulls is None:
                raise EngineError("dial tcp 127.0.0.1: connect: connection refused")
            self.daemon.pulls(repository, key)
            return
        name = f"{repository}@{key}" if ":" in key else f"{repository}:{key}"
        self.daemon.hold(key if ":" in key else sha256(key.encode()), name, pulled=True)

    @contextlib.contextmanager
    def save(self, digest: str) -> Iterator[Iterator[bytes]]:
        yield iter([self.daemon.archives[self.daemon.resolve(digest)]])

    def load(self, archive: Iterable[bytes]) -> tuple[str, ...]:
        """Takes the archive apart as an engine does; what its index does not describe, or is not whole, is refused."""
        from torchbake.errors import EngineError  # noqa: PLC0415

        if self.daemon.refuses:
            raise EngineError(f"The engine does not take the image: {self.daemon.refuses}")
        with tarfile.open(fileobj=io.BytesIO(b"".join(archive))) as packed:
            files = {one.name: cast(Any, packed.extractfile(one)).read() for one in packed.getmembers()}
        for entry in json.loads(files["index.json"])["manifests"]:
            blobs = {sha256(data): data for name, data in files.items() if name.startswith("blobs/")}
            manifest = json.loads(blobs[entry["digest"]])
            assert all(layer["digest"] in blobs for layer in manifest["layers"])
            config = json.loads(blobs[manifest["config"]["digest"]])
            labels, layers = config.get("config", {}).get("Labels", {}), config["rootfs"]["diff_ids"]
            image = entry["digest"] if self.containerd_store else manifest["config"]["digest"]
            self.daemon.hold(image, labels=labels, layers=self.daemon.puts_on(layers))
            self.daemon.loads += 1
        return read_load(self.daemon.says)


@dataclass(frozen=True)
class _Facade:
    """The SDK's `api`, `images`, `containers` and `networks` in one: their names do not collide, but for `create`."""

    daemon: Daemon

    def images(self, filters: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        daemon = self.daemon
        return [
            {
                "Id": digest,
                "RepoTags": sorted(daemon.tags_of(digest)),
                "Labels": dict(one.labels),
                "Size": one.size,
            }
            for digest, one in daemon.pictures.items()
        ]

    def get(self, name: str) -> "_Found":
        return _Found(self.daemon, self.daemon.resolve(name))

    def tag(self, digest: str, repository: str, tag: str, *, force: bool) -> None:
        self.daemon.before(f"{repository}:{tag}")
        self.daemon.pointers[f"{repository}:{tag}"] = self.daemon.resolve(digest)

    def remove_image(self, reference: str, *, force: bool = False) -> None:
        digest = self.daemon.resolve(reference)
        names = self.daemon.tags_of(digest) - {reference}
        running = [box.image for box in self.daemon.boxes.values() if box.state == "running"]
        if not names and any(image in (digest, reference) for image in running):
            raise APIError("409 Client Error", explanation="image is being used by running container")
        self.daemon.pointers.pop(reference, None)
        if not self.daemon.tags_of(digest):
            del self.daemon.pictures[digest]

    def create(self, what: str, command: list[str] | None = None, **options: Any) -> Any:
        """A network where there is a driver, else a container of an image."""
        if "driver" in options:
            self.daemon.nets[what] = options["labels"]
            return None
        self.daemon.resolve(what)
        if self.daemon.unusable:
            raise APIError("500 Server Error", explanation=self.daemon.unusable)
        box = Box(
            daemon=self.daemon, id=self.daemon.next_id(), image=what, command=tuple(command or ()), options=options
        )
        self.daemon.boxes[box.id] = box
        return box

    def create_endpoint_config(self, *, aliases: list[str]) -> dict[str, Any]:
        return {"Aliases": aliases}

    def containers(self, *, all: bool, filters: Mapping[str, str]) -> list[dict[str, Any]]:
        boxes = [box for box in self.daemon.boxes.values() if _fits(box.options["labels"], filters)]
        return [{"Id": box.id, "State": box.state, "Labels": box.options["labels"]} for box in boxes]

    def networks(self, *, filters: Mapping[str, str]) -> list[dict[str, Any]]:
        matches = [(name, labels) for name, labels in self.daemon.nets.items() if _fits(labels, filters)]
        return [{"Id": name, "Labels": labels} for name, labels in matches]

    def volumes(self, *, filters: Mapping[str, str]) -> dict[str, Any]:
        matches = [(name, labels) for name, labels in self.daemon.stores.items() if _fits(labels, filters)]
        return {"Volumes": [{"Name": name, "Labels": labels} for name, labels in matches] or None}

    def kill(self, name: str, number: int = SIGKILL) -> None:
        self.daemon.boxes[name].hear(number)

    def attach(self, name: str, *, stream: bool, demux: bool) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield the output of a container after it ended."""
        box = self.daemon.boxes[name]
        while box.state in ("created", "running") and name in self.daemon.boxes:
            time.sleep(0.01)
        yield box.stdout.encode() or None, box.stderr.encode() or None

    def remove_container(self, name: str, *, force: bool, v: bool) -> None:
        del self.daemon.boxes[name]

    def remove_network(self, name: str) -> None:
        del self.daemon.nets[name]

    def remove_volume(self, name: str) -> None:
        del self.daemon.stores[name]


@dataclass(frozen=True)
class _Volumes:
    daemon: Daemon

    def create(self, *, labels: Mapping[str, str]) -> None:
        self.daemon.stores[self.daemon.next_id()] = labels


@dataclass(frozen=True)
class _Found:
    """An image, as the SDK hands it out."""

    daemon: Daemon
    id: str

    @property
    def attrs(self) -> dict[str, Any]:
        tags, labels = sorted(self.daemon.tags_of(self.id)), self.daemon.pictures[self.id].labels
        has_digest = self.daemon.pictures[self.id].pulled or self.daemon.info()["DriverStatus"]
        digests = [f"{tag.rpartition(':')[0]}@{self.id}" for tag in tags] if has_digest else []
        return {
            "Id": self.id, "RepoTags": tags, "RepoDigests": digests, "Config": {"Labels": dict(labels)},
            "Size": self.daemon.pictures[self.id].size,
            "Os": "linux", "Architecture": self.daemon.pictures[self.id].architecture,
            "RootFS": {"Layers": list(self.daemon.pictures[self.id].layers)},
        }  # fmt: skip

    def history(self) -> list[dict[str, int]]:
        if self.daemon.forgets:
            raise APIError("500 Server Error", explanation="snapshot does not exist")
        whole = self.daemon.pictures[self.id].unpacked
        return [{"Size": whole // 2}, {"Size": whole - whole // 2}]


def _fits(labels: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    name, equals, value = filters["label"].partition("=")
    return name in labels and (not equals or labels[name] == value)
