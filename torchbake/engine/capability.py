"""Capabilities of an engine, and needs of commands. Pure, except `bootstrap_problem`.

A command that cannot begin shows the same message as `setup --check`.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torchbake.core.ownership import user_name
from torchbake.core.problem import Problem
from torchbake.engine.address import Address
from torchbake.engine.docker_cli import DockerCli
from torchbake.errors import EngineError
from torchbake.ui.command import Command

Kind: TypeAlias = Literal["Docker", "Podman"]
Store: TypeAlias = Literal["containerd", "classic", "podman"]

# Named contexts (`FROM` another target) need BuildKit 0.10, which Docker 23.0 has. Layouts as contexts and as outputs
# (`tar=false`), for the images of a containerd store, need BuildKit 0.11, which Docker 24.0 has.
# Source: https://github.com/moby/buildkit/releases
OLDEST_DOCKER, OLDEST_WITH_LAYOUTS = (23, 0), (24, 0)
OLDEST_PODMAN = (4, 3)  # the oldest that was tested
OLDEST_BUILDX = (0, 13)  # the first with named contexts, oci-layout contexts and rawjson progress


class Need(Enum):
    """A use of an engine by a command."""

    BUILD = "build"
    BOOTSTRAP = "bootstrap a base"
    CONTENT = "publish"


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The properties of an engine and of this machine's docker command, whose path is ``docker``.

    ``no_bootstrap`` is the reason why this user cannot bootstrap a base here.
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
    no_bootstrap: Problem | None = None

    @property
    def podman(self) -> bool:
        """True for podman, which builds images itself."""
        return self.kind == "Podman"

    @property
    def remote(self) -> bool:
        return not self.address.local

    @property
    def containerd_store(self) -> bool:
        return self.store == "containerd"

    @property
    def storage(self) -> str:
        """The image store, for messages."""
        names = {"containerd": "containerd image store", "classic": "classic image store", "podman": "podman's store"}
        return f"{names[self.store]} ({self.driver})"

    @property
    def text(self) -> str:
        """The engine, its address and its store, for messages."""
        more = [word for word, holds in (("rootless", self.rootless), ("remote", self.remote)) if holds]
        return ", ".join((f"{self.kind} {self.version} at {self.address.text}", self.storage, *more))


def capabilities_of(
    address: Address, info: Mapping[str, Any], version: Mapping[str, Any], cli: DockerCli, *,
    no_bootstrap: Problem | None,
) -> Capabilities:  # fmt: skip
    """Return an engine's capabilities by its answers to `info` and `version`, of the API or of the docker command."""
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
        no_bootstrap=no_bootstrap,
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
    """Return a name that no other engine has. Podman gives a new ID with each answer, so its folder is the name."""
    return str(info.get("DockerRootDir" if capabilities.podman else "ID") or "")


def problems(capabilities: Capabilities, need: Need) -> list[Problem]:
    """Return the reasons why an engine does not meet a need."""
    match need:
        case Need.BUILD:
            return list(_against_builds(capabilities))
        case Need.BOOTSTRAP:
            return [capabilities.no_bootstrap] if capabilities.no_bootstrap else []
        case Need.CONTENT:
            return [_no_content(capabilities)] if capabilities.podman else []


def require(capabilities: Capabilities, need: Need) -> None:
    """Raise EngineError with the first reason why an engine does not meet a need."""
    for problem in problems(capabilities, need):
        raise EngineError(problem.reason, hint=problem.remedy)


def bootstrap_problem(etc: Path = Path("/etc")) -> Problem | None:
    """Return why this user cannot unpack files with their owners; None for root.

    Other users need a namespace with more than one uid: the commands of uidmap, and a range of uids and of gids.
    """
    if not hasattr(os, "geteuid") or os.geteuid() == 0:  # Windows has no users with a number
        return None
    if not all(map(shutil.which, ("newuidmap", "newgidmap"))):
        return NO_UIDMAP
    user = user_name(os.getuid())
    missing = [path for path in (etc / "subuid", etc / "subgid") if not _has_range(path, user)]
    return _no_range(user, missing) if missing else None


def _has_range(path: Path, user: str) -> bool:
    try:
        return any(line.startswith(f"{user}:") for line in path.read_text(errors="replace").splitlines())
    except OSError:
        return False


def _no_range(user: str, missing: Iterable[Path]) -> Problem:
    return Problem(
        reason=f"This user cannot bootstrap bases: no line for {user} in {' and '.join(map(str, missing))}.",
        remedy=f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}, as root; {_OR_A_REGISTRY}",
    )


_OR_A_REGISTRY = "or make a registry with the base's image reachable."
NO_UIDMAP = Problem(
    reason="This user cannot bootstrap bases: newuidmap and newgidmap are not installed.",
    remedy=f"apt-get install uidmap, as root; {_OR_A_REGISTRY}",
)


def number(text: str | None) -> tuple[int, ...]:
    """Return the leading numbers of a version, such as of `26.1.5+dfsg1` and `v0.20.1-desktop.2`."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text or "")
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _against_builds(it: Capabilities) -> Iterator[Problem]:
    install = f"Install docker-buildx, or run: {Command('setup')}"
    if it.podman:
        if number(it.version) < OLDEST_PODMAN:
            yield _too_old(it, "builds need", OLDEST_PODMAN)
    elif number(it.version) < OLDEST_DOCKER:
        yield _too_old(it, "builds need", OLDEST_DOCKER)
    elif it.docker is None:
        yield Problem(reason="There is no docker command in PATH.", remedy=f"Run: {Command('setup')}")
    elif it.buildx is None:
        yield Problem(reason=f"{it.docker} has no buildx plugin, which builds the images.", remedy=install)
    elif number(it.buildx) < OLDEST_BUILDX:
        where = f" ({it.buildx_path})" if it.buildx_path else ""
        reason = f"buildx {it.buildx}{where} is too old; {_join_dots(OLDEST_BUILDX)} or later is needed."
        yield Problem(reason=reason, remedy=install)
    elif it.containerd_store and number(it.version) < OLDEST_WITH_LAYOUTS:
        yield _too_old(it, "builds into a containerd image store need", OLDEST_WITH_LAYOUTS)


def _no_content(it: Capabilities) -> Problem:
    return Problem(
        reason=f"The engine at {it.address.host} is {it.kind} {it.version}, which does not keep the published layers.",
        remedy=f"Build the images here again, which keeps their layers: {Command('build', 'ID --no-cache')}",
    )


def _too_old(it: Capabilities, use: str, oldest: tuple[int, ...]) -> Problem:
    return Problem(
        reason=f"The engine at {it.address.host} is {it.kind} {it.version}; {use} {_join_dots(oldest)} or later.",
        remedy="Upgrade that engine; setup changes only an engine that it started itself.",
    )


def _join_dots(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
