"""Locked wheels for hosts, from folders of this machine, or downloaded for hosts without an index."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from torchbake.build.wheelhouse import stage_wheels
from torchbake.errors import HostError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Lock, Pin
from torchbake.lock.wheel_tags import wheel_platforms
from torchbake.matrix.spec import ImageSpec
from torchbake.ui.tool_environment import environment_of


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """The folder with the locked wheels of an image (None if there are none), and the missing packages."""

    folder: Path | None
    missing: tuple[str, ...]


def find_wheels(spec: ImageSpec, lock: Lock, folders: Sequence[Path], state: Path) -> Wheels:
    """Find the wheels of a lock in folders."""
    path = stage_wheels({spec.id: lock.pins.values()}, folders, spec.base.python, state, platform=spec.platform)
    folder = path / spec.id if path else None
    return Wheels(folder=folder, missing=missing_of(lock, folder))


def missing_of(lock: Lock, folder: Path | None) -> tuple[str, ...]:
    """Return the packages of a lock without a wheel in the folder."""
    there = {canonicalize_name(path.name.split("-")[0]) for path in folder.glob("*.whl")} if folder else set()
    return tuple(name for name in sorted(lock.pins) if name not in there)


def download(spec: ImageSpec, pins: Iterable[Pin], pip: PipConfig, folder: Path) -> None:
    """Download the wheels of pins into a folder by this machine's pip and its settings. Raises HostError.

    The download may take minutes, so pip's output is shown on stderr.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements(pins))
        file.flush()
        command = [*_pip(), *download_words(spec, Path(file.name), folder)]
        env = pip_environment(spec, pip, environment_of("pip"))
        if subprocess.run(command, env=env, stdout=2, check=False).returncode:
            raise HostError(
                f"{spec.id}: not every wheel of its lock could be downloaded; see pip's messages above.",
                hint="Name a folder that has them: --wheelhouse FOLDER",
            )


def requirements(pins: Iterable[Pin]) -> str:
    """Return the text of a requirements file with hashes."""
    return "".join(f"{pin.name}=={pin.version} {' '.join(f'--hash={each}' for each in pin.hashes)}\n" for pin in pins)


def download_words(spec: ImageSpec, file: Path, folder: Path) -> tuple[str, ...]:
    """Return the arguments of pip. Each platform is named, as pip accepts only wheels of named platforms."""
    platforms = (word for name in wheel_platforms(spec.platform) for word in ("--platform", name))
    target = ("--python-version", spec.base.python, "--implementation", "cp", *platforms)
    exact = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    files = ("--dest", str(folder), "--requirement", str(file))
    return ("download", "--disable-pip-version-check", *exact, *target, *files)


def pip_environment(spec: ImageSpec, pip: PipConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Add the accelerator's indexes to pip's settings by a variable, as an argument would show a password."""
    more = () if pip.no_index else pip.instead(spec) or spec.indexes
    return {**environ, "PIP_EXTRA_INDEX_URL": " ".join((*pip.for_image(spec).extra_index_urls, *more))}


def _pip() -> tuple[str, ...]:
    if importlib.util.find_spec("pip"):
        return (sys.executable, "-m", "pip")
    text = shutil.which("pip3") or shutil.which("pip")
    if text is None:
        raise HostError(
            "Downloading wheels needs pip, which is not installed.", hint="Name a folder: --wheelhouse FOLDER"
        )
    return (text,)
