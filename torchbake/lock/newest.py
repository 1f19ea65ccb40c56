"""Warn of unexpected versions in a lock: pre-releases, and versions that are not the newest."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from torchbake.core.json_text import NotJsonError, read_object
from torchbake.errors import LockError
from torchbake.hostconfig.http_session import fetch_page, index_session
from torchbake.hostconfig.pip_config import PYPI, PipConfig, is_remote
from torchbake.lock.agreement import BUILT_PER_ACCELERATOR
from torchbake.lock.lockfile import Lock, Pin, parse_pins
from torchbake.lock.project_inputs import Kind, kind_of
from torchbake.lock.uv import newest, why_not_installable
from torchbake.lock.yanked import yanked_versions
from torchbake.matrix.spec import ImageSpec

_JSON = "application/vnd.pypi.simple.v1+json"
_ANY_PYTHON = "3.99"
_TRITON_ALONE = Version("3.3")  # the first one without an import of setuptools
_ADD_SETUPTOOLS: Mapping[Kind, str] = {
    "uv": "uv add setuptools",
    "pylock": "require it in the project, and lock again",
    "requirements": "require it, and compile the file again (pip-compile also needs --allow-unsafe)",
    "pyproject": "require it in the project",
}
_TOO_OLD = timedelta(days=2 * 365)


@dataclass(frozen=True, kw_only=True)
class Behind:
    """A package whose locked ``version`` is not the ``latest``; ``no_wheel`` is True if the latest has no wheel."""

    name: str
    version: Version
    latest: Version
    reason: str
    no_wheel: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.version} is not the newest, {self.latest}: {self.reason}"


def odd_versions(spec: ImageSpec, lock: Lock, config: PipConfig, previous: str = "") -> list[str]:
    """Describe the new pre-releases, and the row's packages with an old version, by the indexes.

    A project's lock decides the versions, so of its new versions only yanked ones are described, and a lock without
    setuptools. Raises LockError if a version is far behind the newest because a wheel is missing.
    """
    before = {(pin.name, pin.version) for pin in parse_pins(previous)}
    pins = {name: pin for name, pin in lock.pins.items() if (name, pin.version) not in before}
    if spec.project:
        return [*_without_setuptools(spec, lock, pins), *yanked_versions(spec, lock, pins.values(), config)]
    odd = [
        f"{pin.name} {pin.version} is a pre-release: no other version fits the row as a wheel"
        for pin in pins.values()
        if Version(pin.version).is_prerelease
    ]
    required = [requirement for text in spec.pip if (requirement := Requirement(text)).marker is None]
    names = pins.keys() - BUILT_PER_ACCELERATOR  # torchvision and torchaudio follow torch's version
    own = [requirement for requirement in required if canonicalize_name(requirement.name) in names]
    if not own:
        return odd
    try:
        behind = list(_behind(spec, own, pins, config))
    except LockError as error:
        return [*odd, f"could not ask whether newer versions exist: {error.message.splitlines()[0]}"]
    _check_not_far(spec, behind, config)
    return [*odd, *map(str, behind)]


def _without_setuptools(spec: ImageSpec, lock: Lock, new_pins: Collection[str]) -> list[str]:
    """Describe a lock with a new torch whose torch.compile will fail: on the CPU, and on GPUs with an old Triton.

    `torch.utils.cpp_extension` imports setuptools, and so does Triton before 3.3. Before 2.11, torch requires it only
    for Python 3.12 and later. pip-compile leaves it out as unsafe.
    """
    if not spec.compiler or "torch" not in new_pins or "setuptools" in lock.pins or spec.project is None:
        return []
    triton = lock.pins.get("triton")
    where = "" if triton and Version(triton.version) < _TRITON_ALONE else " on the CPU"
    remedy = _ADD_SETUPTOOLS[kind_of(spec.project.lock)]
    return [f"{spec.project.lock_path} has no setuptools, so torch.compile fails{where}; to add it: {remedy}"]


def _behind(
    spec: ImageSpec, own: Sequence[Requirement], pins: Mapping[str, Pin], config: PipConfig
) -> Iterator[Behind]:
    names = sorted({canonicalize_name(requirement.name) for requirement in own})
    latest = _latest(names, spec, config)
    for requirement in own:
        name = canonicalize_name(requirement.name)
        version = Version(pins[name].version)
        # A row may require an older version.
        if version < latest[name] and requirement.specifier.contains(latest[name]) and not version.is_prerelease:
            reason, no_wheel = _why(name, latest[name], spec, config)
            yield Behind(name=name, version=version, latest=latest[name], reason=reason, no_wheel=no_wheel)


def _check_not_far(spec: ImageSpec, behind: Sequence[Behind], config: PipConfig) -> None:
    """Raise LockError if a missing wheel makes a version another major one, or two years older than the newest."""
    for each in behind:
        if each.no_wheel and (each.version.major != each.latest.major or _is_old(each, config)):
            raise LockError(
                f"matrix.yaml:{spec.line}: {each}",
                hint=f"Make the missing wheels with Python {spec.base.python}: "
                f"`pip wheel --wheel-dir FOLDER {each.name}=={each.latest}`, and add FOLDER to pip's find-links. "
                f"If you want the old version, name it in the matrix: {each.name}=={each.version}",
            )


def _is_old(behind: Behind, config: PipConfig) -> bool:
    times = upload_times(behind.name, config)
    if behind.version not in times or behind.latest not in times:
        return False  # no index has the times, so only the major version counts
    return times[behind.latest] - times[behind.version] >= _TOO_OLD


def _latest(names: Sequence[str], spec: ImageSpec, config: PipConfig) -> dict[str, Version]:
    """Return the newest stable versions, as wheels or as sources, for the row's Python or a later one."""
    here = newest(names, spec.base.python, config, wheels=False, platform=spec.platform)
    try:
        later = newest(names, _ANY_PYTHON, config, wheels=False, platform=spec.platform)
    except LockError:  # every version of a package excludes future versions of Python
        later = here
    return {name: max(Version(here[name]), Version(later[name])) for name in names}


