"""Capabilities of an engine, and needs of commands. Pure, but for `can_bootstrap`.

A command refuses to begin with the same words that `setup --check` shows.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from torchbake.core.problem import Problem
from torchbake.engine.address import Address
from torchbake.engine.docker_cli import DockerCli
from torchbake.errors import EngineError

Kind: TypeAlias = Literal["Docker", "Podman"]
Store: TypeAlias = Literal["containerd", "classic", "podman"]

# Named contexts (`FROM` another target) need BuildKit 0.10, which Docker 23.0 has. Image layouts as contexts and as
# folders (`tar=false`), which a containerd store's images go through, need 0.11: Docker 24.0.
# Source: https://github.com/moby/buildkit/releases
OLDEST_DOCKER, OLDEST_WITH_LAYOUTS = (23, 0), (24, 0)
OLDEST_PODMAN = (4, 3)  # the oldest that was run
OLDEST_BUILDX = (0, 13)  # named contexts, oci-layout contexts and rawjson progress work from here on


class Need(Enum):
    """A use of an engine by commands, which its value names."""

    BUILD = "build"
    BOOTSTRAP = "bootstrap a base"
    CONTENT = "publish"


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """An engine that answers, and this machine's docker command.

    ``docker`` is the path of the command. ``bootstraps`` is True if this user can bootstrap a base here.
    """

    address: Address
    kind: Kind = "Docker"
    version: str
    api: str = ""
    store: Store
    driver: str
    rootless: bool = False
    docker: str | None = None
    buildx: str | None = None
    buildx_path: str | None = None
    bootstraps: bool = True

    @property
    def podman(self) -> bool:
        """Return whether the engine is podman, which builds images itself."""
        return self.kind == "Podman"

    @property
    def remote(self) -> bool:
        return not self.address.local

    @property
    def containerd_store(self) -> bool:
        return self.store == "containerd"

    @property
    def storage(self) -> str:
        """The image store, for people."""
        names = {"containerd": "containerd image store", "classic": "classic image store", "podman": "podman's store"}
        return f"{names[self.store]} ({self.driver})"

    @property
    def text(self) -> str:
        """The engine, its address and its kind, for people."""
        more = [word for word, holds in (("rootless", self.rootless), ("remote", self.remote)) if holds]
        return ", ".join((f"{self.kind} {self.version} at {self.address.text}", self.storage, *more))


def capabilities_of(
    address: Address, info: Mapping[str, Any], version: Mapping[str, Any], cli: DockerCli, *, bootstraps: bool
) -> Capabilities:
    """An engine by its answers to `info` and `version`, which the API and the docker command give alike."""
    podman = is_podman(version)
    return Capabilities(
        address=address,
        kind="Podman" if podman else "Docker",
        version=str(info.get("ServerVersion") or version.get("Version") or ""),
        api=str(version.get("ApiVersion") or ""),
        store="podman" if podman else "containerd" if has_containerd_store(info) else "classic",
        driver=str(info.get("Driver") or ""),
        rootless=any("name=rootless" in str(option) for option in info.get("SecurityOptions") or ()),
        docker=cli.path,
        buildx=cli.buildx,
        buildx_path=cli.buildx_path,
        bootstraps=bootstraps,
    )


def is_podman(version: Mapping[str, Any]) -> bool:
    """Return whether an engine is podman, by its answer to `version`."""
    return any(str(part.get("Name", "")).startswith("Podman") for part in version.get("Components") or ())


def has_containerd_store(info: Mapping[str, Any]) -> bool:
    """Return whether an engine keeps images as OCI content, which allows zstd layers and OCI exports."""
    return any(value == "io.containerd.snapshotter.v1" for _, value in info.get("DriverStatus") or ())


def uses_layouts(capabilities: Capabilities, *, driver: str) -> bool:
    """Return whether a builder reads and writes image layouts. Docker's own cannot with a classic store."""
    return driver != "docker" or capabilities.containerd_store


def identity_of(capabilities: Capabilities, info: Mapping[str, Any]) -> str:
    """A name for an engine that no other has. Podman makes a new ID for each answer, but has one folder."""
    return str(info.get("DockerRootDir" if capabilities.podman else "ID") or "")


def problems(capabilities: Capabilities, need: Need) -> list[Problem]:
    """The reasons why a command cannot do what it needs."""
    found: Iterator[Problem]
    match need:
        case Need.BUILD:
            found = _against_builds(capabilities)
        case Need.BOOTSTRAP:
            found = iter(() if capabilities.bootstraps else (NO_UIDMAP,))
        case Need.CONTENT:
            found = _against_content(capabilities)
    return list(found)


def require(capabilities: Capabilities, need: Need) -> None:
    """Raises EngineError with the first reason why a command cannot do what it needs."""
    for problem in problems(capabilities, need):
        raise EngineError(problem.reason, hint=problem.remedy)


def can_bootstrap() -> bool:
    """True if this user can unpack a base with all of its owners: as root, or by uidmap's two commands."""
    return os.geteuid() == 0 or all(map(shutil.which, ("newuidmap", "newgidmap")))


NO_UIDMAP = Problem(
    reason="This user cannot bootstrap bases: newuidmap and newgidmap are not installed.",
    remedy="apt-get install uidmap, as root; or make a registry with the base's image reachable.",
)


def number(text: str | None) -> tuple[int, ...]:
    """The leading numbers: enough to compare `26.1.5+dfsg1`, `v0.20.1-desktop.2` and `22.04`."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text or "")
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _against_builds(it: Capabilities) -> Iterator[Problem]:
    install = "Install docker-buildx, or run: nox -s setup"
    if it.podman:
        if number(it.version) < OLDEST_PODMAN:
            yield _too_old(it, "builds need", OLDEST_PODMAN)
    elif number(it.version) < OLDEST_DOCKER:
        yield _too_old(it, "builds need", OLDEST_DOCKER)
    elif it.docker is None:
        yield Problem(reason="There is no docker command in PATH.", remedy="Run: nox -s setup")
    elif it.buildx is None:
        yield Problem(reason=f"{it.docker} has no buildx plugin, which builds the images.", remedy=install)
    elif number(it.buildx) < OLDEST_BUILDX:
        where = f" ({it.buildx_path})" if it.buildx_path else ""
        reason = f"buildx {it.buildx}{where} is too old; {_dotted(OLDEST_BUILDX)} or later is needed."
        yield Problem(reason=reason, remedy=install)
    elif it.containerd_store and number(it.version) < OLDEST_WITH_LAYOUTS:
        yield _too_old(it, "builds into a containerd image store need", OLDEST_WITH_LAYOUTS)


def _against_content(it: Capabilities) -> Iterator[Problem]:
    if it.podman:
        what = "does not keep layers as they are published"
        yield _podman(it, what, "Build the images here again, which keeps their layers: nox -s build -- ID --no-cache")


def _podman(it: Capabilities, what: str, remedy: str) -> Problem:
    return Problem(reason=f"The engine at {it.address.host} is {it.kind} {it.version}, which {what}.", remedy=remedy)


def _too_old(it: Capabilities, what: str, oldest: tuple[int, ...]) -> Problem:
    return Problem(
        reason=f"The engine at {it.address.host} is {it.kind} {it.version}; {what} {_dotted(oldest)} or later.",
        remedy="Upgrade that engine; setup never touches an engine that it did not start.",
    )


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
