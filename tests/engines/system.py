"""The systems that engines run in: a Debian suite's own packages in a folder. Nothing is installed on this machine."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from tests.clusters.machine import debootstrap

_DOCKER = ("docker.io", "docker-cli", "iptables", "iproute2", "kmod")
_ROOTLESS = ("dbus-user-session", "rootlesskit", "slirp4netns", "uidmap")
_CLIENT = ("docker-buildx", "python3")  # what torchbake needs in a container
_PODMAN = ("podman", "buildah", "crun", "netavark", "aardvark-dns", "catatonit", "iptables", "nftables", "iproute2")
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "bookworm": _PODMAN,
    "trixie": (*_DOCKER, *_ROOTLESS, "openssh-server", *_CLIENT),
    "forky": (*_DOCKER, *_PODMAN),
}
USER, UID = "builder", 1777  # who runs engines without root's rights
_ADD_USER = f'chroot "$1" useradd --create-home --uid {UID} --shell /bin/bash {USER}'


class NotRunError(Exception):
    """Why an engine cannot be had on this machine."""


def without_engine(config: pytest.Config, reason: str) -> NoReturn:
    """End a test whose engine cannot be had: `not-run`, or a failure by `--engines require`."""
    if config.getoption("--engines") == "require":
        pytest.fail(reason)
    pytest.skip(f"not-run: {reason}")


def system(tools: Path, suite: str) -> Path:
    """Return the root folder of a suite's system, and make it if its packages have changed. Raises NotRunError."""
    made_of = repr((suite, PACKAGES[suite], _ADD_USER)).encode()
    folder = tools / f"engines-{suite}-{hashlib.sha256(made_of).hexdigest()[:12]}"
    if folder.exists():
        return folder
    tools.mkdir(parents=True, exist_ok=True)
    for old in tools.glob(f"engines-{suite}-*"):
        shutil.rmtree(old)
    part = folder.with_name(f"part-{folder.name}-{os.getpid()}")
    try:
        debootstrap("directory", part, PACKAGES[suite], [_ADD_USER], suite=suite)
        part.rename(folder)
    except AssertionError as error:
        raise NotRunError(f"mmdebstrap cannot make a system of {suite}: {str(error)[-300:]}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder
