"""The ranks that measure together: all ranks of the job, or only this process."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from ..payloads.device import find_device
from ..payloads.group import BACKENDS, MOST_BYTES, gather_json, leave_group, start_group
from .failure import Failure, OutOfMemory

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RankInfo:
    """This process is ``rank`` of ``size`` processes, ``local`` of them on this node, and computes on ``device``."""

    rank: int
    size: int
    local: int
    device: torch.device

    @property
    def many(self) -> bool:
        return self.size > 1

    def gather(self, value: T, kind: type[T], *, most_bytes: int = MOST_BYTES) -> list[T]:
        """Return every rank's value, by rank. Raises Wrong on all ranks, see `gather_json`."""
        return gather_json(value, kind, self.device, most_bytes) if self.many else [value]

    def agree(self, reason: str, *, out_of_memory: bool = False) -> None:
        """Raise Failure on all ranks if one of them has a reason; OutOfMemory if that rank lacks memory."""
        reports = self.gather((socket.gethostname(), reason, out_of_memory), tuple[str, str, bool])
        for rank, (host, why, lacking) in enumerate(reports):
            if why:
                kind = OutOfMemory if lacking else Failure
                raise kind(why if rank == self.rank else f"Rank {rank} on {host}: {why}")

    def wait(self) -> None:
        """Wait until all ranks have called this."""
        if self.many:
            dist.barrier()


@contextmanager
def open_ranks(device_name: str, backend: str = "") -> Iterator[RankInfo]:
    """Join all ranks in one group; GPUs use the given backend. Raises NotRun if the device is missing."""
    device = find_device("cuda" if device_name == "gpu" else device_name)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        choice = backend if backend and device.type == "cuda" else BACKENDS[device.type]
        start_group(choice, device)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    yield RankInfo(rank=int(os.environ.get("RANK", "0")), size=size, local=local, device=device)
    if size > 1:
        leave_group(device)
