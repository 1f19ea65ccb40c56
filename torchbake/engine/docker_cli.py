"""Ask the docker command about its engine and its buildx."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchbake.core.plain_text import last_line

_SECONDS = 40  # the limit of an answer; an engine behind ssh may be slow


@dataclass(frozen=True, kw_only=True)
class DockerCli:
    """The docker command. ``path`` is None if it is missing; ``info`` is empty if no engine answers, with ``error``."""

    path: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    buildx: str | None = None
    buildx_path: str | None = None


def ask_docker(env: Mapping[str, str]) -> DockerCli:
    """Ask the docker command in PATH about the engine that ``env`` names."""
    path = shutil.which("docker", path=env.get("PATH"))
    if path is None:
        return DockerCli(error="there is no docker command in PATH")
    code, output, errors = run([path, "info", "--format", "{{json .}}"], env)
    return parse_info(path, code, output, errors)


def parse_info(path: str, code: int, output: str, errors: str) -> DockerCli:
    """Parse the output of `docker info`, which is JSON even if no engine answers. Pure."""
    try:
        info = dict(json.loads(output))
    except (ValueError, TypeError):
        return DockerCli(path=path, error=last_line(errors, nothing=f"docker info ended with exit code {code}"))
    if "host" in info and "ServerVersion" not in info:
        return DockerCli(error=f"{path} is podman's command, which cannot bake: remove podman-docker")
    plugins = {plugin.get("Name"): plugin for plugin in (info.get("ClientInfo") or {}).get("Plugins") or []}
    buildx = plugins.get("buildx", {})
    return DockerCli(
        path=path,
        info=info if info.get("ServerVersion") else {},
        error=last_line("\n".join([*(info.get("ServerErrors") or []), errors]), nothing=""),
        buildx=buildx.get("Version"),
        buildx_path=buildx.get("Path"),
    )


def ask_version(cli: DockerCli, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the engine's part of `docker version`; empty if it does not answer."""
    if cli.path is None:
        return {}
    try:
        value = json.loads(run([cli.path, "version", "--format", "{{json .Server}}"], env)[1])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def run(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a short command; return its exit code, output and errors. 127: it cannot be started; 124: it hangs."""
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            env={**env, "LC_ALL": "C"}, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer in {_SECONDS} s"
    except OSError as error:
        return 127, "", str(error)
    return process.returncode, process.stdout, process.stderr
