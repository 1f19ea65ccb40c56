"""Locked wheels, from the host's indexes and folders and from an accelerator's own: uv installs, pip only fetches."""

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
WHEELS = Path("/run/wheels")  # the host's own
CA_SECRET = Path("/run/secrets/ca")
UV_TOML = Path("/etc/uv/uv.toml")
PYPI = "https://pypi.org/simple"
INDEXES_SECRET = Path("/run/secrets/indexes")  # the host's, in place of --index

# Runs an installer that asks these indexes too; what becomes of its stderr is for `subprocess`.
Attempt: TypeAlias = Callable[[Sequence[str], "int | None"], "subprocess.CompletedProcess[str]"]


def install(lock: Path, index: Sequence[str], *target: str) -> None:
    """Install a list by uv, with hashes, from the host's indexes and wheel folders.

    ``index`` is where wheels are that those lack: a variable, by which the host can name others, and addresses.
    """
    if not lock.read_text().strip():
        return
    environment = dict(os.environ, UV_LINK_MODE="copy", UV_NO_PROGRESS="1", UV_PYTHON_DOWNLOADS="never")
    environment["UV_FIND_LINKS"] = str(WHEELS)
    if CA_SECRET.exists():
        environment["SSL_CERT_FILE"] = str(CA_SECRET)
    command = ["/opt/uv/bin/uv", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += [*target, "-r", str(lock)]

    def attempt(indexes: Sequence[str], stderr: int | None) -> subprocess.CompletedProcess[str]:
        more = asked_last(indexes) if indexes else {}
        return subprocess.run(command, env={**environment, **more}, stderr=stderr, text=True, check=False)

    ask(attempt, index)


def download(lock: Path, index: Sequence[str], folder: Path) -> list[Path]:
    """Fetch the wheels of a list by pip, with hashes, from the same places. Return their files.

    ``folder`` may be one that is kept: pip fetches no wheel that it already has there.
    """
    text = lock.read_text()
    if not text.strip():
        return []
    if not PIP.exists():
        sys.exit(f"{sys.executable} brings no pip: ensurepip has no wheel of it. Install the package that has.")
    folder /= f"{sys.implementation.cache_tag}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    environment = dict(os.environ, PIP_ROOT_USER_ACTION="ignore", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if CA_SECRET.exists():
        environment["PIP_CERT"] = str(CA_SECRET)
    command = [sys.executable, f"{PIP}/pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--progress-bar", "off", "--find-links", str(WHEELS), "--dest", str(folder)]

    def attempt(indexes: Sequence[str], stderr: int | None) -> subprocess.CompletedProcess[str]:
        # As lines of the list: an address may hold a password, and everybody can read the arguments of a process.
        # `===`: if an index gives no hashes, pip takes 2.13.0+cpu for `==2.13.0`.
        lines = "".join(f"--extra-index-url {index}\n" for index in indexes) + text.replace("==", "===")
        words = [*command, "-r", "/dev/stdin"]
        return subprocess.run(words, env=environment, input=lines, stderr=stderr, text=True, check=False)

    ask(attempt, index)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) > text.count("=="):  # pip has chosen another of the locked wheels than before
        shutil.rmtree(folder)
        return download(lock, index, folder.parent)
    return wheels


def ask(attempt: Attempt, index: Sequence[str]) -> None:
    """Try the host's indexes and folders alone, then those of ``index`` too. Exit unless one of the two succeeds."""
    first = attempt((), subprocess.PIPE if index else None)
    if first.returncode and not index:
        sys.exit(first.returncode)
    if first.returncode:
        _ask_more(attempt, index[0], indexes_of(index[1:]), first.stderr)


def indexes_of(rendered: Sequence[str]) -> list[str]:
    """The host's own in place of those that the Dockerfile names."""
    return INDEXES_SECRET.read_text().split() if INDEXES_SECRET.exists() else list(rendered)


def asked_last(indexes: Sequence[str]) -> dict[str, str]:
    """uv's variables for all of the host's indexes and these after them.

    uv takes a version from the first index that has it and goes to no other when the hash is wrong. Variables, since an
    address may hold a password and arguments are everybody's to read.
    """
    host = tomllib.loads(UV_TOML.read_text()) if UV_TOML.exists() else {}
    *first, last = indexes
    before = [*host.get("extra-index-url", []), host.get("index-url", PYPI), *first]
    return {"UV_INDEX": " ".join(before), "UV_DEFAULT_INDEX": last, "UV_INDEX_STRATEGY": "unsafe-best-match"}


def _ask_more(attempt: Attempt, variable: str, indexes: Sequence[str], before: str) -> None:
    if attempt(indexes, None).returncode:
        names = " ".join(re.sub(r"//.*@", "//", index) for index in indexes)
        sys.exit(
            f"Before that, without {names}:\n{before}"
            f"error: neither the host's own indexes and folders nor {names} gave every wheel of the lock. If it cannot "
            f"be reached, set {variable} to a mirror of it, or name a folder that holds the wheels in pip's find-links."
        )
