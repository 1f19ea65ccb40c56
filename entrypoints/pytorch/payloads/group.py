"""The process group of a payload: started from the contract's variables, and left by all ranks together."""

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from .device import open_device
from .exchange import decode, encode
from .verdict import Checks, NotRun, Wrong, expect

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_PAUSE_SECONDS = 0.1
_GROUP_TIMEOUT = 600  # seconds; the default of `run`
MOST_BYTES = 1 << 20  # of one rank's message
T = TypeVar("T")


@dataclass(frozen=True)
class RankGroup:
    """This rank, the number of all ranks, and this rank's device."""

    rank: int
    size: int
    device: torch.device

    def gather(self, value: T, kind: type[T]) -> list[T]:
        """Return every rank's value, by rank. Raises Wrong on all ranks, see `gather_json`."""
        return gather_json(value, kind, self.device)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Raise Wrong on every rank if the block raises it on one rank, so that all stay in step.

        The block itself must not use collectives.
        """
        text = ""
        try:
            yield
        except Wrong as wrong:
            text = str(wrong)
        for rank, failure in enumerate(self.gather(text, str)):
            if failure:
                raise Wrong(f"rank {rank}: {failure}")


@contextmanager
def open_group(checks: Checks, device_name: str, turn: int = 0) -> Iterator[RankGroup]:
    """Join all ranks of the job, or only this process, in a group; at its end rank 0 receives all ranks' failures.

    ``turn`` is the number of earlier groups of these ranks, in other processes. Raises NotRun if the device or the
    backend is missing.
    """
    device = open_device(device_name)
    backend = BACKENDS[device.type]
    if not dist.is_available():
        raise NotRun("this torch is built without torch.distributed")
    if not dist.is_backend_available(backend):
        raise NotRun(f"this torch is built without {backend}")
    with checks("start"):
        start_group(backend, device, turn)
    group = RankGroup(dist.get_rank(), dist.get_world_size(), device)
    checks.figures |= {"backend": backend, "world": group.size}
    yield group
    _hear_all(checks, group)
    leave_group(device)


def start_group(backend: str, device: torch.device, turn: int = 0) -> None:
    """Start the group of all ranks of the job, or of this process alone. Raises Wrong if its size or rank is wrong."""
    timeout = timedelta(seconds=float(os.environ.get("GROUP_TIMEOUT", _GROUP_TIMEOUT)))
    bound = device if device.type == "cuda" else None  # else NCCL guesses the GPU from the rank
    if "RANK" in os.environ and turn:
        store, rank, size = _store_of(turn, timeout)
        own = dist.PrefixStore(f"torchbake/{turn}", store)  # one store may serve all turns: torchrun's
        dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=timeout, device_id=bound)
    elif "RANK" in os.environ:
        dist.init_process_group(backend, timeout=timeout, device_id=bound)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout, device_id=bound)
    for name, value in (("RANK", dist.get_rank()), ("WORLD_SIZE", dist.get_world_size())):
        expected = os.environ.get(name)
        expect(expected in (None, str(value)), f"{name} is {expected}, and the group says {value}")


def _store_of(turn: int, timeout: timedelta) -> tuple[dist.Store, int, int]:
    """Return the store of this turn, this rank and the number of ranks. Raises RuntimeError after the timeout.

    The store of the last turn answers on the same port until its process on rank 0 has ended. So rank 0 writes the
    number of the turn into its store, and the others connect again until they read it.
    """
    sign, deadline = f"torchbake/turn/{turn}", time.monotonic() + timeout.total_seconds()
    while True:
        try:
            store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
            if rank == 0:
                store.set(sign, "here")
            if store.check([sign]):
                return store, rank, size
            trouble = RuntimeError(f"rank 0 has no store for group {turn + 1} of this job")
        except RuntimeError as error:  # rank 0's process of the last turn has ended
            trouble = error
        if time.monotonic() > deadline:
            raise trouble
        time.sleep(_PAUSE_SECONDS)


def gather_json(value: T, kind: type[T], device: torch.device, most_bytes: int = MOST_BYTES) -> list[T]:
    """Return every rank's value, by rank.

    Raises Wrong, on all ranks alike, if a rank sends more than ``most_bytes``, or anything but JSON of that type.
    """
    place = device if dist.get_backend() == "nccl" else torch.device("cpu")  # gloo takes the memory of the host
    data = encode(value)
    lengths = [int(length) for length in _all_gather(torch.tensor([len(data)], device=place))]
    for rank, length in enumerate(lengths):
        within = 0 < length <= most_bytes
        expect(within, f"the message of rank {rank} has {length} bytes, and may have 1 to {most_bytes}")
    padded = torch.frombuffer(bytearray(data.ljust(max(lengths))), dtype=torch.uint8).to(place)
    values = []
    for rank, (length, part) in enumerate(zip(lengths, _all_gather(padded), strict=True)):
        try:
            values.append(decode(part[:length].cpu().numpy().tobytes(), kind))
        except ValueError as error:
            hint = "start the same command of one image as every rank"
            raise Wrong(f"the message of rank {rank} is {error}: {hint}") from None
    return values


def _all_gather(own: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return parts


def leave_group(device: torch.device) -> None:
    """Leave the group after all ranks have called this function."""
    dist.barrier()  # no rank leaves while another one still sends to it
    if device.type != "cpu":  # gloo's end can wait for ever for a thread that waits for Python
        dist.destroy_process_group()


def _hear_all(checks: Checks, group: RankGroup) -> None:
    """Add the failures of all ranks to those of rank 0, which prints the verdict."""
    try:
        reports = group.gather((socket.gethostname(), list(checks.failures)), tuple[str, list[str]])
    except Wrong as wrong:
        checks.failures.append(str(wrong))
        return
    if group.rank == 0:
        for rank, (host, failures) in enumerate(reports[1:], start=1):
            new = [failure for failure in failures if failure not in checks.failures]
            checks.failures += [f"rank {rank} on {host}: {failure}" for failure in new]


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of the bits of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def expect_equal_models(group: RankGroup, model: nn.Module, when: str) -> str:
    """Return the common fingerprint of all ranks' models. Raises Wrong if they differ."""
    prints = group.gather(fingerprint(model), str)
    others = [rank for rank, one in enumerate(prints) if one != prints[0]]
    expect(not others, f"{when}, the parameters of rank {', '.join(map(str, others))} are not those of rank 0")
    return prints[0]
