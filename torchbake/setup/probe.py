"""Looks at this machine once: what `torchbake.host` decides upon. Changes nothing."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.setup.dockerd import SYSTEM_PATH, knock
from torchbake.setup.paths import EnginePaths
from torchbake.setup.plan import DAEMON_JSON, TRIXIE_PIN, TRIXIE_SOURCE, Engine, Host

# What setup may install, and what does the same job.
_PACKAGES = (
    *("docker.io", "docker-cli", "docker-buildx", "docker-ce", "docker-ce-cli", "docker-buildx-plugin"),
    *("podman-docker", "iptables", "ca-certificates", "mmdebstrap"),
)
_SECONDS = 20  # an engine behind ssh may be slow; one that never answers must not hold setup


@dataclass(frozen=True, kw_only=True)
class _Docker:
    """What `docker info` tells of the engine and of the command itself."""

    engine: Engine | None = None
    error: str = ""
    context: str | None = None
    buildx: str | None = None
    buildx_path: str | None = None


def look(paths: EnginePaths, env: Mapping[str, str] = os.environ) -> Host:
    """The facts about this machine."""
    command = shutil.which("docker", path=env.get("PATH"))
    chosen = env.get("DOCKER_HOST") or (paths.endpoint if paths.own_folder else None)
    docker = _ask_docker(command, {**env, "DOCKER_HOST": chosen} if chosen else env)
    endpoint, chosen_by = _endpoint(paths, env, docker.context or env.get("DOCKER_CONTEXT"))
    release = _os_release()
    ready = docker.engine is not None and docker.buildx is not None
    return Host(
        system=platform.system(),
        distro=release.get("ID", ""),
        release=release.get("VERSION_ID", ""),
        root=rights(),
        systemd=Path("/run/systemd/system").is_dir(),
        installed=frozenset() if ready else _installed(),
        mirror=read_apt_config(env).mirror,
        files=_texts(TRIXIE_SOURCE, TRIXIE_PIN, DAEMON_JSON),
        trixie_known=_trixie_known(),
        docker=command,
        docker_elsewhere=None if command else shutil.which("docker", path=SYSTEM_PATH),
        dockerd=None if docker.engine else _dockerd_version(),
        endpoint=endpoint,
        chosen_by=chosen_by,
        engine=docker.engine,
        engine_error=docker.error,
        buildx=docker.buildx,
        buildx_path=docker.buildx_path,
        mmdebstrap=shutil.which("mmdebstrap", path=SYSTEM_PATH) is not None,
        used_before=Path("/var/lib/docker").exists(),
        socket=knock(paths.socket) if hasattr(os, "geteuid") else "dead",
    )


def _ask_docker(command: str | None, env: Mapping[str, str]) -> _Docker:
    if command is None:
        return _Docker(error="there is no docker command to ask with")
    code, output, errors = _run([command, "info", "--format", "{{json .}}"], env)
    try:
        info = json.loads(output)
        client = info.get("ClientInfo") or {}
    except (ValueError, AttributeError):
        return _Docker(error=_last_line(errors) or f"docker info ended with exit code {code}")
    plugins = {plugin.get("Name"): plugin for plugin in client.get("Plugins") or []}
    buildx = plugins.get("buildx", {})
    return _Docker(
        engine=_engine(info),
        error=_last_line(errors) or _last_line("\n".join(info.get("ServerErrors") or [])),
        context=client.get("Context"),
        buildx=buildx.get("Version"),
        buildx_path=buildx.get("Path"),
    )


def _engine(info: Mapping[str, Any]) -> Engine | None:
    if not info.get("ServerVersion"):
        return None
    status = info.get("DriverStatus") or []
    return Engine(
        version=info["ServerVersion"],
        driver=info.get("Driver", ""),
        containerd_store=any("io.containerd.snapshotter" in str(row) for row in status),
    )


def _endpoint(paths: EnginePaths, env: Mapping[str, str], context: str | None) -> tuple[str, str | None]:
    """Where docker looks, and what sent it there if that is not where setup would start an engine."""
    given = env.get("DOCKER_HOST")
    if given:
        ours = Path(given.removeprefix("unix://")).resolve() == paths.socket.resolve()
        return given, None if ours else f"DOCKER_HOST is {given}"
    if context not in (None, "default") and not paths.own_folder:
        return f"docker context {context}", f"`docker context use` chose {context}"
    return paths.endpoint, None


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def rights() -> Literal["root", "sudo", "no"]:
    """Whether root's rights are there; sudo counts when it needs no password or can ask for it."""
    if not hasattr(os, "geteuid"):  # Windows
        return "no"
    if os.geteuid() == 0:
        return "root"
    sudo = shutil.which("sudo")
    if sudo and (sys.stdin.isatty() or _run([sudo, "-n", "true"], os.environ)[0] == 0):
        return "sudo"
    return "no"


def _installed() -> frozenset[str]:
    """Which of the packages that matter are installed, completely."""
    query = shutil.which("dpkg-query", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if query is None:
        return frozenset()
    lines = _run([query, "-W", "-f", "${Package} ${db:Status-Status}\n", *_PACKAGES], os.environ)[1].splitlines()
    return frozenset(line.split()[0] for line in lines if line.endswith(" installed"))


def _dockerd_version() -> str | None:
    dockerd = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if dockerd is None:
        return None
    found = re.search(r"version v?(\d[^\s,]*)", _run([dockerd, "--version"], os.environ)[1])
    return found[1] if found else None


def _texts(*names: str) -> dict[str, str]:
    paths = [Path(name) for name in names]
    return {str(path): path.read_text(errors="replace") for path in paths if os.access(path, os.R_OK)}


def _trixie_known() -> bool:
    """Whether apt has Debian 13 from a source of the host's own, which has its own priorities then."""
    folder = Path("/etc/apt/sources.list.d")
    lists = [Path("/etc/apt/sources.list"), *folder.glob("*.list"), *folder.glob("*.sources")]
    texts = (path.read_text(errors="replace") for path in lists if path != Path(TRIXIE_SOURCE) and path.is_file())
    return any(re.search(r"^[^#]*\btrixie\b", text, flags=re.MULTILINE) for text in texts)


def _run(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a short question; a command that cannot run or hangs has failed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**env, "LC_ALL": "C"},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer in {_SECONDS} s"
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _last_line(text: str) -> str:
    """The last thing a program said."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
