"""Make, read and check the locks of images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig, without_login
from torchbake.lock.agreement import check_agreement, requirements_of
from torchbake.lock.lockfile import Lock, Pin, assign_layers, format_lock, parse_lock, parse_pins, read_lock_text
from torchbake.lock.project_inputs import project_digest
from torchbake.lock.uv import MissingWheelError, UvRequest, resolve, uv_platform
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.matrix.wheel_indexes import variable
from torchbake.ui.command import Command


class Versioned(Protocol):
    """A package of one version."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...


Result = TypeVar("Result")


def lock_path(root: Path, spec: Spec) -> Path:
    return root / "images" / spec.id / "requirements.lock"


class OutdatedLockError(LockError):
    """A ``lock`` that was made from other inputs than those of ``now``."""

    def __init__(self, message: str, *, hint: str, lock: Lock, now: str) -> None:
        super().__init__(message, hint=hint)
        self.lock = lock
        self.now = now


def inputs_of(spec: ImageSpec, digest: str = "") -> str:
    """Return all inputs of a lock, on one line. A lock with another line in its header is out of date.

    ``digest`` is that of the project, if the row has one. The indexes are the matrix's, never a mirror of the host, so
    that the lock names the public source of its wheels.
    """
    indexes = (f"indexes {' '.join(spec.indexes)}",) if spec.indexes else ()
    return "; ".join((*_wheels(spec, digest), f"python {spec.base.python}", uv_platform(spec.platform), *indexes))


def _wheels(spec: ImageSpec, digest: str) -> tuple[str, ...]:
    if spec.project is None:
        return (" ".join(requirements_of(spec)),)
    package = (spec.project.package,) if spec.project.package else ()
    choices = {"package": package, "groups": spec.project.groups, "extras": spec.project.extras}
    texts = (f"{key} {' '.join(sorted(names))}" for key, names in choices.items() if names)
    return (f"project {spec.project.lock_path} {digest}", *texts)


def read_lock(root: Path, spec: ImageSpec) -> Lock:
    """Read an image's lock. Raises LockError if it is missing or damaged, or does not fit the row.

    Raises OutdatedLockError if its inputs changed.
    """
    path = lock_path(root, spec)
    lock = parse_lock(read_lock_text(path, spec.id), str(path))
    now = inputs_of(spec, project_digest(root, spec.project, lock.packages) if spec.project else "")
    if lock.inputs != now:
        changed = "the project or the matrix" if spec.project else "the matrix"
        raise OutdatedLockError(
            f"{path}: is out of date: {changed} changed.\n  locked: {lock.inputs}\n  matrix: {now}",
            hint=f"Make it again: {Command('lock', spec.id)}",
            lock=lock,
            now=now,
        )
    check_agreement(spec, lock)
    return lock


def find_lock(root: Path, spec: Spec) -> Lock | None:
    """Read the lock of any image; None for an init image, which has no lock. Raises LockError."""
    return read_lock(root, spec) if isinstance(spec, ImageSpec) else None


def lock_text(root: Path, spec: Spec) -> str:
    """Read the text of an image's lock without checks; empty if there is none. Raises LockError if it is not text."""
    path = lock_path(root, spec)
    return read_lock_text(path, spec.id) if spec.has_torch and path.exists() else ""


def make_lock(spec: ImageSpec, config: PipConfig, *, previous: str = "", upgrade: bool = False) -> Lock:
    """Resolve an image's wheels. Pins of ``previous`` are kept if they fit, unless ``upgrade``.

    The accelerator's indexes are used only if the host's own indexes and folders do not suffice. Raises LockError if
    no versions fit, or if the wheels do not fit the row.
    """
    before = () if upgrade else parse_pins(previous)
    question = UvRequest(
        requirements=requirements_of(spec), python=spec.base.python, preferred=unhashed(before), platform=spec.platform
    )

    def make(sources: PipConfig) -> Lock:
        pins = without_cpu_wheels(spec, lambda exclude: resolve(question, sources, exclude=exclude), tuple)
        lock = Lock(inputs=inputs_of(spec), layers=assign_layers(_keep_hashes(pins, before)))
        check_agreement(spec, lock)
        return lock

    return with_more_indexes(spec, config, make)


def renewed(old: Lock, new: Lock) -> Lock | None:
    """Return a newer lock with the hashes of ``old`` for each version that stays; None if all versions stay.

    Raises LockError if a version that stays has other files now.
    """
    if {name: pin.version for name, pin in old.pins.items()} == {name: pin.version for name, pin in new.pins.items()}:
        return None
    pins = {pin.name: pin for pin in _keep_hashes(tuple(new.pins.values()), tuple(old.pins.values()))}
    return replace(new, layers={layer: tuple(pins[pin.name] for pin in each) for layer, each in new.layers.items()})


