"""Images derived from ours by a Dockerfile that installs packages.

The build gets this host's certificates and package index as secrets, which leave no trace in the image. A mounted uv is
also this host's.
"""

import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Completed
from tests.e2e.serving import index_of
from tests.wheels import write_wheel
from torchbake.hostconfig.proxies import proxy_variables

TARGETS = {"ca": "/etc/ssl/certs/ca-certificates.crt", "pip": "/etc/pip.conf", "uv": "/etc/uv/uv.toml"}
_UV = "ghcr.io/astral-sh/uv"
_BUNDLE = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))

PYTORCH = "https://download.pytorch.org/whl/cpu"
_VERSIONS = {
    "torchvision": ("0.22.1", "0.23.0", "0.24.1", "0.25.0", "0.26.0", "0.28.0", "0.29.2"),
    "torchaudio": ("2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0"),
}


def reached() -> bool:
    """Return True if this host reaches PyTorch's index."""
    try:
        urllib.request.urlopen(f"{PYTORCH}/torchvision/", timeout=20).close()
    except OSError:
        return False
    return True


@contextmanager
def stand_ins(folder: Path, label: str) -> Iterator[str]:
    """Serve an index with many versions of torchvision and torchaudio without their code, and yield its address.

    With the label `+cpu` it replaces PyTorch's CPU index; otherwise PyPI, whose builds are for CUDA.
    """
    for name, versions in _VERSIONS.items():
        for version in (f"{version}{label}" for version in versions):
            code = f"__version__ = {version!r}\n".encode()
            write_wheel(folder / name, name, version, {f"{name}/__init__.py": code}, tag="py3-none-any")
    with index_of(folder, "127.0.0.1") as (url, _):
        yield url


def hand_in(folder: Path, more: str = "") -> None:
    """Write the secrets, and a folder with uv. ``more`` is an additional index for pip."""
    uv = shutil.which("uv")
    if not uv:
        pytest.skip("not run: the uv that is mounted is this host's, and there is none; pip has it")
    (folder / "tools").mkdir()
    shutil.copy(Path(uv).resolve(), folder / "tools/uv")
    index = os.environ.get("PIP_INDEX_URL", "")
    (folder / "ca").write_bytes(_BUNDLE.read_bytes())
    (folder / "pip").write_text(
        f"[global]\ncert = {TARGETS['ca']}\n"
        + (f"index-url = {index}\n" if index else "")
        + (f"extra-index-url = {more}\n" if more else "")
    )
    (folder / "uv").write_text("native-tls = true\n" + (f'index-url = "{index}"\n' if index else ""))


def build_derived(dockerfile: str, tag: str, folder: Path, files: Path | None = None) -> Completed:
    """Build the Dockerfile with the secrets and the uv that `hand_in` wrote into a folder. It copies ``files``."""
    mounts = " ".join(f"--mount=type=secret,id={name},target={to},mode=0444" for name, to in TARGETS.items())
    dockerfile = re.sub(r"(?m)^RUN ", f"RUN {mounts} ", dockerfile)
    secrets = (word for name in TARGETS for word in ("--secret", f"id={name},src={folder / name}"))
    proxies = (word for name in proxy_variables() for word in ("--build-arg", name))
    context = ("--build-context", f"{_UV}={folder / 'tools'}", str(files or folder / "tools"))
    return subprocess.run(
        ["docker", "build", "--network", "host", *secrets, *proxies, "-t", tag, "-f", "-", *context],
        input=dockerfile, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
