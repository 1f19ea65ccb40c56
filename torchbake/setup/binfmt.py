"""Register qemu in the kernel, as systemd does at boot, for a machine without systemd."""

import contextlib
import subprocess
from pathlib import Path

from torchbake.engine.emulation import REGISTERED

# Packages of qemu put a line for `register` here. Source: https://www.freedesktop.org/software/systemd/man/binfmt.d.html
_CONFIGURED = Path("/usr/lib/binfmt.d")
_QEMU_NAMES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def mount() -> None:
    """Mount binfmt_misc if it is not mounted. If the kernel has none, `register` fails."""
    if not (REGISTERED / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", REGISTERED], capture_output=True, check=False)


def register(platform: str, configured: Path = _CONFIGURED, registered: Path = REGISTERED) -> None:
    """Register the installed qemu for a platform in the kernel. Raises OSError."""
    conf = configured / f"qemu-{_QEMU_NAMES[platform]}.conf"
    for line in conf.read_text().splitlines():
        if line.startswith(":"):  # others are comments
            with contextlib.suppress(FileExistsError):  # it is registered
                (registered / "register").write_text(line)
