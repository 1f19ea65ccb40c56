"""Locking an image: exact wheels, checked against what its row promises."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig, without_login
from torchbake.lock.agreement import check_agreement, requirements_of
from torchbake.lock.lockfile import Lock, Pin, assign_layers, format_lock, parse_lock, parse_pins, read_lock_text
from torchbake.lock.uv import PLATFORM, Question, resolve
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.matrix.wheel_indexes import variable


def lock_path(root: Path, spec: Spec) -> Path:
    return root / "images" / spec.id / "requirements.lock"


def inputs_of(spec: ImageSpec) -> str:
    """Return all inputs of a lock, on one line. A lock with another line in its header is out of date.

    Its indexes are those of the matrix, never a builder's mirror, so that the lock alone says where its wheels are.
    """
    indexes = (f"indexes {' '.join(spec.indexes)}",) if spec.indexes else ()
    return "; ".join((" ".join(requirements_of(spec)), f"python {spec.base.python}", PLATFORM, *indexes))


def read_lock(root: Path, spec: ImageSpec) -> Lock:
    """The committed lock of an image. Raises LockError: missing, unreadable, out of date, or disagreeing."""
    path = lock_path(root, spec)
    lock = parse_lock(read_lock_text(path, spec.id), str(path))
    if lock.inputs != inputs_of(spec):
        raise LockError(
            f"{path}: is out of date: the matrix changed.\n  locked: {lock.inputs}\n  matrix: {inputs_of(spec)}",
            hint=f"Make it again: nox -s lock -- {spec.id}",
        )
    check_agreement(spec, lock)
    return lock


def find_lock(root: Path, spec: Spec) -> Lock | None:
    """The same of any image; None for an init image, which has no lock."""
    return read_lock(root, spec) if isinstance(spec, ImageSpec) else None


def lock_text(root: Path, spec: Spec) -> str:
    """An image's lock as it lies there, true or not; empty where there is none. Raises LockError for no text."""
    path = lock_path(root, spec)
    return read_lock_text(path, spec.id) if spec.has_torch and path.exists() else ""


def make_lock(spec: ImageSpec, config: PipConfig, *, previous: str = "", upgrade: bool = False) -> Lock:
    """Resolve an image's wheels. Pins of ``previous`` are kept where they fit, unless ``upgrade``.

    The host's own sources are asked first, and the accelerator's indexes only where those do not do. Raises LockError
    when nothing fits, or when the wheels disagree with the row.
    """
    indexes = () if config.no_index else config.instead(spec) or spec.indexes
    try:
        return _lock_from(spec, config, previous=previous, upgrade=upgrade)
    except LockError as error:
        if not indexes:
            raise
        first = error
    try:
        return _lock_from(spec, config.with_indexes(indexes), previous=previous, upgrade=upgrade)
    except LockError as error:
        raise _with_indexes_too(spec, indexes, first, error) from None


def _lock_from(spec: ImageSpec, config: PipConfig, *, previous: str, upgrade: bool) -> Lock:
    before = () if upgrade else parse_pins(previous)
    question = Question(requirements=requirements_of(spec), python=spec.base.python, preferred=_versions(before))
    pins = _keep_hashes(_resolve_for(spec, question, config), before)
    lock = Lock(inputs=inputs_of(spec), layers=assign_layers(pins))
    check_agreement(spec, lock)
    return lock


def _versions(pins: Iterable[Pin]) -> str:
    """Pins without hashes: the resolver would hand back what it is handed, whether anybody serves it or not."""
    return "".join(f"{pin.name}=={pin.version}\n" for pin in pins)


def check_online(spec: ImageSpec, lock: Lock, config: PipConfig) -> None:
    """Resolve anew with the locked versions preferred. Raises LockError unless the lock is what comes of it."""
    found = make_lock(spec, config, previous=_versions(lock.pins.values()))
    differences = differences_of(lock, found)
    if differences:
        raise LockError(
            "\n  ".join((f"{spec.id}: the lock does not follow from its inputs:", *differences)),
            hint=f"Make it again: nox -s lock -- {spec.id}. If that does not help: remove the lock first.",
        )


def differences_of(lock: Lock, found: Lock) -> list[str]:
    """What of a lock a new resolution does not bear out."""
    locked, served = lock.pins, found.pins
    said = [f"{name} {locked[name].version}: nothing asks for it" for name in sorted(locked.keys() - served.keys())]
    said += [
        f"{name} {served[name].version}: is asked for and missing" for name in sorted(served.keys() - locked.keys())
    ]
    for name in sorted(locked.keys() & served.keys()):
        pin, other = locked[name], served[name]
        if pin.version != other.version:
            said.append(f"{name} {pin.version}: does not fit, {other.version} does")
        elif set(pin.hashes) - set(other.hashes):  # an index may have gained files since
            said.append(f"{name} {pin.version}: no index serves {min(set(pin.hashes) - set(other.hashes))}")
        elif pin.via != other.via:
            said.append(f"{name} {pin.version}: is needed by {', '.join(other.via) or 'the row itself'}")
    return said


def format_checked(spec: ImageSpec, lock: Lock) -> str:
    """The lock's text, read back once to be sure that it says the same."""
    text = format_lock(lock)
    if parse_lock(text, spec.id) != lock:
        raise LockError(f"{spec.id}: the lock does not survive being written.", hint="Please report this.")
    return text


def _with_indexes_too(spec: ImageSpec, indexes: tuple[str, ...], first: LockError, second: LockError) -> LockError:
    named = ", ".join(map(without_login, indexes))
    return LockError(
        f"{first.message}\n  and with {named}, where matrix.yaml:{spec.line} has wheels for {spec.accelerator} from: "
        f"{second.message}",
        hint=f"If it cannot be reached: set {variable(str(spec.accelerator))} to a mirror of it, or name a folder that "
        "holds the wheels in pip's find-links. Else correct the row.",
    )


def _resolve_for(spec: ImageSpec, question: Question, config: PipConfig) -> tuple[Pin, ...]:
    """Resolve; on a CUDA row, ask again without each CPU wheel that turned up.

    ``2.13.0+cpu`` sorts above ``2.13.0``, so a wheel folder with CPU wheels would win every CUDA row.
    """
    exclude: list[str] = []
    while True:
        pins = resolve(question, config, exclude=exclude)
        foreign = [pin for pin in pins if spec.accelerator.kind == "cuda" and pin.version.endswith("+cpu")]
        if not foreign:
            return pins
        exclude += [f"{pin.name}!={pin.version}" for pin in foreign]


def _keep_hashes(pins: tuple[Pin, ...], previous: tuple[Pin, ...]) -> tuple[Pin, ...]:
    """An index may gain files of a version that is locked already; an unchanged pin keeps its hashes,

    as long as one of them is still served, so that locking again changes nothing. Raises LockError where none is: a
    release's files do not change, so it is another source, or another's work.
    """
    before = {(pin.name, pin.version): pin.hashes for pin in previous}
    kept = []
    for pin in pins:
        hashes = before.get((pin.name, pin.version)) or pin.hashes
        if not set(hashes) & set(pin.hashes):
            raise LockError(
                f"{pin.name} {pin.version} is there, but with none of the locked hashes: {pin.hashes[0]} for one.",
                hint="Look for it where it was locked from; or trust these files: lock with --upgrade.",
            )
        kept.append(replace(pin, hashes=hashes))
    return tuple(kept)
