"""Minimal systems as images of the engine: the required packages of Debian or Ubuntu, and the given packages."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import requests
import zstandard

from tests.e2e.bare import ROOT
from tests.e2e.once import in_turn
from tests.e2e.registries import unpacked
from torchbake.hostconfig.apt_archives import debian
from torchbake.hostconfig.apt_config import read_apt_config

CACHE = ROOT / ".torchbake/roots"
UBUNTU, UBUNTU_ARCHIVE = "noble", "http://archive.ubuntu.com/ubuntu"


def bare_root(suite: str, packages: Sequence[str], *, older: str = "") -> str:
    """Make an image of a suite with these packages; packages that it lacks come from the ``older`` suite.

    The root archive is cached, and the engine has the image until the tests end.
    """
    name = hashlib.sha256(" ".join((*packages, older)).strip().encode()).hexdigest()[:12]
    archive, ref = CACHE / f"{suite}-{name}.tar.zst", f"torchbake-test/root:{suite}-{name}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with in_turn(CACHE / f"{suite}-{name}.lock"):
        if not archive.exists():
            half = CACHE / f"{suite}-{name}.{os.getpid()}.tar"
            words = _from_ubuntu(suite, half) if suite == UBUNTU else _from_debian(suite, half, older)
            include = ",".join(("apt", *packages))  # apt itself is not required on Ubuntu
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={include}", *words], check=True)
            _pack(half, archive)
        if subprocess.run(["docker", "image", "inspect", ref], capture_output=True, check=False).returncode:
            subprocess.run(["docker", "import", archive, ref], check=True, capture_output=True)
    return ref


def _pack(tar: Path, archive: Path) -> None:
    """Compress the archive: the engine imports it as it is, but would gzip an uncompressed one in ten core-seconds."""
    path = tar.with_suffix(".zst")
    with tar.open("rb") as source, path.open("wb") as target:
        zstandard.ZstdCompressor(level=1).copy_stream(source, target)
    tar.unlink()
    path.rename(archive)


def _from_debian(suite: str, archive: Path, older: str) -> tuple[str | Path, ...]:
    """Return arguments for mmdebstrap; without an older suite, mmdebstrap finds the sources itself."""
    if not older:
        return suite, archive
    archives = debian(read_apt_config())
    return suite, archive, *archives.one_line(suite), *archives.one_line(older)


def _from_ubuntu(suite: str, archive: Path) -> tuple[str | Path, ...]:
    """Return arguments for mmdebstrap: the sources of Ubuntu's installer, and Ubuntu's keys, which Debian lacks."""
    try:
        requests.head(f"{UBUNTU_ARCHIVE}/dists/{suite}/InRelease", timeout=30).raise_for_status()
    except requests.RequestException as error:
        pytest.skip(f"not run: Ubuntu's archive cannot be reached ({error})")
    keys = unpacked(ROOT / ".torchbake/tools", "ubuntu-keyring", "usr/share/keyrings/ubuntu-archive-keyring.gpg")
    sources = (f"deb {UBUNTU_ARCHIVE} {each} main universe" for each in (suite, f"{suite}-updates"))
    return f"--keyring={keys}", suite, archive, *sources
