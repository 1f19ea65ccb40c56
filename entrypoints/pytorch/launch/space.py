"""The free space in shared memory and in the temporary folder: jobs fail when one is full."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .launch_error import Code, LaunchError

SMALL_SHM = 64 * 2**20  # the default of container engines


@dataclass(frozen=True, kw_only=True)
class Space:
    """The size of /dev/shm and the free bytes in it (None without one), and the free bytes of the temporary folder."""

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
    """Measure both. Raises LaunchError if the temporary folder is not writable."""
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
    """Format bytes: ``64 MB`` is 64 * 2**20, as for --shm-size."""
    for unit, power in (("GB", 30), ("MB", 20)):
        if count >= 2**power:
            value = count / 2**power
            return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
    return f"{count // 1024} kB"
