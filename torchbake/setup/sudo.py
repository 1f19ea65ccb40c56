"""Run a torchbake command again, as root."""

import os
import subprocess
import sys

from torchbake.core.paths import TOOLKIT
from torchbake.setup.paths import ENGINE_DIR
from torchbake.ui import console

# Proxies for apt and the engine, and the variables that decide where the engine is.
_KEPT_BY_SUDO = (
    *("PATH", "PYTHONPATH", "DOCKER_HOST", ENGINE_DIR, "TORCHBAKE_APT_MIRROR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


def with_sudo(*words: str) -> int:
    """Run `torchbake WORDS` by sudo and return its exit code. The command prints its own errors."""
    kept_items = [f"{name}={os.environ[name]}" for name in _KEPT_BY_SUDO if name in os.environ]
    ask = [] if sys.stdin.isatty() else ["-n"]
    console.say(f"going on as root: sudo … torchbake {' '.join(words)}")
    # In the toolkit's folder, so that -m finds it. With -B root writes no compiled files into the user's folders.
    command = ["sudo", *ask, "env", *kept_items, sys.executable, "-B", "-m", "torchbake", *words]
    return subprocess.run(command, cwd=TOOLKIT, check=False).returncode
