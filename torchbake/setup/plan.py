"""A host and what makes it ready to build: facts in, a plan out; nothing here looks or acts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torchbake.core.problem import Problem
from torchbake.engine.address import DEFAULT, Address
from torchbake.engine.capability import OLDEST_BUILDX, OLDEST_DOCKER, Capabilities, Need, number, problems
from torchbake.errors import SetupError
from torchbake.hostconfig.apt_sources import DEBIAN_KEYS
from torchbake.setup.paths import EnginePaths

TRIXIE_SOURCE = "/etc/apt/sources.list.d/torchbake-trixie.sources"
TRIXIE_PIN = "/etc/apt/preferences.d/torchbake-trixie"
DAEMON_JSON = "/etc/docker/daemon.json"
CONTAINERD_STORE = {"features": {"containerd-snapshotter": True}}
SOURCE_TEXT = f"""\
Types: deb
URIs: {{mirror}}
Suites: trixie
Components: main
Signed-By: {DEBIAN_KEYS}
"""
PIN_TEXT = "Package: *\nPin: release n=trixie\nPin-Priority: 50\n"
# An engine started by hand takes over these of the host's own settings: how to reach registries, its
# networks and its GPUs. Where it listens and stores is torchbake's choice.
KEPT_SETTINGS = (
    *("registry-mirrors", "insecure-registries", "proxies", "dns", "mtu", "bip", "default-address-pools"),
    *("runtimes", "default-runtime", "cdi-spec-dirs"),
)
_ENGINE_PACKAGES = {"docker.io", "docker-ce", "docker-ce-cli"}
FROM_TRIXIE = ("docker.io", "docker-cli", "docker-buildx")

_DOCS = "Install Docker Engine 23.0 or later with buildx 0.13 or later (https://docs.docker.com/engine/install/)"
_DESKTOP = "Install Docker Desktop (https://docs.docker.com/desktop/)"
_ELSEWHERE = {
    "Darwin": f"{_DESKTOP} or `brew install colima docker docker-buildx` and `colima start`",
    "Windows": f"{_DESKTOP} with its WSL 2 backend, and run this inside WSL",
    "fedora": "sudo dnf install moby-engine docker-cli docker-buildx && sudo systemctl start docker",
    "arch": "sudo pacman -S docker docker-buildx && sudo systemctl start docker",
    "alpine": "apk add docker docker-cli-buildx && rc-service docker start",
}


@dataclass(frozen=True, kw_only=True)
class Host:
    """What matters about a machine, looked at once."""

    system: str = "Linux"
    distro: str = ""  # ID of /etc/os-release
    release: str = ""  # VERSION_ID
    root: Literal["root", "sudo", "no"] = "no"
    systemd: bool = False
    installed: frozenset[str] = frozenset()  # Debian packages
    mirror: str = ""  # the Debian archive that apt uses here
    files: Mapping[str, str] = field(default_factory=dict)  # setup's own that exist, with their text
    trixie_known: bool = False  # apt has trixie from a source that setup did not write
    docker: str | None = None  # the docker command in PATH
    docker_elsewhere: str | None = None  # one that PATH does not show
    dockerd: str | None = None  # the version of the installed one
    address: Address = DEFAULT
    unknown_address: str = ""  # why docker's context names no address
    chosen_by: str | None = None  # what points docker away from the engine that setup would start
    engine: Capabilities | None = None
    engine_error: str = ""  # why no engine answers, in docker's words
    buildx: str | None = None
    buildx_path: str | None = None
    mmdebstrap: bool = False
    used_before: bool = False  # an engine has stored images in /var/lib/docker
    socket: Literal["answers", "forbidden", "hangs", "dead"] = "dead"

    @property
    def supported(self) -> bool:
        """Whether apt on this host has what is needed."""
        at_least = {"debian": (12,), "ubuntu": (22, 4)}.get(self.distro)
        return at_least is not None and number(self.release) >= at_least

    @property
    def starts_engine(self) -> bool:
        """An engine is started only where nothing listens; one that merely cannot be used is left alone."""
        return self.engine is None and self.socket == "dead"


@dataclass(frozen=True, kw_only=True)
class WriteFile:
    path: str
    text: str
    why: str

    @property
    def title(self) -> str:
        return f"write {self.path}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Install:
    packages: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"apt-get update; apt-get install --no-install-recommends {' '.join(self.packages)}"


@dataclass(frozen=True, kw_only=True)
class StartUnit:
    title: str = "systemctl start docker"


@dataclass(frozen=True, kw_only=True)
class StartDaemon:
    paths: EnginePaths
    config: str

    @property
    def title(self) -> str:
        paths = self.paths
        return f"start dockerd: socket {paths.socket}, data in {paths.data_root}, log {paths.log}"


Step = WriteFile | Install | StartUnit | StartDaemon


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is wrong, and the steps by which setup puts it right; the problem's remedy is what only a person can do."""

    problem: Problem | None = None
    steps: tuple[Step, ...] = ()

    @property
    def ready(self) -> bool:
        return self.problem is None


