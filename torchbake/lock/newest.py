"""Versions that a lock takes and nobody would expect: pre-releases, and ones behind the newest."""

from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.agreement import BUILT_PER_ACCELERATOR
from torchbake.lock.lockfile import Lock, Pin, parse_pins
from torchbake.lock.uv import newest
from torchbake.matrix.spec import ImageSpec

_ANY_PYTHON = "3.99"


def odd_versions(spec: ImageSpec, lock: Lock, config: PipConfig, previous: str = "") -> list[str]:
    """A sentence for each of the row's own packages whose newly taken version is odd. Asks the indexes."""
    before = {(pin.name, pin.version) for pin in parse_pins(previous)}
    taken = {name: pin for name, pin in lock.pins.items() if (name, pin.version) not in before}
    odd = [
        f"{pin.name} {pin.version} is a pre-release: no other version fits the row as a wheel"
        for pin in taken.values()
        if Version(pin.version).is_prerelease
    ]
    asked = [requirement for text in spec.pip if (requirement := Requirement(text)).marker is None]
    names = taken.keys() - BUILT_PER_ACCELERATOR  # torchvision and torchaudio are torch's own versions
    own = [requirement for requirement in asked if canonicalize_name(requirement.name) in names]
    if not own:
        return odd
    try:
        return odd + _behind(spec, own, taken, config)
    except LockError as error:
        return [*odd, f"could not ask whether newer versions exist: {error.message.splitlines()[0]}"]


def _behind(spec: ImageSpec, own: Sequence[Requirement], taken: Mapping[str, Pin], config: PipConfig) -> list[str]:
    names = sorted({canonicalize_name(requirement.name) for requirement in own})
    latest = _latest(names, spec, config)
    found = []
    for requirement in own:
        name = canonicalize_name(requirement.name)
        version = Version(taken[name].version)
        # A row that names an older version has it on purpose.
        if version < latest[name] and requirement.specifier.contains(latest[name]) and not version.is_prerelease:
            why = _why(name, latest[name], spec, config)
            found.append(f"{name} {version} is not the newest, {latest[name]}: {why}")
    return found


def _latest(names: Sequence[str], spec: ImageSpec, config: PipConfig) -> dict[str, Version]:
    """The newest stable versions, as wheels or as sources, for the row's Python or a later one."""
    here = newest(names, spec.base.python, config, wheels=False)
    try:
        later = newest(names, _ANY_PYTHON, config, wheels=False)
    except LockError:  # one of them says of every version which Python is too new for it
        later = here
    return {name: max(Version(here[name]), Version(later[name])) for name in names}


def _why(name: str, latest: Version, spec: ImageSpec, config: PipConfig) -> str:
    python = spec.base.python
    if Version(newest([name], python, config, wheels=False)[name]) < latest:
        return f"newer ones are not for Python {python}"
    if Version(newest([name], python, config, wheels=True)[name]) < latest:
        return f"newer ones have no wheel for Python {python} on this platform, and locks hold no sources"
    return f"torch {spec.torch}, another package of the row, or what it says of itself holds it back"
