"""The platform of this machine."""

import platform

_CPUS = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7"}  # Go's names of architectures; others are alike


def host_platform() -> str:
    """Return the platform of this machine, whose containers run Linux, such as ``linux/amd64``."""
    return f"linux/{architecture_of(platform.machine())}"


def architecture_of(machine: str) -> str:
    """Return the architecture of images for a machine as the kernel names it: ``amd64`` for ``x86_64``."""
    return _CPUS.get(machine, machine)
