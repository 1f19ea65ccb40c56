"""The two places that jobs die in when they are full: shared memory and the temporary folder."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .launch_error import Code, LaunchError

SMALL_SHM = 64 * 2**20  # the default of container engines


@dataclass(frozen=True, kw_only=True)
class Space:
    """Bytes: of /dev/shm in all and free (None where there is none), free in the temporary folder."""

    shm: int | None
    shm_free: int | None
    temporary: Path
    temporary_free: int

    @property
    def sentence(self) -> str:
        if self.shm is None:
            shm = "no /dev/shm"
        else:
            shm = f"/dev/shm {size(self.shm)}"
            if self.shm <= SMALL_SHM:
                shm += " (small: loaders with workers and NCCL need more, docker run --shm-size=1g)"
        return f"{shm}, {self.temporary} {size(self.temporary_free)} free"


def look(temporary: Path) -> Space:
    """Look at both. Raises LaunchError when nothing can be written to the temporary folder."""
    try:
        with tempfile.TemporaryFile(dir=temporary) as probe:
            probe.write(b"0")
            probe.flush()
        free = os.statvfs(temporary)
    except OSError as error:
        raise LaunchError(
            Code.NO_SPACE,
            f"nothing can be written to the temporary folder {temporary} ({error.strerror}): "
            "mount a writable one there, or name another by TMPDIR.",
        ) from None
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        shm = None
    return Space(
        shm=shm.f_blocks * shm.f_frsize if shm else None,
        shm_free=shm.f_bavail * shm.f_frsize if shm else None,
        temporary=temporary,
        temporary_free=free.f_bavail * free.f_frsize,
    )


def size(count: int) -> str:
    """Bytes for people: ``64 MB`` counts 2**20, as --shm-size does."""
    for unit, power in (("GB", 30), ("MB", 20)):
        if count >= 2**power:
            value = count / 2**power
            return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
    return f"{count // 1024} kB"
