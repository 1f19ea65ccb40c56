"""The container engine, through the docker SDK: what it can do, which images it holds, and their tags."""

import contextlib
import functools
import http.client
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from urllib3.exceptions import HTTPError, IncompleteRead

from torchbake.engine import capability
from torchbake.engine.address import Address, engine_address
from torchbake.engine.capability import Capabilities, capabilities_of, has_containerd_store, identity_of
from torchbake.engine.docker_cli import DockerCli, ask_docker
from torchbake.engine.image import Image, by_tag, of_inspection, short_name
from torchbake.engine.sdk import sdk_client
from torchbake.errors import EngineError
from torchbake.oci.manifest import Manifest
from torchbake.ui.tool_environment import environment_of

_ANSWERING, _UNPACKING = 60, 1800  # seconds that an engine may be silent
_LISTINGS, _PAUSE = 5, 0.2  # how often, and after how many seconds, images are listed again
_LOAD_FAILED = re.compile(r"error\b", re.IGNORECASE)
_WORDS: dict[type[BaseException], str] = {
    FileNotFoundError: "there is no such socket",
    ConnectionRefusedError: "nobody listens there",
    ConnectionResetError: "it closes the connection",
    PermissionError: "you may not open that socket; members of its group, often docker, may",
    TimeoutError: "it says nothing",
    requests.exceptions.ReadTimeout: "it says nothing",
    requests.exceptions.ConnectTimeout: "it cannot be reached",
    socket.gaierror: "no such host is known",
    ssl.SSLCertVerificationError: "no authority that docker's settings name has signed its certificate",
    http.client.RemoteDisconnected: "it closes the connection",
    IncompleteRead: "it closes the connection",
    http.client.BadStatusLine: "what answers is not an engine",
}


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """An engine's refusal, or its silence, as an error of ours."""
    try:
        yield
    except ImageNotFound:
        raise
    except APIError as error:
        raise EngineError(f"The engine refuses: {error.explanation or error}") from None
    # urllib3's own is raised if an engine ends amid the progress of a pull: docker's SDK reads that past requests.
    except (DockerException, requests.RequestException, HTTPError) as error:
        raise EngineError(
            f"The engine does not answer: {_why(error)}.", hint="Does it still run? docker info"
        ) from None


class Engine:
    """One engine. Every method raises EngineError when it does not answer."""

    def __init__(self, client: docker.DockerClient, address: Address | None = None) -> None:
        """``address`` is this process's unless it is given."""
        self._client = client
        self.address = address or engine_address()

    @property
    def client(self) -> docker.DockerClient:
        """The SDK's own client, for what this class does not do; ask it within `answering`."""
        return self._client

    @cached_property
    def info(self) -> dict[str, Any]:
        """What it tells of itself, as `docker info` shows it; asked for once."""
        with answering():
            return dict(self._client.info())

    @cached_property
    def cli(self) -> DockerCli:
        """The docker command, asked about the same engine."""
        return ask_docker(environment_of("docker"))

    @cached_property
    def _version(self) -> dict[str, Any]:
        with answering():
            return dict(self._client.version())

    @cached_property
    def capabilities(self) -> Capabilities:
        """The engine's capabilities; asked for once."""
        bootstraps = capability.can_bootstrap()
        return capabilities_of(self.address, self.info, self._version, self.cli, bootstraps=bootstraps)

    @property
    def podman(self) -> bool:
        """Whether it is podman; unlike its capabilities, this asks no docker command."""
        return capability.is_podman(self._version)

    @property
    def containerd_store(self) -> bool:
        """Whether it keeps images as OCI content; unlike its capabilities, this asks no docker command."""
        return has_containerd_store(self.info)

    def id_of(self, manifest: Manifest) -> str:
        """The ID that it gives an image: the containerd store by the manifest, other stores by the config."""
        return manifest.digest if self.containerd_store else manifest.config.digest

    @property
    def folder(self) -> Path:
        """Where it keeps its data, on its own machine."""
        return Path(self.info["DockerRootDir"])

    def images(self) -> dict[str, Image]:
        """Every tagged image by each of its tags (``repository:tag``); one request."""
        with answering():
            return by_tag(self._listed())

    def tagged(self, references: Iterable[str]) -> dict[str, Image]:
        """The images of these tags (``repository:tag``), of those that are there. Of a few, sooner than the list."""
        found = {}
        for reference in references:
            with contextlib.suppress(ImageNotFound), answering():
                found[reference] = of_inspection(self._client.images.get(reference).attrs)
        return found

    def _listed(self) -> list[dict[str, Any]]:
        """The engine's images. One that is removed meanwhile is an error of the list, which is asked for again."""
        for _ in range(_LISTINGS - 1):
            with contextlib.suppress(NotFound):
                return list(self._client.api.images())
            time.sleep(_PAUSE)
        return list(self._client.api.images())

    def find(self, digests: Iterable[str]) -> str | None:
        """The first of ``digests`` that the engine holds an image under."""
        for digest in digests:
            with contextlib.suppress(ImageNotFound), answering():
                return str(self._client.images.get(digest).id)
        return None

    def config(self, digest: str) -> dict[str, Any]:
        """An image's configuration: its ``Labels``, its ``Env``, …"""
        with answering():
            return dict(self._client.images.get(digest).attrs["Config"])

    def layers(self, digest: str) -> tuple[str, ...]:
        """The digests of an image's layers as they are unpacked, lowest first."""
        with answering():
            return tuple(self._client.images.get(digest).attrs["RootFS"].get("Layers") or ())

    def names(self, reference: str) -> tuple[str, ...] | None:
        """Every name of an image, ``repository:tag`` and ``repository@digest``; None where the engine has it not."""
        with contextlib.suppress(ImageNotFound), answering():
            attrs = self._client.images.get(reference).attrs
            return tuple(map(short_name, (*(attrs.get("RepoTags") or ()), *(attrs.get("RepoDigests") or ()))))
        return None

    def size_on_disk(self, digest: str) -> int:
        """Bytes of an image's layers on disk; the base's are counted in each image."""
        with answering():
            return sum(entry["Size"] for entry in self._client.images.get(digest).history())

    def pull(self, repository: str, key: str, login: dict[str, str] | None) -> None:
        """Fetch an image by a tag or a digest; ``login`` as the engine takes it, None for what it has kept itself."""
        try:
            with answering(), contextlib.closing(sdk_client(_UNPACKING)) as client:
                for event in client.api.pull(repository, tag=key, stream=True, decode=True, auth_config=login):
                    if "error" in event:
                        raise EngineError(f"The engine cannot pull {repository}, {key}: {event['error']}")
        except ImageNotFound as error:
            raise EngineError(f"The engine cannot pull {repository}, {key}: {error.explanation}") from None

    def load(self, archive: Iterable[bytes]) -> tuple[str, ...]:
        """Load an image from an archive of an OCI layout, without a tag, and return what the engine says."""
        # It says nothing while it unpacks, which takes minutes for some images.
        with answering(), contextlib.closing(sdk_client(_UNPACKING)) as client:
            events: Iterator[dict[str, Any]] = client.api.load_image(archive, quiet=True)  # type: ignore[no-untyped-call]
            return read_load(events)

    @contextlib.contextmanager
    def saved(self, digest: str) -> Iterator[Iterator[bytes]]:
        """The archive that `docker save` writes of an image, in pieces."""
        # A classic store says nothing while it puts the archive together.
        with answering(), contextlib.closing(sdk_client(_UNPACKING)) as client:
            try:
                yield client.api.get_image(digest, chunk_size=2**20)
            except ImageNotFound:
                raise EngineError(f"The engine no longer has {digest}.") from None

    def tag(self, digest: str, repository: str, tags: Iterable[str]) -> None:
        """Point tags at an image, wherever they pointed before."""
        for tag in tags:
            with answering():
                self._client.api.tag(digest, repository, tag, force=True)

    def remove(self, references: Iterable[str]) -> None:
        """Take tags away, and with its last one an image; what is not there need not go."""
        for reference in references:
            with answering(), contextlib.suppress(NotFound):
                self._client.api.remove_image(reference, force=True)


