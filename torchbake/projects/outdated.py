"""Why the lock of an image is out of date: the packages that changed in its project's lock."""

from collections.abc import Iterator
from pathlib import Path

from torchbake.errors import LockError
from torchbake.lock.changes import describe_changes
from torchbake.lock.image_lock import OutdatedLockError, lock_path, read_lock
from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import ImageSpec, ProjectSpec


def read_or_explain(root: Path, spec: ImageSpec) -> Lock:
    """Read an image's lock. Raises LockError; if the project's lock changed, the message names the packages."""
    try:
        return read_lock(root, spec)
    except OutdatedLockError as error:
        if spec.project is None:
            raise
        lock, hint = lock_path(root, spec).relative_to(root), error.hint
        try:
            reason = "; ".join(_changes(root, spec, spec.project, error)) or "the matrix changed"
        except LockError as failure:  # the project's own lock must be corrected first
            reason, hint = failure.message.partition("\n")[0].rstrip("."), failure.hint
        raise LockError(f"{reason}; {lock} is out of date.", hint=hint) from None


def _changes(root: Path, spec: ImageSpec, project: ProjectSpec, error: OutdatedLockError) -> Iterator[str]:
    """Yield the inputs that changed: ``trainer/uv.lock: numpy 2.1.0 → 2.2.0``, ``groups: serve → none``."""
    was, now = (dict(part.partition(" ")[::2] for part in text.split("; ")) for text in (error.lock.inputs, error.now))
    for key in sorted({*was, *now}):
        if was.get(key) == now.get(key):
            continue
        if key == "project" and was.get(key, "").partition(" ")[0] == project.lock_path:
            yield _package_changes(root, spec, project, error.lock)
        else:
            yield f"{key}: {was.get(key, 'none')} → {now.get(key, 'none')}"


def _package_changes(root: Path, spec: ImageSpec, project: ProjectSpec, lock: Lock) -> str:
    from torchbake.projects.read import read_versions  # noqa: PLC0415 - 30 ms that only a lock out of date needs

    versions = read_versions(root, project, spec.base.python)
    if versions is None:
        return f"{project.lock_path}: changed"
    changes = describe_changes(lock.pins.values(), versions)
    return f"{project.lock_path}: {changes or 'changed, with the same packages'}"
