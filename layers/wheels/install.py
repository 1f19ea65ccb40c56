"""Installs locked wheels by uv, or downloads them by pip, from the indexes of the host and of the accelerator."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

PIP = Path("/opt/pip.whl")  # `install_uv.py` puts it there
UV = Path("/opt/uv/bin/uv")
WHEELS = Path("/run/wheels")  # the host's own
CA_SECRET = Path("/run/secrets/ca")
UV_TOML = Path("/etc/uv/uv.toml")
PYPI = "https://pypi.org/simple"
INDEXES_SECRET = Path("/run/secrets/indexes")  # the host's, in place of --index

# Runs an installer with further indexes; the second argument is `subprocess.run`'s stderr.
Attempt: TypeAlias = Callable[[Sequence[str], "int | None"], "subprocess.CompletedProcess[str]"]


def install(lock: Path, index: Sequence[str], *target: str) -> None:
    """Install a list by uv, with hashes, from the host's indexes and wheel folders.

    ``index`` is for wheels that the host lacks: the variable by which the host can replace them, and addresses.
    """
    if not lock.read_text().strip():
        return
    environment = dict(os.environ, UV_LINK_MODE="copy", UV_NO_PROGRESS="1", UV_PYTHON_DOWNLOADS="never")
    environment["UV_FIND_LINKS"] = str(WHEELS)
    if CA_SECRET.exists():
        environment["SSL_CERT_FILE"] = str(CA_SECRET)
    command = [str(UV), "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += [*target, "-r", str(lock)]

    def attempt(indexes: Sequence[str], stderr: int | None) -> subprocess.CompletedProcess[str]:
        more = asked_last(indexes) if indexes else {}
        return subprocess.run(command, env={**environment, **more}, stderr=stderr, text=True, check=False)

    ask(attempt, index)


def download(lock: Path, index: Sequence[str], folder: Path, platform: str = "") -> list[Path]:
    """Download the wheels of a list by pip, with hashes, from the same sources, and return their files.

    ``folder`` may be a cache: pip downloads no wheel that is there already. ``platform`` is the wheels',
    such as ``aarch64-manylinux_2_36``, if Python's is another.
    """
    text = lock.read_text()
    if not text.strip():
        return []
    if not PIP.exists():
        sys.exit(f"{sys.executable} has no pip: its ensurepip has no wheel of it. Install the package that has one.")
    folder /= (
        f"{sys.implementation.cache_tag}{platform and f'-{platform}'}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    )
    environment = dict(os.environ, PIP_ROOT_USER_ACTION="ignore", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if CA_SECRET.exists():
        environment["PIP_CERT"] = str(CA_SECRET)
    command = [sys.executable, f"{PIP}/pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--progress-bar", "off", "--find-links", str(WHEELS), "--dest", str(folder)]
    command += [word for name in pip_platforms(platform) for word in ("--platform", name)]

    def attempt(indexes: Sequence[str], stderr: int | None) -> subprocess.CompletedProcess[str]:
        # The indexes are lines of the list, as an address may hold a password, and arguments are visible to all users.
        # With `==2.13.0` pip would accept 2.13.0+cpu if an index gives no hashes.
        lines = "".join(f"--extra-index-url {index}\n" for index in indexes) + text.replace("==", "===")
        words = [*command, "-r", "/dev/stdin"]
        return subprocess.run(words, env=environment, input=lines, stderr=stderr, text=True, check=False)

    ask(attempt, index)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) > text.count("=="):  # pip has chosen another of the locked files than in an earlier build
        shutil.rmtree(folder)
        return download(lock, index, folder.parent, platform)
    return wheels


def pip_platforms(platform: str) -> list[str]:
    """Return pip's names of uv's platform, the newest C library first, as pip takes each name literally; [] for ""."""
    if not platform:
        return []
    machine, _, name = platform.partition("-")
    minors = range(int(name.rpartition("_")[2]), 16, -1)  # PEP 599 begins with 2.17 for other machines than x86_64
    return [*(f"manylinux_2_{minor}_{machine}" for minor in minors), f"manylinux2014_{machine}", f"linux_{machine}"]


def ask(attempt: Attempt, index: Sequence[str]) -> None:
    """Try the host's indexes and folders alone, then with those of ``index``. Exit if both attempts fail."""
    first = attempt((), subprocess.PIPE if index else None)
    if first.returncode and not index:
        sys.exit(first.returncode)
    if not first.returncode:
        return
    indexes = indexes_of(index[1:])
    if attempt(indexes, None).returncode:
        names = " ".join(re.sub(r"//.*@", "//", each) for each in indexes)
        sys.exit(
            f"Before that, without {names}:\n{first.stderr}"
            f"error: neither the host's own indexes and folders nor {names} gave every wheel of the lock. If it cannot "
            f"be reached, set {index[0]} to a mirror of it, or name a folder that holds the wheels in pip's find-links."
        )


def indexes_of(rendered: Sequence[str]) -> list[str]:
    """Return the host's replacement of the Dockerfile's indexes if there is one, else these."""
    return INDEXES_SECRET.read_text().split() if INDEXES_SECRET.exists() else list(rendered)


def asked_last(indexes: Sequence[str]) -> dict[str, str]:
    """Return uv's variables for the host's indexes, followed by these.

    By default uv takes a version from the first index that has it, and tries no other if the hash is wrong. Variables
    keep the passwords in addresses from other users, who can read arguments.
    """
    host = tomllib.loads(UV_TOML.read_text()) if UV_TOML.exists() else {}
    *first, last = indexes
    before = [*host.get("extra-index-url", []), host.get("index-url", PYPI), *first]
    return {"UV_INDEX": " ".join(before), "UV_DEFAULT_INDEX": last, "UV_INDEX_STRATEGY": "unsafe-best-match"}
