"""All ranks of the job, or this process alone: who measures together, and what all of them saw."""

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
class Ranks:
    """``size`` processes, of which ``local`` are on this node; this one is ``rank``, and computes on ``device``."""

    rank: int
    size: int
    local: int
    device: torch.device

    @property
    def many(self) -> bool:
        return self.size > 1

    def gather(self, value: T, kind: type[T], *, most_bytes: int = MOST_BYTES) -> list[T]:
        """Every rank's value, by rank. Raises Wrong on all ranks, see `gather_json`."""
        if not self.many:
            return [value]
        return gather_json(value, kind, self.device, most_bytes)

    def agree(self, reason: str, *, out_of_memory: bool = False) -> None:
        """Raise Failure on all ranks if one of them has a reason; OutOfMemory if that rank lacks memory."""
        told = self.gather((socket.gethostname(), reason, out_of_memory), tuple[str, str, bool])
        for rank, (host, why, lacking) in enumerate(told):
            if why:
                kind = OutOfMemory if lacking else Failure
                raise kind(why if rank == self.rank else f"Rank {rank} on {host}: {why}")

    def wait(self) -> None:
        """Until all are here."""
        if self.many:
            dist.barrier()


@contextmanager
def open_ranks(device_name: str, backend: str = "") -> Iterator[Ranks]:
    """All ranks in one group, on GPUs by the given backend. Raises NotRun if the device is not there."""
    device = find_device("cuda" if device_name == "gpu" else device_name)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        chosen = backend if backend and device.type == "cuda" else BACKENDS[device.type]
        start_group(chosen, device)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    yield Ranks(rank=int(os.environ.get("RANK", "0")), size=size, local=local, device=device)
    if size > 1:
        leave_group(device)