def read_load(events: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what an engine says while it loads an image. Raises EngineError for an error among it.

    Docker 28 reports an image that it could not unpack as text of its progress, then ends with success.
    """
    said = []
    for event in events:
        text = str(event.get("error") or event.get("stream") or "").strip()
        if "error" in event or _LOAD_FAILED.match(text):
            raise EngineError(f"The engine does not take the image: {text}")
        said += [text] if text else []
    return tuple(said)


def connect() -> Engine:
    """The engine of this process's address. Raises EngineError when none answers."""
    hint = "Start it, or run: nox -s setup (`nox -s setup -- --check` tells what is missing)."
    address = engine_address()
    try:
        client = sdk_client(_ANSWERING)
    except (DockerException, OSError, ValueError) as error:
        raise EngineError(f"No container engine answers at {address.text}: {_why(error)}.", hint=hint) from None
    engine = Engine(client, address)
    _check_same(engine)
    if address.origin != "default":
        _announce(address)
    return engine


def _check_same(engine: Engine) -> None:
    """Raises EngineError unless the docker command, if there is one, reaches the very engine that the SDK reaches."""
    cli, place = engine.cli, engine.address.text
    if cli.path is None:
        return
    if not cli.info:
        raise EngineError(
            f"The docker command does not reach the engine at {place}: {cli.error}", hint="See: docker info"
        )
    ours, theirs = (identity_of(engine.capabilities, info) for info in (engine.info, cli.info))
    if ours != theirs:
        raise EngineError(
            f"The docker command reaches another engine than torchbake at {place}: {theirs or 'none'}, not {ours}.",
            hint="Compare `docker info` and `docker context ls`; DOCKER_HOST names one engine for both.",
        )


@functools.cache
def _announce(address: Address) -> None:
    """Tell, once, of an engine that is not docker's default."""
    from torchbake.ui import console  # noqa: PLC0415 - it takes a while to load, and mostly there is nothing to tell

    console.say(f"engine: {address.text}", style="dim")


@contextlib.contextmanager
def starting_docker() -> Iterator[None]:
    """Around what starts the docker command: raises EngineError where there is none, as with an engine alone."""
    try:
        yield
    except FileNotFoundError:
        raise EngineError("The docker command is not installed.", hint="Run: nox -s setup") from None


def _why(error: BaseException) -> str:
    """The system's own word for what became of a connection, if one is behind an error; else the error's last words."""
    system = next((one for one in _behind(error) if type(one) in _WORDS), None)
    if system is not None:
        return _WORDS[type(system)]
    text = re.sub(r"^Error while fetching server API version: ", "", " ".join(str(error).split()))
    return text.rstrip(".") or type(error).__name__


def _behind(error: BaseException) -> Iterator[BaseException]:
    """An error and all that it was made from: libraries wrap the system's own in many ways."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (*one.args, one.__cause__, one.__context__, getattr(one, "reason", None))
        waiting += [part for part in inner if isinstance(part, BaseException)]
