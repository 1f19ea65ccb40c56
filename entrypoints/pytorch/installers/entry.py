"""The entry of torch in an image's virtual environment, by which installers see it (`layers/wheels/entries.py`).

An entry can get the label that a project's lock gives torch. Installers such as uv compare versions with their labels,
and PyPI's 2.10.0 is the same torch as 2.10.0+cu128 of PyTorch's index.
"""

import importlib.util
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from .judge import ImageTorch

INSTALLER = "torchbake"
_VERSION = re.compile(r"^Version: .*$", flags=re.MULTILINE)
_BUILD = re.compile(r"^__version__ = ['\"]([^'\"]+)['\"]", flags=re.MULTILINE)
_LINE = re.compile(r"^torch===?\S+$", flags=re.MULTILINE)


def entries(site: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the name, version and folder of each entry in an environment's site-packages."""
    for folder in sorted(site.glob("*.dist-info")):
        installer = folder / "INSTALLER"
        if installer.is_file() and installer.read_text().strip() == INSTALLER:
            name, _, version = folder.name.removesuffix(".dist-info").partition("-")
            yield name.replace("_", "-").lower(), version, folder


def image_torch(site: Path) -> ImageTorch | None:
    """Return the image's torch; None if the environment has no entry of it, as another torch took its place."""
    packages = {name: version for name, version, _ in entries(site)}
    code = importlib.util.find_spec("torch")  # imports nothing
    if "torch" not in packages or not code or not code.origin:
        return None
    build = _BUILD.search(Path(code.origin).with_name("version.py").read_text())
    return ImageTorch(build=build[1] if build else packages["torch"], packages=packages)


def relabel(site: Path, version: str, constraints: Iterable[Path]) -> None:
    """Give torch's entry another version, and so the files of ``constraints`` that name one. Raises OSError."""
    old = next(folder for name, _, folder in entries(site) if name == "torch")
    new = site / f"torch-{version}.dist-info"
    if new == old:
        return
    shutil.copytree(old, new, ignore_dangling_symlinks=True)  # copies of the metadata, not links to it
    metadata = new / "METADATA"
    metadata.write_text(_VERSION.sub(f"Version: {version}", metadata.read_text(), count=1))
    rows = [f"{new.name}/{path.name},,\n" for path in sorted(new.iterdir())]
    (new / "RECORD").write_text("".join(rows))
    shutil.rmtree(old)
    exactly = "==" if "+" in version else "==="  # `==2.10.0` would also accept 2.10.0+cpu
    for file in constraints:
        file.write_text(_LINE.sub(f"torch{exactly}{version}", file.read_text()))
