"""docker compose, the plugin of the engine's command, or Debian's where that is not installed."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.tree import tree

_PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"


def compose(tools: Path, folder: Path) -> dict[str, str]:
    """The variables by which `docker` has it. Raises NoLauncherError."""
    queries = ["docker", "compose", "version"]
    if shutil.which("docker") and subprocess.run(queries, capture_output=True, check=False).returncode == 0:
        return {}
    plugins = folder / "docker/cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(tree(tools) / _PLUGIN)
    return {"DOCKER_CONFIG": str(plugins.parent)}


def run(env: Mapping[str, str], manifest: str, first: str, seconds: float) -> Ended:
    """Start what a manifest says, wait for its end as docs/how-to/jobs-docker.md has it, and take away what is left.

    ``first`` is the service of node 0.
    """
    began = time.monotonic()
    up = _call(env, "up", "--detach", manifest=manifest, seconds=seconds)
    logs = _call(env, "logs", "--no-color", "--follow", manifest=manifest, seconds=seconds)
    container = _call(env, "ps", "--all", "--quiet", first, manifest=manifest, seconds=60).stdout.strip()
    code = subprocess.run(["docker", "wait", container], capture_output=True, text=True, timeout=seconds, check=False)
    took = time.monotonic() - began
    process = _call(env, "down", "--timeout", "0", manifest=manifest, seconds=60)
    assert process.returncode == 0, process.stderr
    output = up.stderr + logs.stdout + logs.stderr + code.stderr
    return Ended(code=int(code.stdout or up.returncode or 1), output=output, seconds=took)


def _call(env: Mapping[str, str], *words: str, manifest: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "compose", "--file", "-", *words], env={**os.environ, **env}, input=manifest, capture_output=True,
        text=True, timeout=seconds, check=False,
    )  # fmt: skip
