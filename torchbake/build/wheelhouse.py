"""Wheels in folders of the host, found by their hashes in a lock and handed to builds as a context.

Folders and ``file:`` indexes cannot be reached from inside a build, and sending all of them would take
long, so just the wheels that a lock names are laid out, one folder a layer.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urldefrag

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchbake.core.digest import digest
from torchbake.core.files import replacing
from torchbake.lock.lockfile import Pin

_HREF = re.compile(r'href="([^"]+\.whl(?:#[^"]*)?)"', flags=re.IGNORECASE)


def stage_wheels(layers: Mapping[str, Iterable[Pin]], folders: Iterable[Path], python: str, state: Path) -> Path | None:
    """A folder with, for each layer, the locked wheels that ``folders`` hold; None when they hold none.

    Links where it can, copies where it must. The same wheels give the same folder.
    """
    places = tuple(folders)
    found = {
        layer: wheels
        for layer, pins in layers.items()
        if (wheels := [wheel for pin in pins if (wheel := find_wheel(pin, places, python))])
    }
    if not found:
        return None
    names = [f"{layer}/{wheel}" for layer, wheels in found.items() for wheel in wheels]
    target = state / "wheels" / digest(names).removeprefix("sha256:")[:16]
    for layer in layers:
        (target / layer).mkdir(parents=True, exist_ok=True)
        for wheel in found.get(layer, []):
            _link(wheel, target / layer / wheel.name)
    return target


def find_wheel(pin: Pin, folders: Iterable[Path], python: str) -> Path | None:
    """The wheel of a pin for Linux on x86-64 and ``python``, by name, version and hash."""
    for folder in folders:
        for path, known_hash in _candidates(folder, pin.name):
            if _fits(path.name, pin, python) and (known_hash or _sha256(path)) in pin.hashes:
                return path
    return None


def _candidates(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Wheels of one name in a flat folder, or in a simple index (PEP 503); with a hash where the index has it."""
    index = folder / name / "index.html"
    if index.is_file():
        for href in _HREF.findall(index.read_text(errors="replace")):
            url, fragment = urldefrag(href)
            path = Path(os.path.normpath(index.parent / unquote(url)))
            if "://" not in url and path.is_file():
                yield path, fragment.replace("=", ":") if fragment.startswith("sha256=") else ""
    for path in folder.glob("*.whl"):
        if canonicalize_name(path.name.split("-")[0]) == name:
            yield path, ""


def _fits(filename: str, pin: Pin, python: str) -> bool:
    try:
        _, version, _, tags = parse_wheel_filename(filename)
        wanted = Version(pin.version)
    except (InvalidWheelFilename, InvalidVersion):
        return False
    return version == wanted and any(
        _runs_on(tag, python)
        and (tag.platform == "any" or tag.platform.endswith("linux_x86_64") or "manylinux" in tag.platform)
        and ("linux" not in tag.platform or tag.platform.endswith("x86_64"))
        for tag in tags
    )


def _runs_on(tag: Tag, python: str) -> bool:
    """Whether the tag is for this CPython; cp313t, without the GIL, is another one."""
    short = python.replace(".", "")
    if tag.interpreter in ("py3", f"py{short}"):
        return tag.abi == "none"
    if tag.interpreter == f"cp{short}":
        return tag.abi in (tag.interpreter, "abi3", "none")
    older = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    return tag.abi == "abi3" and older is not None and int(older[1]) <= int(python.partition(".")[2])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        with replacing(target) as beside:
            shutil.copy2(source, beside)
