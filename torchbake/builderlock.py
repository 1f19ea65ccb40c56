"""``images/builder.lock``: the builder's own tool, uv, in the version that also resolves."""

from pathlib import Path

from torchbake.errors import LockError
from torchbake.files import write_text
from torchbake.lockfile import Lock, assign_layers, format_lock
from torchbake.mirrors import PipConfig
from torchbake.resolver import Question, resolve


def builder_lock_path(root: Path) -> Path:
    return root / "images" / "builder.lock"


def builder_lock_text(root: Path) -> str:
    """Raises LockError when there is none."""
    path = builder_lock_path(root)
    if not path.exists():
        raise LockError(f"{path}: there is no lock of the builder's own tool.", hint="Make it: nox -s lock -- all")
    return path.read_text()


def make_builder_lock(root: Path, config: PipConfig, *, upgrade: bool = False) -> None:
    """Lock uv, unless it is locked already. Raises LockError."""
    if builder_lock_path(root).exists() and not upgrade:
        return
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms that a run with a lock need not spend

    requirement = f"uv=={version('uv')}"
    pins = resolve(Question(requirements=(requirement,), python="3.11"), config)
    write_text(builder_lock_path(root), format_lock(Lock(inputs=requirement, layers=assign_layers(pins))))
