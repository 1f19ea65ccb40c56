"""The steps that make a host ready to build, decided from facts about it. Nothing here reads or changes the host."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torchbake.core.problem import Problem
from torchbake.engine.address import DEFAULT, Address
from torchbake.engine.capability import OLDEST_BUILDX, OLDEST_DOCKER, Capabilities, Need, number, problems
from torchbake.errors import SetupError
from torchbake.hostconfig.apt_archives import DEBIAN_KEYS
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
# An engine that is started by hand takes over these settings of the host: how to reach registries, networks and GPUs.
# torchbake chooses its socket and its folders.
KEPT_SETTINGS = (
    *("registry-mirrors", "insecure-registries", "proxies", "dns", "mtu", "bip", "default-address-pools"),
    *("runtimes", "default-runtime", "cdi-spec-dirs"),
)
_ENGINE_PACKAGES = {"docker.io", "docker-ce", "docker-ce-cli"}
# Debian 12's qemu 7.2 lacks a system call of tini, with which images start: prctl(PR_SET_CHILD_SUBREAPER).
FROM_TRIXIE = ("docker.io", "docker-cli", "docker-buildx", "qemu-user", "qemu-user-binfmt")

_DOCS = "Install Docker Engine 23.0 or later with buildx 0.13 or later (https://docs.docker.com/engine/install/)"
_BINFMT = "https://docs.docker.com/build/building/multi-platform/#qemu"
_DESKTOP = "Install Docker Desktop (https://docs.docker.com/desktop/)"
_ELSEWHERE = {
    "Darwin": f"{_DESKTOP} or `brew install colima docker docker-buildx` and `colima start`",
    "Windows": f"{_DESKTOP} with its WSL 2 backend, and run this inside WSL",
    "fedora": "sudo dnf install moby-engine docker-cli docker-buildx && sudo systemctl start docker",
    "arch": "sudo pacman -S docker docker-buildx && sudo systemctl start docker",
    "alpine": "apk add docker docker-cli-buildx && rc-service docker start",
}


@dataclass(frozen=True, kw_only=True)
class SetupHost:
    """The facts about a machine, each read once."""

    system: str = "Linux"
    distro: str = ""  # ID of /etc/os-release
    release: str = ""  # VERSION_ID of /etc/os-release
    root: Literal["root", "sudo", "no"] = "no"
    systemd: bool = False
    installed: frozenset[str] = frozenset()  # Debian packages
    mirror: str = ""  # the Debian archive that apt uses here.
    files: Mapping[str, str] = field(default_factory=dict)  # Texts of existing files that setup may write
    trixie_known: bool = False  # apt has trixie from a source that setup did not write.
    docker: str | None = None  # Docker's command in PATH
    docker_elsewhere: str | None = None  # a docker command in a folder that PATH lacks
    dockerd: str | None = None  # the version of the installed dockerd
    address: Address = DEFAULT
    unknown_address: str = ""  # why docker's context names no address
    chosen_by: str | None = None  # the setting that chooses another engine than setup would start
    engine: Capabilities | None = None
    engine_error: str = ""  # docker's message when no engine answers
    buildx: str | None = None
    buildx_path: str | None = None
    mmdebstrap: bool = False
    used_before: bool = False  # an engine has stored images in /var/lib/docker
    socket: Literal["answers", "forbidden", "hangs", "dead"] = "dead"
    foreign: tuple[str, ...] = ()  # platforms that setup was asked for, and whose programs this machine does not run

    @property
    def supported(self) -> bool:
        """Check if apt on this host has the packages of an engine."""
        at_least = {"debian": (12,), "ubuntu": (22, 4)}.get(self.distro)
        return at_least is not None and number(self.release) >= at_least

    @property
    def starts_engine(self) -> bool:
        """Check if setup must start an engine: it does so only if nothing listens at the socket."""
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


@dataclass(frozen=True, kw_only=True)
class RegisterEmulation:
    """The kernel starts programs of other platforms by qemu, also in containers."""

    platforms: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"register qemu for {' and '.join(self.platforms)} in the kernel (binfmt_misc)"


Step = WriteFile | Install | StartUnit | StartDaemon | RegisterEmulation


@dataclass(frozen=True, kw_only=True)
class SetupPlan:
    """The steps by which setup solves a problem. If only a person can solve it, the problem has a remedy instead."""

    problem: Problem | None = None
    steps: tuple[Step, ...] = ()

    @property
    def ready(self) -> bool:
        return self.problem is None


def make_plan(host: SetupHost, paths: EnginePaths) -> SetupPlan:
    """Plan the steps that make this host ready; no step if it is ready."""
    reason = _problem(host)
    if reason is None:
        return SetupPlan()
    remedy = _for_a_person(host)
    if remedy:
        return SetupPlan(problem=Problem(reason=reason, remedy=remedy))
    steps = tuple(_steps(host, paths))
    if steps and host.root != "no":
        return SetupPlan(problem=Problem(reason=reason), steps=steps)
    titles = "; ".join(step.title for step in steps)
    remedy = f"Run this as root, or ask somebody who has root's rights to do this: {titles}"
    if not steps:
        remedy = "Everything is installed, but does not work together: see `docker info`."
    return SetupPlan(problem=Problem(reason=reason, remedy=remedy))


def _problem(host: SetupHost) -> str | None:
    if host.docker is None:
        return "There is no docker command in PATH."
    if host.unknown_address:
        return host.unknown_address
    if host.engine is None:
        return f"No engine answers at {host.address.text}: {host.engine_error or 'nothing listens there'}"
    engine_problems = problems(replace(host.engine, docker=host.docker, buildx=host.buildx), Need.BUILD)
    if not engine_problems and host.foreign:
        return f"This machine does not run programs for {' and '.join(host.foreign)}."
    return engine_problems[0].reason if engine_problems else None


def _for_a_person(host: SetupHost) -> str | None:
    """Return the remedy if the problem is somebody's engine or settings, which setup must not change."""
    unfit = _unfit(host.engine)
    lost = host.docker is None and host.docker_elsewhere is not None
    silent = host.engine is None
    # Ubuntu's docker-buildx depends on docker.io, which is a second engine if the first is another package.
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
        (host.foreign and host.engine and host.engine.remote, f"Register qemu on the engine's machine: {_BINFMT}"),
        (second or not host.supported, _elsewhere(host)),
    )
    return next((advice for applies, advice in cases if applies), None)


def _unfit(engine: Capabilities | None) -> str:
    """Return the remedy for an engine that cannot build with any buildx; "" if it can."""
    if engine is None:
        return ""
    engine_problems = problems(replace(engine, docker="docker", buildx="0.13"), Need.BUILD)
    return engine_problems[0].remedy if engine_problems else ""


def _elsewhere(host: SetupHost) -> str:
    """Return the remedy for a host whose packages setup does not know."""
    if host.foreign:
        return f"Register qemu in the kernel: {_BINFMT}"
    if host.engine:
        return "Install buildx 0.13 or later: https://github.com/docker/buildx#installing"
    if host.dockerd and host.docker and host.buildx:
        return "Start the engine: sudo systemctl start docker"
    how = _ELSEWHERE.get(host.system) or _ELSEWHERE.get(host.distro) or _DOCS
    return f"{how}; then run this again. (setup installs by itself on Debian 12+ and Ubuntu 22.04+.)"


def _missing_packages(host: SetupHost) -> tuple[str, ...]:
    """Return the packages to install from the archive that this host uses; no second engine or docker command."""
    engine, command, buildx = "docker.io", "docker-cli" if host.distro == "debian" else "docker.io", "docker-buildx"
    if {"docker-ce", "docker-ce-cli"} & host.installed:
        engine, command, buildx = "docker-ce", "docker-ce-cli", "docker-buildx-plugin"
    expected_values: list[str] = []
    if host.starts_engine and number(host.dockerd) < OLDEST_DOCKER:
        expected_values.append(engine)
    # Older packages docker.io of Debian contain the command, newer ones do not.
    if host.docker is None or (engine in expected_values and engine in host.installed):
        expected_values.append(command)
    if number(host.buildx) < OLDEST_BUILDX and (host.buildx or buildx not in host.installed):
        expected_values.append(buildx)
    extras = ["iptables", "ca-certificates"] if host.starts_engine else []
    if host.starts_engine or host.docker is None:
        extras.append("mmdebstrap")  # only here: a host with an engine may get its bases from a registry
        if host.distro == "ubuntu":
            extras.append("debian-archive-keyring")  # Ubuntu lacks the keys of Debian, from which images are made
    expected_values += [name for name in extras if name not in host.installed]
    expected_values += _emulation_packages(host)
    return tuple(dict.fromkeys(expected_values))


