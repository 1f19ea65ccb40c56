"""``images/builder.lock``: uv for the builder stage, in the version that also resolves the locks."""

from pathlib import Path

from torchbake.core.files import write_text
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import differences_of
from torchbake.lock.lockfile import Lock, assign_layers, format_lock, parse_lock, read_lock_text
from torchbake.lock.uv import UvRequest, resolve
from torchbake.ui.command import Command
from torchbake.ui.steps import step

_AGAIN = f"Make it again, and read what changed: {Command('lock', 'all --upgrade-builder')}"


def builder_lock_path(root: Path) -> Path:
    return root / "images" / "builder.lock"


def builder_lock_text(root: Path) -> str:
    """Read the lock's text. Raises LockError if there is no lock, or if it holds more than uv."""
    path = builder_lock_path(root)
    text = read_lock_text(path, "all")
    lock = parse_lock(text, str(path))
    locked = [f"{pin.name}=={pin.version}" for pin in lock.pins.values()]
    if locked != [lock.inputs] or set(lock.pins) != {"uv"}:
        raise LockError(f"{path}: holds {', '.join(locked)}, but must hold uv alone.", hint=_AGAIN)
    return text


def read_builder_lock(root: Path) -> Lock:
    """Read the lock. Raises LockError if there is no lock, or if it holds more than uv."""
    return parse_lock(builder_lock_text(root), str(builder_lock_path(root)))


def make_builder_lock(root: Path, config: PipConfig, *, upgrade: bool = False) -> bool:
    """Lock uv, unless it is locked, and return whether the file changed. Raises LockError."""
    path = builder_lock_path(root)
    if path.exists() and not upgrade:
        return False
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms that a run with a lock need not spend

    with step("locking uv for the builders"):
        text = format_lock(_lock(f"uv=={version('uv')}", config))
    if path.exists() and read_lock_text(path, "all") == text:
        return False
    write_text(path, text)
    return True


def check_builder_online(lock: Lock, config: PipConfig) -> None:
    """Raise LockError unless the indexes serve every locked file."""
    differences = differences_of(lock, _lock(lock.inputs, config))
    if differences:
        raise LockError(f"images/builder.lock: {differences[0]}.", hint=_AGAIN)


def _lock(requirement: str, config: PipConfig) -> Lock:
    pins = resolve(UvRequest(requirements=(requirement,), python="3.11"), config)
    return Lock(inputs=requirement, layers=assign_layers(pins))
