"""Indexes with the wheels of one accelerator, from matrix.yaml or from a variable of the host, which replaces them.

PyPI's torch is for CUDA, so the CPU's torch comes from another index. The sources of the host's pip are asked first.
"""

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from torchbake.errors import HostConfigError
from torchbake.matrix.accelerator import Accelerator

_PREFIX = "TORCHBAKE_INDEX_"
_LOGIN = re.compile(r"//.*@")  # hidden in messages


def read_indexes(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the host's indexes by variable. An empty variable counts as not set. Raises HostConfigError."""
    names = {key: tuple(value.split()) for key, value in environ.items() if key.startswith(_PREFIX) and value.split()}
    for key, urls in names.items():
        for url in urls:
            if not _is_address(url):
                raise HostConfigError(
                    f"{key}: {_LOGIN.sub('//', url)!r} is not an http or https address of an index.",
                    hint="For wheels in a folder of this host, name the folder in pip's find-links.",
                )
    return names


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def most_exact(
    accelerator: Accelerator, indexes: Mapping[str, tuple[str, ...]], key: Callable[[str], str] = str
) -> tuple[str, ...]:
    """Return the indexes of the accelerator's most exact name in ``indexes``; ``key`` turns a name into a key of it."""
    return next((indexes[key(name)] for name in reversed(accelerator.names) if key(name) in indexes), ())


def variable(name: str) -> str:
    """Return the variable for a name of an accelerator: TORCHBAKE_INDEX_CUDA12_8 for ``cuda12.8``."""
    return _PREFIX + name.upper().replace(".", "_")
