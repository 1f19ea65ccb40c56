"""The file system of a machine with launchers, made from Debian packages; nothing is installed on this host.

It is made once and cached, under a name with a hash of its packages and settings.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from torchbake.hostconfig.apt_archives import DEBIAN_KEYS, debian
from torchbake.hostconfig.apt_config import apt_conf, read_apt_config

SUITE = "trixie"
# No release of Debian has Apptainer, but SUITE has all its dependencies.
_LATER = "sid"
_SLURM = ("slurmctld", "slurmd", "slurm-client", "munge", "apptainer", "squashfuse")
_SWARM = ("docker.io", "docker-cli", "iptables")
PACKAGES = (*_SLURM, *_SWARM, "docker-compose", "iproute2")
PODMAN = ("podman", "crun", "netavark", "aardvark-dns", "catatonit", "nftables", "iproute2")
KINDS = {"machine": PACKAGES, "podman": PODMAN}
USER, UID = "ann", 1500
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
_SECONDS = 900


class NoLauncherError(Exception):
    """A launcher is not available on this host; the message says why."""


def tree(tools: Path, kind: str = "machine") -> Path:
    """Return the read-only folder of one of KINDS below ``tools``; make it if needed. Raises NoLauncherError."""
    packages = KINDS[kind]
    made_of = repr((SUITE, packages, USER, UID, _LEFT_OUT)).encode()
    folder = tools / f"{kind}-{hashlib.sha256(made_of).hexdigest()[:12]}"
    if not folder.exists():
        _check()
        for old in tools.glob(f"{kind}-*"):
            shutil.rmtree(old)
        _make(folder, packages)
    return folder


def _check() -> None:
    if os.geteuid() != 0:
        raise NoLauncherError("only root can make a machine of Debian's packages")
    if not shutil.which("mmdebstrap"):
        raise NoLauncherError("mmdebstrap is not installed: apt-get install mmdebstrap")


def _make(folder: Path, packages: Sequence[str]) -> None:
    """Make the tree in a temporary folder and rename it at the end, so that a partial tree is never used."""
    part = folder.with_name(f"{folder.name.split('-')[0]}-part-{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    apt = read_apt_config()
    archives = debian(apt).one_line(SUITE)
    later = archives[0].replace(f" {SUITE} ", f" {_LATER} ")
    lines = "\n".join([*archives, later, ""])
    try:
        process = subprocess.run(
            _command(part, packages, apt_conf(apt, ca=None)), input=lines, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_SECONDS, check=False,
        )  # fmt: skip
        if process.returncode:
            last = [line for line in process.stdout.splitlines() if line.startswith("E:")][-1:]
            raise NoLauncherError(f"mmdebstrap does not make a machine: {' '.join(last) or process.stdout[-300:]}")
        part.rename(folder)
    except subprocess.TimeoutExpired:
        raise NoLauncherError(f"mmdebstrap made no machine within {_SECONDS} s") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _command(folder: Path, packages: Sequence[str], settings: str) -> list[str]:
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    command += [f"--aptopt={line}" for line in settings.splitlines()]
    # Packages in both suites come from SUITE. Valid-Until is ignored, as a mirror's index of sid may be old.
    command += [f'--aptopt=APT::Default-Release "/^{SUITE}(-|$)/"', '--aptopt=Acquire::Check-Valid-Until "false"']
    command += [f"--keyring={DEBIAN_KEYS}"] if Path(DEBIAN_KEYS).exists() else []
    command += [f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT]
    command += [f'--customize-hook=chroot "$1" useradd --create-home --uid {UID} {USER}']
    return [*command, SUITE, str(folder), "-"]
