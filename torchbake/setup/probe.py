"""Collect the facts about this machine for `torchbake.setup.plan`. Changes nothing."""

import contextlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchbake.engine.address import DEFAULT, Address, resolve
from torchbake.engine.capability import bootstrap_problem, capabilities_of
from torchbake.engine.docker_cli import DockerCli, ask_docker, ask_version, run
from torchbake.engine.emulation import runs
from torchbake.errors import EngineError
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.setup.dockerd import SYSTEM_PATH, knock
from torchbake.setup.paths import EnginePaths
from torchbake.setup.plan import DAEMON_JSON, TRIXIE_PIN, TRIXIE_SOURCE, SetupHost

# Packages that setup may install, and their alternatives.
_PACKAGES = (
    *("docker.io", "docker-cli", "docker-buildx", "docker-ce", "docker-ce-cli", "docker-buildx-plugin"),
    *("podman-docker", "iptables", "ca-certificates", "mmdebstrap"),
)
_FILES = (TRIXIE_SOURCE, TRIXIE_PIN, DAEMON_JSON)


def look(paths: EnginePaths, env: Mapping[str, str] = os.environ, *, platforms: Sequence[str] = ()) -> SetupHost:
    """Collect the facts about this machine, which is to run programs of ``platforms``."""
    try:
        address, unknown = _address(paths, env), ""
    except EngineError as error:
        address, unknown = DEFAULT, error.message
    variables = {**env, **address.variables}
    docker = DockerCli(path=shutil.which("docker", path=env.get("PATH"))) if unknown else ask_docker(variables)
    engine = None
    if docker.info:
        version = ask_version(docker, variables)
        engine = capabilities_of(address, docker.info, version, docker, no_bootstrap=bootstrap_problem())
    release = {}
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
    ready = engine is not None and docker.buildx is not None
    return SetupHost(
        system=platform.system(),
        distro=release.get("ID", ""),
        release=release.get("VERSION_ID", ""),
        root=rights(),
        systemd=Path("/run/systemd/system").is_dir(),
        installed=frozenset() if ready else _installed(),
        mirror=read_apt_config(env, dump=lambda _: "").mirror,  # without the proxies, for which apt is asked
        files={name: Path(name).read_text(errors="replace") for name in _FILES if os.access(name, os.R_OK)},
        trixie_known=_trixie_known(),
        docker=docker.path,
        docker_elsewhere=None if docker.path else shutil.which("docker", path=SYSTEM_PATH),
        dockerd=None if engine else _dockerd_version(),
        address=address,
        unknown_address=unknown,
        chosen_by=_chosen_by(address, paths),
        engine=engine,
        engine_error=docker.error,
        buildx=docker.buildx,
        mmdebstrap=shutil.which("mmdebstrap", path=SYSTEM_PATH) is not None,
        used_before=Path("/var/lib/docker").exists(),
        foreign=tuple(platform for platform in platforms if not runs(platform)),
        socket=knock(paths.socket) if hasattr(os, "geteuid") else "dead",
    )


def _address(paths: EnginePaths, env: Mapping[str, str]) -> Address:
    """Resolve the engine's address: DOCKER_HOST, then TORCHBAKE_ENGINE_DIR, then docker's. Raises EngineError."""
    if paths.own_folder and not env.get("DOCKER_HOST"):
        return Address(host=paths.endpoint, origin="TORCHBAKE_ENGINE_DIR")
    return resolve(env)


def _chosen_by(address: Address, paths: EnginePaths) -> str | None:
    """Name the setting that chooses another engine than setup would start; None if there is none."""
    if address.socket and Path(address.socket).resolve() == paths.socket.resolve():
        return None
    match address.origin:
        case "DOCKER_HOST":
            return f"DOCKER_HOST is {address.host}"
        case "DOCKER_CONTEXT":
            return f"DOCKER_CONTEXT is {address.context}"
        case "current context":
            return f"`docker context use` chose {address.context}"
        case _:
            return f"docker's default is {address.host}"


def rights() -> Literal["root", "sudo", "no"]:
    """Return how this process gets root's rights. It can use sudo without a password or with a terminal."""
    if not hasattr(os, "geteuid"):  # Windows
        return "no"
    if os.geteuid() == 0:
        return "root"
    sudo = shutil.which("sudo")
    if sudo and (sys.stdin.isatty() or run([sudo, "-n", "true"], os.environ)[0] == 0):
        return "sudo"
    return "no"


def _installed() -> frozenset[str]:
    """Return the relevant packages that are completely installed."""
    query = shutil.which("dpkg-query", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if query is None:
        return frozenset()
    lines = run([query, "-W", "-f", "${Package} ${db:Status-Status}\n", *_PACKAGES], os.environ)[1].splitlines()
    return frozenset(line.split()[0] for line in lines if line.endswith(" installed"))


def _dockerd_version() -> str | None:
    dockerd = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if dockerd is None:
        return None
    match = re.search(r"version v?(\d[^\s,]*)", run([dockerd, "--version"], os.environ)[1])
    return match[1] if match else None


def _trixie_known() -> bool:
    """Check if apt has Debian 13 from another source than setup's. Such a source has its own priorities."""
    folder = Path("/etc/apt/sources.list.d")
    lists = [Path("/etc/apt/sources.list"), *folder.glob("*.list"), *folder.glob("*.sources")]
    texts = (path.read_text(errors="replace") for path in lists if path != Path(TRIXIE_SOURCE) and path.is_file())
    return any(re.search(r"^[^#]*\btrixie\b", text, flags=re.MULTILINE) for text in texts)
