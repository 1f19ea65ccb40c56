"""Locked wheels, installed by uv from the host's indexes and folders, and from an accelerator's own index."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

CA_SECRET = Path("/run/secrets/ca")
UV_TOML = Path("/etc/uv/uv.toml")
PYPI = "https://pypi.org/simple"
INDEXES_SECRET = Path("/run/secrets/indexes")  # the host's, in place of --index


def install(lock: Path, index: Sequence[str], *target: str) -> None:
    """Install a list by uv, with hashes, from the host's indexes and wheel folders.

    ``index`` is where wheels are that those lack: a variable, by which the host can name others, and addresses.
    """
    if not lock.read_text().strip():
        return
    environment = dict(os.environ, UV_LINK_MODE="copy", UV_NO_PROGRESS="1", UV_PYTHON_DOWNLOADS="never")
    environment["UV_FIND_LINKS"] = "/run/wheels"
    if CA_SECRET.exists():
        environment["SSL_CERT_FILE"] = str(CA_SECRET)
    command = ["/opt/uv/bin/uv", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += [*target, "-r", str(lock)]
    if not index:
        subprocess.run(command, check=True, env=environment)
        return
    first = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if first.returncode:
        _install_from(index[0], indexes_of(index[1:]), command, environment, first.stderr)


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


def _install_from(
    variable: str, indexes: Sequence[str], command: Sequence[str], environment: Mapping[str, str], before: str
) -> None:
    if subprocess.run(command, env={**environment, **asked_last(indexes)}, check=False).returncode:
        names = " ".join(re.sub(r"//.*@", "//", index) for index in indexes)
        sys.exit(
            f"Before that, without {names}:\n{before}"
            f"error: neither the host's own indexes and folders nor {names} gave every wheel of the lock. If it cannot "
            f"be reached, set {variable} to a mirror of it, or name a folder that holds the wheels in pip's find-links."
        )
