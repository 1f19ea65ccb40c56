"""docker compose, the plugin of the engine's command, or Debian's where that is not installed."""

import shutil
import subprocess
import time
from pathlib import Path

from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.tree import tree

_PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"


def compose(tools: Path) -> list[str]:
    """The words that it is called by. Raises NoLauncherError."""
    known = shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True, text=True, check=False
    )
    return ["docker", "compose"] if known and known.returncode == 0 else [str(tree(tools) / _PLUGIN)]


def run(command: list[str], manifest: str, first: str, seconds: float) -> Ended:
    """Start what a manifest says, in the foreground, and take away what is left; ``first`` is the service of node 0."""
    began = time.monotonic()
    done = _call(command, "up", "--no-color", "--exit-code-from", first, manifest=manifest, seconds=seconds)
    took = time.monotonic() - began
    gone = _call(command, "down", "--timeout", "0", manifest=manifest, seconds=60)
    assert gone.returncode == 0, gone.stderr
    return Ended(code=done.returncode, said=done.stdout + done.stderr, seconds=took)


def _call(command: list[str], *words: str, manifest: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, "--file", "-", *words], input=manifest, capture_output=True, text=True, timeout=seconds, check=False
    )
