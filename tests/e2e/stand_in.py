"""A wheel in torch's place, small, and for any Python: what installs wheels, or reads their versions, does the same."""

import zipfile
from pathlib import Path

_INFO = "torch-2.13.0+cpu.dist-info"
_FILES = {
    "torch/__init__.py": "from torch import version\nfrom torch.version import __version__\n",
    "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None\n",
    f"{_INFO}/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n",
    f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
_FILES[f"{_INFO}/RECORD"] = "".join(f"{name},,\n" for name in (*_FILES, f"{_INFO}/RECORD"))


def torch_wheel(folder: Path) -> Path:
    """Put it into the folder, which is for `PIP_FIND_LINKS`."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "torch-2.13.0+cpu-py3-none-any.whl", "w") as wheel:
        for name, content in _FILES.items():
            # Of one time, so that its digest is the same each time, and what is built of it is in the build cache.
            wheel.writestr(zipfile.ZipInfo(name), content)
    return folder