def _needs_trixie(host: SetupHost, packages: tuple[str, ...]) -> bool:
    return host.distro == "debian" and number(host.release)[:1] == (12,) and bool({*packages} & {*FROM_TRIXIE})


def _files(host: SetupHost, packages: tuple[str, ...]) -> Iterator[WriteFile]:
    """Yield the files that must be written before apt runs. A file that exists with the same text is left out."""
    files: list[WriteFile] = []
    if _needs_trixie(host, packages) and not host.trixie_known:
        why = "Debian 12's own packages are too old"
        source = SOURCE_TEXT.format(mirror=host.mirror or "http://deb.debian.org/debian")
        files.append(WriteFile(path=TRIXIE_SOURCE, text=source, why=why))
        files.append(WriteFile(path=TRIXIE_PIN, text=PIN_TEXT, why="nothing comes from trixie unless named"))
    new = "docker.io" in packages and host.dockerd is None and not host.used_before
    if new and host.systemd and DAEMON_JSON not in host.files:
        # The package starts the engine under systemd at once, so its settings must exist before.
        files.append(WriteFile(path=DAEMON_JSON, text=engine_config(""), why="containerd image store"))
    yield from (file for file in files if host.files.get(file.path) != file.text)


def _steps(host: SetupHost, paths: EnginePaths) -> Iterator[Step]:
    packages = _missing_packages(host)
    yield from _files(host, packages)
    if packages:
        pinned = FROM_TRIXIE if _needs_trixie(host, packages) else ()
        yield Install(packages=tuple(f"{name}/trixie" if name in pinned else name for name in packages))
    if host.starts_engine and host.systemd and not paths.own_folder:
        yield StartUnit()
    elif host.starts_engine:
        yield StartDaemon(paths=paths, config=engine_config(host.files.get(DAEMON_JSON, "")))
    if host.foreign and not host.systemd:
        yield RegisterEmulation(platforms=host.foreign)


def _emulation_packages(host: SetupHost) -> tuple[str, ...]:
    """Return the packages for programs of other platforms."""
    if not host.foreign:
        return ()
    return ("qemu-user", "qemu-user-binfmt") if host.distro == "debian" else ("qemu-user-static",)


def engine_config(daemon_json: str) -> str:
    """Return the settings of an engine that setup starts. ``daemon_json`` is the host's. Raises SetupError."""
    try:
        host = json.loads(daemon_json or "{}")
        kept_items = {key: host[key] for key in KEPT_SETTINGS if key in host}
        features = {**host.get("features", {}), **CONTAINERD_STORE["features"]}
    except (ValueError, TypeError, AttributeError) as error:
        raise SetupError(f"{DAEMON_JSON} is not a JSON object ({error}).", hint="Correct or move it.") from None
    return json.dumps({**kept_items, "features": features}, indent=2) + "\n"
