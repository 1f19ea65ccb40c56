"""The wheels that build a project's own packages: ``[build-system] requires``, resolved when locking."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from torchbake.core.files import read_text
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.lock.uv import UvRequest, resolve


def pins_of_build(
    root: Path, folders: Sequence[str], python: str, config: PipConfig, *, previous: str = ""
) -> tuple[Pin, ...]:
    """Return pins of the build requirements of packages in ``folders``, relative to the project's folder ``root``.

    ``previous`` are pins, a line each, that are kept if they fit. Raises LockError if a pyproject.toml is not valid, or
    if the requirements have no wheels.
    """
    requirements = sorted({text for folder in folders for text in _requires(root / folder / "pyproject.toml")})
    if not requirements:
        return ()
    return resolve(UvRequest(requirements=tuple(requirements), python=python, preferred=previous), config)


def _requires(path: Path) -> tuple[str, ...]:
    """Return ``[build-system] requires``; setuptools if there is no such table (PEP 517)."""
    hint = "A package of the project has a pyproject.toml with a [build-system]."
    try:
        table = tomllib.loads(read_text(path)).get("build-system", {"requires": ["setuptools"]})
        return tuple(map(str, table["requires"]))
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8 text'}.", hint=hint) from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise LockError(f"{path}: has no valid [build-system]: {error}.", hint=hint) from None
