"""Programs of another platform on this machine: the Linux kernel starts them by qemu, if binfmt_misc registers it."""

from pathlib import Path

from torchbake.core.machine import host_platform
from torchbake.core.problem import Problem
from torchbake.ui.command import Command

REGISTERED = Path("/proc/sys/fs/binfmt_misc")
# The machine in the header of an ELF file, two bytes at offset 18, as hex.
# Source: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
_ELF_MACHINE = {"linux/amd64": "3e00", "linux/arm64": "b700"}
_MACHINE_AT = slice(2 * 18, 2 * 20)


def runs(platform: str, registered: Path = REGISTERED) -> bool:
    """Return whether this machine runs programs of a platform, also in containers, which do not contain qemu."""
    if platform == host_platform():
        return True
    return any(_serves(_read(entry), platform) for entry in sorted(registered.glob("*")) if entry.is_file())


def no_emulation(platform: str) -> Problem:
    """Return the problem of a machine that does not run programs of a platform."""
    return Problem(
        reason=f"This machine does not run programs for {platform}.",
        remedy=f"Run: {Command('setup', f'--platform {platform}')}, which installs qemu; or name a builder on such a "
        f"machine: {Command('build', 'ID --builder NAME')}",
    )


def _serves(text: str, platform: str) -> bool:
    """Return whether an entry of binfmt_misc starts programs of a platform.

    With the flag F the kernel keeps the interpreter open, so that containers have it.
    Source: https://docs.kernel.org/admin-guide/binfmt-misc.html
    """
    state, *lines = text.splitlines() or [""]
    fields = dict(line.rstrip().partition(" ")[::2] for line in lines)
    machine = fields.get("magic", "")[_MACHINE_AT]
    return state == "enabled" and machine == _ELF_MACHINE.get(platform) and "F" in fields.get("flags:", "")


def _read(entry: Path) -> str:
    try:
        return entry.read_text()
    except OSError:  # `register` can only be written
        return ""
