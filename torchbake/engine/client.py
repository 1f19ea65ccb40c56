"""A client of the container engine by the docker SDK: its capabilities, its images and their tags."""

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
from torchbake.engine.image import EngineImage, by_tag, of_inspection, short_name
from torchbake.engine.sdk import sdk_client, ssh_error
from torchbake.errors import EngineError
from torchbake.oci.manifest import Manifest
from torchbake.ui.command import Command
from torchbake.ui.tool_environment import environment_of

_ANSWERING, _UNPACKING = 60, 1800  # seconds until an answer
_LISTINGS, _PAUSE = 5, 0.2  # attempts to list images, and the seconds between two
_LOAD_FAILED = re.compile(r"error\b", re.IGNORECASE)
_CLOSED = "it closes the connection"
_WORDS: dict[type[BaseException], str] = {
    FileNotFoundError: "there is no such socket",
    ConnectionRefusedError: "nobody listens there",
    ConnectionResetError: _CLOSED,
    BrokenPipeError: _CLOSED,
    PermissionError: "you may not open that socket; members of its group, often docker, may",
    TimeoutError: "it says nothing",
    requests.exceptions.ReadTimeout: "it says nothing",
    requests.exceptions.ConnectTimeout: "it cannot be reached",
    socket.gaierror: "no such host is known",
    ssl.SSLCertVerificationError: "no authority that docker's settings name has signed its certificate",
    http.client.RemoteDisconnected: _CLOSED,
    IncompleteRead: _CLOSED,
    http.client.BadStatusLine: "what answers is not an engine",
}


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Raise EngineError for an engine's refusal, and for a missing answer."""
    try:
        yield
    except ImageNotFound:
        raise
    except APIError as error:
        raise EngineError(f"The engine refuses: {error.explanation or error}") from None
    # docker's SDK reads the progress of a pull without requests, so HTTPError of urllib3 means that the engine ended.
    except (DockerException, requests.RequestException, HTTPError) as error:
        raise EngineError(
            f"The engine does not answer: {_why(error)}.", hint="Does it still run? docker info"
        ) from None


class Engine:
    """One engine. Every method raises EngineError if the engine refuses or does not answer.

    ``client`` is the SDK's client, to be called within `answering`.
    """

    def __init__(self, client: docker.DockerClient, address: Address | None = None) -> None:
        self.client = client
        self.address = address or engine_address()

    @cached_property
    def info(self) -> dict[str, Any]:
        """The engine's description, as `docker info` shows it; requested once."""
        with answering():
            return dict(self.client.info())

    @cached_property
    def cli(self) -> DockerCli:
        """The docker command, with its view of the same engine."""
        return ask_docker(environment_of("docker"))

    @cached_property
    def _version(self) -> dict[str, Any]:
        with answering():
            return dict(self.client.version())

    @cached_property
    def capabilities(self) -> Capabilities:
        """The capabilities of the engine and of the docker command; requested once."""
        problem = capability.bootstrap_problem()
        return capabilities_of(self.address, self.info, self._version, self.cli, no_bootstrap=problem)

    @property
    def podman(self) -> bool:
        """True for podman. Unlike `capabilities`, this starts no docker command."""
        return capability.is_podman(self._version)

    @property
    def containerd_store(self) -> bool:
        """True if the engine keeps images as OCI content. Unlike `capabilities`, this starts no docker command."""
        return has_containerd_store(self.info)

    def id_of(self, manifest: Manifest) -> str:
        """Return the engine's ID of an image: the manifest's digest in a containerd store, else the config's."""
        return manifest.digest if self.containerd_store else manifest.config.digest

    @property
    def folder(self) -> Path:
        """The folder of the engine's data, on its own machine."""
        return Path(self.info["DockerRootDir"])

    def images(self) -> dict[str, EngineImage]:
        """Return every tagged image by each of its tags (``repository:tag``), in one request."""
        return by_tag(self.list_images())

    def list_images(self, **selection: Any) -> list[dict[str, Any]]:
        """Return the entries of all images, or by ``name`` or ``filters``; repeat it if an image disappears."""
        with answering():
            for _ in range(_LISTINGS - 1):
                with contextlib.suppress(NotFound):
                    return list(self.client.api.images(**selection))
                time.sleep(_PAUSE)
            return list(self.client.api.images(**selection))

    def tagged_images(self, references: Iterable[str]) -> dict[str, EngineImage]:
        """Return the existing images of a few tags (``repository:tag``), faster than `images` does."""
        images = {}
        for reference in references:
            with contextlib.suppress(ImageNotFound), answering():
                images[reference] = of_inspection(self.client.images.get(reference).attrs)
        return images

    def find(self, names: Iterable[str]) -> str | None:
        """Return the ID of the first of these images, by digest or name, that the engine has."""
        for name in names:
            with contextlib.suppress(ImageNotFound), answering():
                return str(self.client.images.get(name).id)
        return None

    def config(self, digest: str) -> dict[str, Any]:
        """Return an image's configuration: its ``Labels``, its ``Env``, …"""
        with answering():
            return dict(self.client.images.get(digest).attrs["Config"])

    def layers(self, digest: str) -> tuple[str, ...]:
        """Return the digests of an image's unpacked layers, lowest first."""
        with answering():
            return tuple(self.client.images.get(digest).attrs["RootFS"].get("Layers") or ())

    def names(self, reference: str) -> tuple[str, ...] | None:
        """Return every name of an image, ``repository:tag`` and ``repository@digest``; None if there is no image."""
        with contextlib.suppress(ImageNotFound), answering():
            attrs = self.client.images.get(reference).attrs
            return tuple(map(short_name, (*(attrs.get("RepoTags") or ()), *(attrs.get("RepoDigests") or ()))))
        return None

    def size_on_disk(self, digest: str) -> int:
        """Return the bytes of an image's layers on disk, with those of the base."""
        with answering():
            return sum(entry["Size"] for entry in self.client.images.get(digest).history())

    def pull(self, repository: str, key: str, login: dict[str, str] | None, platform: str | None = None) -> None:
        """Pull an image by a tag or a digest. With None for ``login`` the SDK looks for a login of docker.

        Without a ``platform`` the engine takes an image for its own.
        """
        try:
            with answering(), contextlib.closing(sdk_client(_UNPACKING)) as client:
                words: dict[str, Any] = {"auth_config": login, "platform": platform}
                for event in client.api.pull(repository, tag=key, stream=True, decode=True, **words):
                    if "error" in event:
                        raise EngineError(f"The engine cannot pull {repository}, {key}: {event['error']}")
        except ImageNotFound as error:
            raise EngineError(f"The engine cannot pull {repository}, {key}: {error.explanation}") from None

    def load(self, archive: Iterable[bytes]) -> tuple[str, ...]:
        """Load an image from an archive of an OCI layout, without a tag, and return the engine's messages."""
        # The engine sends no message while it unpacks, which takes minutes for some images.
        with answering(), contextlib.closing(sdk_client(_UNPACKING)) as client:
            events: Iterator[dict[str, Any]] = client.api.load_image(archive, quiet=True)  # type: ignore[no-untyped-call]
            return read_load(events)

    @contextlib.contextmanager
    def save(self, digest: str) -> Iterator[Iterator[bytes]]:
        """Yield the pieces of an image's archive, as of `docker save`."""
        # A classic store sends no data while it writes the archive.
        with answering(), contextlib.closing(sdk_client(_UNPACKING)) as client:
            try:
                yield client.api.get_image(digest, chunk_size=2**20)
            except ImageNotFound:
                raise EngineError(f"The engine no longer has {digest}.") from None

    def tag(self, digest: str, repository: str, tags: Iterable[str]) -> None:
        """Set tags of an image, also tags of another image."""
        for tag in tags:
            with answering():
                self.client.api.tag(digest, repository, tag, force=True)

    def remove(self, references: Iterable[str]) -> None:
        """Remove names of images if they exist. An image without a name is removed."""
        for reference in references:
            with answering(), contextlib.suppress(NotFound):
                self.client.api.remove_image(reference, force=True)