def make_plan(host: Host, paths: EnginePaths) -> Plan:
    """What it takes to make this host ready; an empty plan when it is."""
    reason = _problem(host)
    if reason is None:
        return Plan()
    remedy = _for_a_person(host)
    if remedy:
        return Plan(problem=Problem(reason=reason, remedy=remedy))
    packages = _missing_packages(host)
    steps = (*_files(host, packages), *_install(host, packages), *_start(host, paths))
    if not steps:
        remedy = "Everything is installed, but does not work together: see `docker info`."
        return Plan(problem=Problem(reason=reason, remedy=remedy))
    if host.root == "no":
        titles = "; ".join(step.title for step in steps)
        remedy = f"Run this as root, or let somebody who may do this: {titles}"
        return Plan(problem=Problem(reason=reason, remedy=remedy))
    return Plan(problem=Problem(reason=reason), steps=steps)


def _problem(host: Host) -> str | None:
    if host.docker is None:
        return "There is no docker command in PATH."
    if host.unknown_address:
        return host.unknown_address
    if host.engine is None:
        return f"No engine answers at {host.address.text}: {host.engine_error or 'nothing listens there'}"
    found = problems(replace(host.engine, docker=host.docker, buildx=host.buildx), Need.BUILD)
    return found[0].reason if found else None


def _for_a_person(host: Host) -> str | None:
    """Another's engine or a person's own settings: setup says what to do and leaves them alone."""
    unfit = _unfit(host.engine)
    lost = host.docker is None and host.docker_elsewhere is not None
    silent = host.engine is None
    # Ubuntu's docker-buildx brings docker.io: a second engine, where the first is not that package.
    second = host.distro == "ubuntu" and not host.starts_engine and not host.installed & _ENGINE_PACKAGES
    cases = (
        (lost, f"Put the folder of {host.docker_elsewhere} in PATH."),
        ("podman-docker" in host.installed, "Remove podman-docker: its docker command cannot bake."),
        (unfit, unfit),
        (bool(host.unknown_address), "Name a context of `docker context ls`, or unset DOCKER_CONTEXT."),
        (silent and host.chosen_by, f"Start that engine, or choose another one: {host.chosen_by}."),
        (
            silent and host.socket == "forbidden",
            "An engine runs, but your user may not use it: sudo usermod -aG docker $USER, then log in again.",
        ),
        (silent and host.socket == "hangs", f"Stop what holds {host.address.host} without answering."),
        (second or not host.supported, _elsewhere(host)),
    )
    return next((advice for applies, advice in cases if applies), None)


def _unfit(engine: Capabilities | None) -> str:
    """The remedy for an engine that cannot build with any buildx; empty if it can."""
    if engine is None:
        return ""
    found = problems(replace(engine, docker="docker", buildx="0.13"), Need.BUILD)
    return found[0].remedy if found else ""


def _elsewhere(host: Host) -> str:
    """What to install where setup does not know the packages."""
    if host.engine:
        return "Install buildx 0.13 or later: https://github.com/docker/buildx#installing"
    if host.dockerd and host.docker and host.buildx:
        return "Start the engine: sudo systemctl start docker"
    how = _ELSEWHERE.get(host.system) or _ELSEWHERE.get(host.distro) or _DOCS
    return f"{how}; then run this again. (setup installs by itself on Debian 12+ and Ubuntu 22.04+.)"


