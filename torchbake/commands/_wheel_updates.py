"""Newer wheels for locked images, and locked wheels that were withdrawn (yanked), for `update` and `list --due`."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from torchbake.errors import LockError, TorchbakeError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.changes import changed_versions
from torchbake.lock.image_lock import renewed
from torchbake.lock.lockfile import Lock, Pin, format_lock, wheel_package
from torchbake.lock.newest import odd_versions
from torchbake.lock.project_inputs import kind_of
from torchbake.lock.yanked import yank_reasons
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec, pytorch_of
from torchbake.projects.lock import lock_image
from torchbake.projects.outdated import read_or_explain
from torchbake.projects.package_sources import read_package_sources
from torchbake.ui.steps import step

_AT_ONCE = 4  # images in parallel


@dataclass(frozen=True, kw_only=True)
class NewerWheels:
    """An image's lock, and the ``new`` lock that the indexes give today; None if all versions stay.

    ``yanked`` are the reasons of withdrawn versions, by package. ``odd`` are warnings of the new versions.
    """

    old: Lock
    new: Lock | None = None
    yanked: Mapping[str, str] = field(default_factory=dict)
    odd: Sequence[str] = ()

    @property
    def changes(self) -> list[str]:
        """A line for each package with another version; it names the reason if the locked version is yanked."""
        lines = changed_versions(self.old.pins, self.new.pins) if self.new else {}
        return [
            f"{line} ({self.old.pins[name].version} is yanked: {self.yanked[name]})" if name in self.yanked else line
            for name, line in lines.items()
        ]

    @property
    def withdrawn(self) -> list[str]:
        """A line for each yanked version that stays, because no other one fits the matrix or the project's lock."""
        old, new = self.old.pins, (self.new or self.old).pins
        names = (name for name in sorted(self.yanked) if name in new and new[name].version == old[name].version)
        return [f"{name} {old[name].version} is yanked: {self.yanked[name]}" for name in names]


@dataclass(frozen=True, kw_only=True)
class WheelFindings:
    """The answers by the image's id, and the packages for which no index says whether they are yanked."""

    images: Mapping[str, NewerWheels] = field(default_factory=dict)
    unknown: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """Lines on odd new versions, on withdrawn versions that stay, and on packages of which that is not known."""
        lines = [f"{name}: {line}" for name, one in self.images.items() for line in one.odd]
        lines += [f"{name}: {line}; it stays" for name, one in self.images.items() for line in one.withdrawn]
        if self.unknown:
            names = ", ".join(self.unknown)
            lines.append(f"not known whether the locked versions are yanked, as no index answers: {names}")
        return lines


def newer_wheels(project: Project, specs: Sequence[Spec]) -> WheelFindings:
    """Resolve the wheels of images again, and ask for yanked versions.

    The ranges of the matrix decide which versions may change. A project's own lock decides its versions, so only its
    yanked ones are named. Raises one LockError for all images whose wheels cannot be resolved.
    """
    images, config = pytorch_of(specs), read_package_sources(project)
    locks = {spec.id: read_or_explain(project.root, spec) for spec in images}
    with step(f"looking for newer wheels of {len(images)} images"), ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = {spec.id: pool.submit(_renewed, project, spec, locks[spec.id], config) for spec in images}
        answers, failed = dict[str, tuple[Lock | None, list[str]]](), list[str]()
        for name, future in futures.items():
            try:
                answers[name] = future.result()
            except TorchbakeError as error:
                failed.append(f"{name}: {error.message}" + (f"\n  next: {error.hint}" if error.hint else ""))
    if failed:
        raise LockError(
            f"The wheels of {len(failed)} of {len(images)} images cannot be resolved, so nothing is changed:\n  "
            + "\n  ".join(failed),
            hint="To renew Debian packages alone: --only debian",
        )
    with step("asking for withdrawn wheels"):
        yanked, unknown = _yanked(images, locks, config)
    wheels = {
        spec.id: NewerWheels(
            old=locks[spec.id], new=answers[spec.id][0], odd=answers[spec.id][1], yanked=yanked[spec.id]
        )
        for spec in images
    }
    return WheelFindings(images=wheels, unknown=unknown)


def _renewed(project: Project, spec: ImageSpec, old: Lock, config: PipConfig) -> tuple[Lock | None, list[str]]:
    """Return the newer lock of an image, if there is one, with warnings."""
    if spec.project and kind_of(spec.project.lock) != "pyproject":
        return None, []
    text = format_lock(old)
    new = renewed(old, lock_image(project.root, spec, config, previous=text, upgrade=True))
    return new, odd_versions(spec, new, config, text) if new else []


def _yanked(
    images: Sequence[ImageSpec], locks: Mapping[str, Lock], config: PipConfig
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the reasons of yanked versions by image and package, and the packages for which no index answers.

    Each version is asked for once in its indexes.
    """
    groups = dict[tuple[object, tuple[str, ...]], list[ImageSpec]]()
    for spec in images:
        groups.setdefault((spec.project, spec.indexes), []).append(spec)
    result, unknown = dict[str, dict[str, str]](), set[str]()
    for group in groups.values():
        pins = {spec.id: _asked(locks[spec.id]) for spec in group}
        every = list(dict.fromkeys(pin for own in pins.values() for pin in own))
        reasons, silent = yank_reasons(group[0], every, config)
        unknown |= {*silent}
        for spec in group:
            result[spec.id] = {pin.name: reasons[pin] for pin in pins[spec.id] if pin in reasons}
    return result, sorted(unknown)


def _asked(lock: Lock) -> list[Pin]:
    """Return the pins of an index, without the project's own wheels. Equal files have equal pins."""
    own = {*map(wheel_package, lock.wheels)}
    return [
        Pin(name=pin.name, version=pin.version, hashes=pin.hashes) for pin in lock.pins.values() if pin.name not in own
    ]
