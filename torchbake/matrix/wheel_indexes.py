"""Where an accelerator's own wheels are: an index that matrix.yaml names, or the one that the host names in its place.

PyPI's torch is the one for CUDA, so the CPU's comes from elsewhere. Whatever the host's pip looks in is asked first.
"""

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from torchbake.errors import HostConfigError
from torchbake.matrix.accelerator import Accelerator

_PREFIX = "TORCHBAKE_INDEX_"
_LOGIN = re.compile(r"//.*@")  # a message shows none


def read_indexes(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The indexes that the host names, by variable; an empty one is not set. Raises HostConfigError."""
    named = {key: tuple(value.split()) for key, value in environ.items() if key.startswith(_PREFIX) and value.split()}
    for key, urls in named.items():
        for url in urls:
            if not _is_address(url):
                raise HostConfigError(
                    f"{key}: {_LOGIN.sub('//', url)!r} is not an http or https address of an index.",
                    hint="Wheels in a folder of this host: name it in pip's find-links.",
                )
    return named


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def most_exact(
    accelerator: Accelerator, named: Mapping[str, tuple[str, ...]], key: Callable[[str], str] = str
) -> tuple[str, ...]:
    """The indexes of the most exact of the accelerator's names; ``key`` is under which key a name stands."""
    return next((named[key(name)] for name in reversed(accelerator.names) if key(name) in named), ())


def variable(name: str) -> str:
    """The variable for an accelerator by one of its names: ``cuda12.8`` is TORCHBAKE_INDEX_CUDA12_8."""
    return _PREFIX + name.upper().replace(".", "_")