def _why(name: str, latest: Version, spec: ImageSpec, config: PipConfig) -> tuple[str, bool]:
    """Return the reason why the newest version is not taken, and whether it is a missing wheel."""
    python, platform = spec.base.python, spec.platform
    if Version(newest([name], python, config, wheels=False, platform=platform)[name]) < latest:
        return f"newer ones are not for Python {python}", False
    if Version(newest([name], python, config, wheels=True, platform=platform)[name]) < latest:
        return f"newer ones have no wheel for Python {python} on this platform, and locks hold no sources", True
    if reason := why_not_installable(f"{name}=={latest}", python, config, platform):
        return reason, True
    return f"torch {spec.torch}, another package of the row or its own metadata excludes it", False


def upload_times(name: str, config: PipConfig) -> dict[Version, datetime]:
    """Return the first upload of each version of a package; empty if no index has it.

    Only the JSON form of an index has the times:
    https://packaging.python.org/en/latest/specifications/simple-repository-api/
    """
    times: dict[Version, datetime] = {}
    for page in () if config.no_index else _pages(canonicalize_name(name), config):
        for version, time in _times(page):
            times[version] = min(time, times.get(version, time))
    return times


def _pages(name: str, config: PipConfig) -> Iterator[Mapping[str, Any]]:
    """Yield the package's page of each remote index that answers in JSON. Raises HostConfigError for a large page."""
    with index_session(config) as session:
        for index in filter(is_remote, (config.index_url or PYPI, *config.extra_index_urls)):
            with contextlib.suppress(requests.RequestException, OSError, NotJsonError):
                text, _ = fetch_page(f"{index.rstrip('/')}/{name}/", session, accept=_JSON)
                yield read_object(text.encode())


def _times(page: Mapping[str, Any]) -> Iterator[tuple[Version, datetime]]:
    """Yield version and upload time of each file of a page that has both."""
    files = page.get("files")
    for file in files if isinstance(files, list) else ():
        with contextlib.suppress(
            InvalidSdistFilename, InvalidWheelFilename, InvalidVersion, KeyError, TypeError, ValueError
        ):
            time, name = datetime.fromisoformat(str(file["upload-time"])), file["filename"]
            version = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
            yield version, time if time.tzinfo else time.replace(tzinfo=UTC)
