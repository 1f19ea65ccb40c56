"""Entries in a virtual environment for the wheels that an image has outside of it.

uv looks for installed packages only in the environment's own folder. An entry is a `.dist-info` folder with links to
the metadata of such a wheel, so that uv does not install the package again. Its RECORD names the entry alone: an
installer that uninstalls the package removes the entry, and no file of the wheel.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from .records import record_row, sorted_rows

# Files that installers and Python read of an installed package, without RECORD and INSTALLER. NVIDIA's wheels have no
# entry points. torchrun and triton find their plugins by those of torch and triton.
_LINKED = ("METADATA", "WHEEL")
_ENTRY_POINTS = "entry_points.txt"
INSTALLER = "torchbake"
_PIN = re.compile(r"^([a-z0-9-]+)==([^\s\\]+)", flags=re.MULTILINE)


def pins(lock: str) -> list[tuple[str, str]]:
    """Return the names and versions in a list of wheels."""
    return _PIN.findall(lock)


def write_entries(site: Path, root: str, wheels: Iterable[tuple[str, str]]) -> None:
    """Write an entry into ``site`` for each wheel, a name and a version, with its files below ``root`` in the image."""
    for name, version in wheels:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        (site / info).mkdir(parents=True)
        linked = _LINKED if name.startswith("nvidia-") else (*_LINKED, _ENTRY_POINTS)
        for file in linked:
            (site / info / file).symlink_to(f"{root}/{info}/{file}")
        (site / info / "INSTALLER").write_text(INSTALLER)
        rows = [[f"{info}/{file}", "", ""] for file in (*linked, "RECORD")]
        (site / info / "RECORD").write_text(sorted_rows([*rows, record_row(site, f"{info}/INSTALLER")]))
