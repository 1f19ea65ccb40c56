"""Releases take turns: one at a time for a repository, among all users of this machine."""

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from torchbake.registry import Registry

_THREADS: dict[str, threading.Lock] = {}


@contextlib.contextmanager
def locked(registry: Registry) -> Iterator[None]:
    """One release at a time for a repository, among all users of this machine.

    A registry has no lock of its own: releases from several machines are put in a row by their CI (docs/tags.md).
    """
    name = sha256(str(registry.repository).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"torchbake-release-{name}.lock")
    with _THREADS.setdefault(name, threading.Lock()):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
