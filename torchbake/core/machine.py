"""The platform of this machine."""

import platform

_CPUS = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7"}  # Go's names of architectures; others are alike


def host_platform() -> str:
    """Return the platform of this machine, whose containers run Linux, such as ``linux/amd64``."""
    machine = platform.machine()
    return f"linux/{_CPUS.get(machine, machine)}"
