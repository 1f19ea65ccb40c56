"""Small projects with locks of invented files, and an index of tiny wheels for one of them."""

import hashlib
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from tests.unit.conftest import image
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import format_checked, lock_path
from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import ImageSpec, ProjectSpec
from torchbake.projects.lock import lock_image

TRAINER = Path(__file__).parent / "trainer"
SWITCH = TRAINER.with_name("switch")  # its extras choose torch's accelerator


def copy_projects(root: Path) -> Path:
    """Copy the projects to a matrix's folder, and return it."""
    for project in (TRAINER, SWITCH):
        shutil.copytree(project, root / project.name)
    return root


def trainer_image(
    lock: str = "uv.lock", *, accelerator: str = "cuda12.8", pip: tuple[str, ...] = (), **changes: Any
) -> ImageSpec:
    """Return an image of a project; ``changes`` are of its ProjectSpec, and with ``spec_`` in their names of itself."""
    of_spec = {key.removeprefix("spec_"): changes.pop(key) for key in [*changes] if key.startswith("spec_")}
    project = ProjectSpec(**{"folder": "trainer", "lock": lock, **changes})
    return image(**{"torch": "2.10.0", "accelerator": accelerator, "pip": pip, "project": project, **of_spec})


def index_of(root: Path) -> PipConfig:
    """Return the settings of a host that has the index in a matrix's folder."""
    return PipConfig(index_url=(root / "simple").as_uri())


def write_lock(root: Path, spec: ImageSpec) -> Lock:
    """Lock an image, and write its lock as the command does."""
    lock = lock_image(root, spec, index_of(root))
    path = lock_path(root, spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_checked(spec, lock))
    return lock


def make_index(root: Path) -> None:
    """Write the index in a matrix's folder: tiny wheels of the project's packages and of its build requirements."""
    locked = tomllib.loads((TRAINER / "uv.lock").read_text())["package"]
    packages = {
        each["name"]: (each["version"], [one["name"] for one in each.get("dependencies", ())])
        for each in locked
        if "registry" in each["source"]
    }
    packages |= {"hatchling": ("1.28.0", []), "uv-build": ("0.9.6", [])}
    for name, (version, requires) in packages.items():
        add_wheel(root / "simple", name, version, [each for each in requires if each != "colorama"])


def add_wheel(folder: Path, name: str, version: str, requires: list[str]) -> str:
    """Add a tiny wheel to a simple index, and return its hash (``sha256:…``)."""
    stem = f"{name.replace('-', '_')}-{version}"
    page = folder / name
    page.mkdir(parents=True, exist_ok=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    wheel = page / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>\n'
    with (page / "index.html").open("a") as file:
        file.write(link)
    return f"sha256:{digest}"
