"""Images derived from ours by a Dockerfile that installs packages: with what this host must hand in for that.

As secrets, which leave no trace: its certificates and its package index. A uv that is mounted is this host's.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Completed
from torchbake.hostconfig.proxies import proxy_variables

TARGETS = {"ca": "/etc/ssl/certs/ca-certificates.crt", "pip": "/etc/pip.conf", "uv": "/etc/uv/uv.toml"}
_UV = "ghcr.io/astral-sh/uv"
_BUNDLE = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))


def hand_in(folder: Path) -> None:
    """Writes the secrets, and a folder with a uv."""
    uv = shutil.which("uv")
    if not uv:
        pytest.skip("not run: the uv that is mounted is this host's, and there is none; pip has it")
    (folder / "tools").mkdir()
    shutil.copy(Path(uv).resolve(), folder / "tools/uv")
    index = os.environ.get("PIP_INDEX_URL", "")
    (folder / "ca").write_bytes(_BUNDLE.read_bytes())
    (folder / "pip").write_text(f"[global]\ncert = {TARGETS['ca']}\n" + (f"index-url = {index}\n" if index else ""))
    (folder / "uv").write_text("native-tls = true\n" + (f'index-url = "{index}"\n' if index else ""))


def build_derived(dockerfile: str, tag: str, folder: Path) -> Completed:
    """The Dockerfile's image, built with what `hand_in` wrote into the folder."""
    mounts = " ".join(f"--mount=type=secret,id={name},target={to},mode=0444" for name, to in TARGETS.items())
    dockerfile = re.sub(r"(?m)^RUN ", f"RUN {mounts} ", dockerfile)
    secrets = (word for name in TARGETS for word in ("--secret", f"id={name},src={folder / name}"))
    proxies = (word for name in proxy_variables() for word in ("--build-arg", name))
    context = ("--build-context", f"{_UV}={folder / 'tools'}", str(folder / "tools"))
    return subprocess.run(
        ["docker", "build", "--network", "host", *secrets, *proxies, "-t", tag, "-f", "-", *context],
        input=dockerfile, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