def read_load(events: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the messages of an engine that loads an image. Raises EngineError for an error among them.

    If Docker 28 cannot unpack an image, it reports that as text of the progress, and ends with success.
    """
    messages = list[str]()
    for event in events:
        text = str(event.get("error") or event.get("stream") or "").strip()
        if "error" in event or _LOAD_FAILED.match(text):
            raise EngineError(f"The engine does not take the image: {text}")
        messages += [text] if text else []
    return tuple(messages)


def connect() -> Engine:
    """Connect to the engine of this process's address. Raises EngineError if none answers."""
    hint = f"Start it, or run: {Command('setup')} (`{Command('setup', '--check')}` shows what is missing)."
    address = engine_address()
    try:
        client = sdk_client(_ANSWERING)
    except (DockerException, OSError, ValueError) as error:
        why = _why(error)
        if why == _CLOSED:  # else the last message of ssh is a banner or a warning
            why = ssh_error(address) or why
        raise EngineError(f"No container engine answers at {address.text}: {why}.", hint=hint) from None
    engine = Engine(client, address)
    _check_same(engine)
    if address.origin != "default":
        _announce(address)
    return engine


def _check_same(engine: Engine) -> None:
    """Raise EngineError if there is a docker command and it reaches another engine than the SDK."""
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
    """Name an engine that is not docker's default, once."""
    from torchbake.ui import console  # noqa: PLC0415 - slow to load, and most runs have no message

    console.say(f"engine: {address.text}", style="dim")


@contextlib.contextmanager
def starting_docker() -> Iterator[None]:
    """Raise EngineError if the block cannot start the docker command because it is not installed."""
    try:
        yield
    except FileNotFoundError:
        raise EngineError("The docker command is not installed.", hint=f"Run: {Command('setup')}") from None


def _why(error: BaseException) -> str:
    """Return the reason why a connection failed, by the first known cause of an error; else the error's text."""
    system = next((cause for cause in _causes(error) if type(cause) in _WORDS), None)
    if system is not None:
        return _WORDS[type(system)]
    text = re.sub(r"^Error while fetching server API version: ", "", " ".join(str(error).split()))
    return text.rstrip(".") or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all its causes, which libraries wrap in many ways."""
    left, visited = [error], set[int]()
    while left:
        cause = left.pop()
        if id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        inner = (*cause.args, cause.__cause__, cause.__context__, getattr(cause, "reason", None))
        left += [part for part in inner if isinstance(part, BaseException)]