def _missing_packages(host: Host) -> tuple[str, ...]:
    """What to install: never a second engine, never a second docker command."""
    engine, command, buildx = _package_names(host)
    wanted: list[str] = []
    if host.starts_engine and number(host.dockerd) < OLDEST_DOCKER:
        wanted.append(engine)
    # Debian's docker.io brought the command along until it became a package of its own.
    if host.docker is None or (engine in wanted and engine in host.installed):
        wanted.append(command)
    if number(host.buildx) < OLDEST_BUILDX and (host.buildx or buildx not in host.installed):
        wanted.append(buildx)
    extras = ["iptables", "ca-certificates"] if host.starts_engine else []
    if host.starts_engine or host.docker is None:
        extras.append("mmdebstrap")  # a host that was never made ready; one that was may have a registry instead
        if host.distro == "ubuntu":
            extras.append("debian-archive-keyring")  # images are of Debian, whose keys Ubuntu does not have
    wanted += [name for name in extras if name not in host.installed]
    return tuple(dict.fromkeys(wanted))


def _package_names(host: Host) -> tuple[str, str, str]:
    """The engine, the command and buildx, from whichever archive this host already uses."""
    if {"docker-ce", "docker-ce-cli"} & host.installed:
        return "docker-ce", "docker-ce-cli", "docker-buildx-plugin"
    return "docker.io", "docker-cli" if host.distro == "debian" else "docker.io", "docker-buildx"


def _needs_trixie(host: Host, packages: tuple[str, ...]) -> bool:
    return host.distro == "debian" and number(host.release)[:1] == (12,) and bool({*packages} & {*FROM_TRIXIE})


def _files(host: Host, packages: tuple[str, ...]) -> Iterator[WriteFile]:
    """Files that must stand before apt runs; one that is there with the same text is no step."""
    files: list[WriteFile] = []
    if _needs_trixie(host, packages) and not host.trixie_known:
        why = "Debian 12's own docker.io has no buildx"
        source = SOURCE_TEXT.format(mirror=host.mirror or "http://deb.debian.org/debian")
        files.append(WriteFile(path=TRIXIE_SOURCE, text=source, why=why))
        files.append(WriteFile(path=TRIXIE_PIN, text=PIN_TEXT, why="nothing comes from trixie unless named"))
    new = "docker.io" in packages and host.dockerd is None and not host.used_before
    if new and host.systemd and DAEMON_JSON not in host.files:
        # The package starts the engine under systemd at once, so its settings come first.
        files.append(WriteFile(path=DAEMON_JSON, text=engine_config(""), why="containerd image store"))
    yield from (file for file in files if host.files.get(file.path) != file.text)


def _install(host: Host, packages: tuple[str, ...]) -> Iterator[Install]:
    if packages:
        pinned = _needs_trixie(host, packages)
        names = (f"{name}/trixie" if pinned and name in FROM_TRIXIE else name for name in packages)
        yield Install(packages=tuple(names))


def _start(host: Host, paths: EnginePaths) -> Iterator[StartUnit | StartDaemon]:
    if host.starts_engine and host.systemd and not paths.own_folder:
        yield StartUnit()
    elif host.starts_engine:
        yield StartDaemon(paths=paths, config=engine_config(host.files.get(DAEMON_JSON, "")))


def engine_config(daemon_json: str) -> str:
    """The settings of an engine that setup starts, given the host's own daemon.json. Raises SetupError."""
    try:
        host = json.loads(daemon_json or "{}")
        kept = {key: host[key] for key in KEPT_SETTINGS if key in host}
        features = {**host.get("features", {}), **CONTAINERD_STORE["features"]}
    except (ValueError, TypeError, AttributeError) as error:
        raise SetupError(f"{DAEMON_JSON} is not a JSON object ({error}).", hint="Correct or move it.") from None
    return json.dumps({**kept, "features": features}, indent=2) + "\n"