def with_more_indexes(spec: ImageSpec, config: PipConfig, make: Callable[[PipConfig], Lock]) -> Lock:
    """Make a lock by the host's own indexes and folders, and if these do not suffice also by those of the accelerator.

    Raises the LockError of ``make``, or one with both messages.
    """
    indexes = () if config.no_index else config.instead(spec) or spec.indexes
    failures = list[LockError]()
    for sources in (config, config.with_indexes(indexes)) if indexes else (config,):
        try:
            return make(sources)
        except LockError as error:
            failures.append(error)
    first, last = failures[0], failures[-1]
    if last.message == first.message:
        raise first
    wheel = f"{first.hint} " if isinstance(first, MissingWheelError) else ""
    raise LockError(
        f"{first.message}\n  and with {', '.join(map(without_login, indexes))}, the index of "
        f"matrix.yaml:{spec.line} for {spec.accelerator}: {last.message}",
        hint=f"{wheel}If that index cannot be reached: set {variable(str(spec.accelerator))} to a mirror of it, or "
        "name a folder that holds the wheels in pip's find-links. Else correct the row.",
    )


def without_cpu_wheels(
    spec: ImageSpec, find: Callable[[Sequence[str]], Result], packages_of: Callable[[Result], Iterable[Versioned]]
) -> Result:
    """Find packages. For a CUDA row, find them again without each CPU wheel among them.

    ``2.13.0+cpu`` is newer than ``2.13.0``, so a folder with CPU wheels would take precedence for each CUDA row.
    """
    exclude: list[str] = []
    while True:
        result = find(exclude)
        cpu = [f"{each.name}!={each.version}" for each in packages_of(result) if each.version.endswith("+cpu")]
        if spec.accelerator.kind == "cpu" or not {*cpu} - {*exclude}:
            return result
        exclude += cpu


def unhashed(pins: Iterable[Pin]) -> str:
    """Format pins without hashes. With hashes the resolver would return pins that no index serves."""
    return "".join(f"{pin.name}=={pin.version}\n" for pin in pins)


def check_online(spec: ImageSpec, lock: Lock, config: PipConfig) -> None:
    """Resolve again with the locked versions preferred. Raises LockError if the result is another lock."""
    new_lock = make_lock(spec, config, previous=unhashed(lock.pins.values()))
    differences = differences_of(lock, new_lock)
    if differences:
        raise LockError(
            "\n  ".join((f"{spec.id}: the lock does not follow from its inputs:", *differences)),
            hint=f"Make it again: {Command('lock', spec.id)}. If that does not help: remove the lock first.",
        )


def differences_of(lock: Lock, newer: Lock) -> list[str]:
    """Describe the pins of a lock that differ from a new resolution, ``newer``."""
    locked, pins = lock.pins, newer.pins
    lines = [f"{name} {locked[name].version}: is not required" for name in sorted(locked.keys() - pins.keys())]
    lines += [f"{name} {pins[name].version}: is missing" for name in sorted(pins.keys() - locked.keys())]
    for name in sorted(locked.keys() & pins.keys()):
        pin, other = locked[name], pins[name]
        if pin.version != other.version:
            lines.append(f"{name} {pin.version}: does not fit, {other.version} does")
        elif set(pin.hashes) - set(other.hashes):  # the index may have more files by now
            lines.append(f"{name} {pin.version}: no index serves {min(set(pin.hashes) - set(other.hashes))}")
        elif pin.via != other.via:
            lines.append(f"{name} {pin.version}: is required by {', '.join(other.via) or 'the row itself'}")
    return lines


def format_checked(spec: ImageSpec, lock: Lock) -> str:
    """Return the lock's text. Raises LockError if the text is read back as another lock."""
    text = format_lock(lock)
    if parse_lock(text, spec.id) != lock:
        raise LockError(f"{spec.id}: the lock's text is read as another lock.", hint="Please report this.")
    return text


def _keep_hashes(pins: tuple[Pin, ...], previous: tuple[Pin, ...]) -> tuple[Pin, ...]:
    """Keep the hashes of pins whose version did not change, so that locking again does not change the lock.

    An index may add files to a release. Raises LockError if none of the locked hashes is served: the files of a release
    never change, so the new files are from another source.
    """
    before = {(pin.name, pin.version): pin.hashes for pin in previous}
    kept_pins = []
    for pin in pins:
        hashes = before.get((pin.name, pin.version)) or pin.hashes
        if not set(hashes) & set(pin.hashes):
            raise LockError(
                f"{pin.name} {pin.version}: no file has a locked hash; one has {pin.hashes[0]}.",
                hint="Name the index that it was locked from, or trust these files: lock with --upgrade.",
            )
        kept_pins.append(replace(pin, hashes=hashes))
    return tuple(kept_pins)
