"""Print the installed packages by their metadata, without importing any. One JSON document on stdout."""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH116

import json
import os
import platform
import sys
from importlib.metadata import Distribution, distributions


def markers() -> dict[str, str]:
    """https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers"""
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def wrong_records(value: Distribution) -> list[str]:
    """Files that are not as the wheel's RECORD says: gone, or of another size."""
    wrong = []
    for file in value.files or ():
        try:
            size = os.stat(file.locate()).st_size
        except OSError:
            wrong.append(f"{file} is not there")
        else:
            if file.size is not None and file.size != size:
                wrong.append(f"{file} has {size} bytes, not {file.size}")
    return wrong


def modules(value: Distribution) -> list[str]:
    """The names that it brings to import."""
    names = set((value.read_text("top_level.txt") or "").split())
    if not names:
        for file in value.files or ():
            top = file.parts[0]
            if len(file.parts) > 1 and file.parts[1] == "__init__.py":
                names.add(top)
            elif len(file.parts) == 1 and top.endswith(".py"):
                names.add(top[: -len(".py")])
    return sorted(name for name in names if name.isidentifier() and not name.startswith("_"))


def package(value: Distribution) -> dict[str, object]:
    return {
        "name": value.metadata["Name"],
        "version": value.version,
        "requires": value.requires or [],
        "modules": modules(value),
        "wrong_records": wrong_records(value),
    }


def is_entry(value: Distribution) -> bool:
    """Return True for an entry of the virtual environment for a wheel that is elsewhere."""
    return value.read_text("INSTALLER") == "torchbake"


if __name__ == "__main__":
    found = list(distributions())
    packages = [package(value) for value in found if not is_entry(value)]
    entries = [str(value.metadata["Name"]) for value in found if is_entry(value)]
    json.dump(
        {"packages": packages, "entries": entries, "markers": markers(), "path": [path for path in sys.path if path]},
        sys.stdout,
    )
