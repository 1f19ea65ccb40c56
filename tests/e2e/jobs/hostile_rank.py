"""Rank 1 sends what no `smoke` or `bench` sends; rank 0 gathers with theirs, and prints how each round ended.

Rank 1 speaks as torch's collectives for objects do: the length first, then the bytes. The first round is a pickle that
makes the file /tmp/hostile when it is read.
"""

import json
import os
import pickle
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

MARK = Path("/tmp/hostile")


class Hostile:
    """Pickled, it is a call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(MARK),)


ROUNDS = {
    "a pickle": pickle.dumps(Hostile()),
    "another type": b'{"host": "a"}',
    "another length": b'["a", ["b"], "c"]',
    "deeply nested": b"[" * 100_000,
    "an endless number": b'["a", [' + b"9" * 5000 + b"]]",
}
LENGTHS = {"too much": 1 << 40, "nothing": 0, "less than nothing": -1}
OWN = ("rank 0", ["is here"])


def send(data: bytes) -> None:
    """Take part in rank 0's gathering with these bytes."""
    length = announce(len(data))
    parts = [torch.empty(length, dtype=torch.uint8) for _ in range(2)]
    dist.all_gather(parts, torch.frombuffer(bytearray(data.ljust(length)), dtype=torch.uint8))


def announce(length: int) -> int:
    """Say how many bytes come; returns the most that a rank has."""
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(lengths, torch.tensor([length]))
    return max(int(each) for each in lengths)


def attack() -> None:
    for data in ROUNDS.values():
        send(data)
    for length in LENGTHS.values():
        announce(length)
    send(json.dumps(OWN).encode())


def gather(of: Any, kind: Any, wrong: type[Exception]) -> str:
    try:
        return json.dumps(of.gather(OWN, kind))
    except wrong as error:
        return str(error)


def main() -> None:
    SourceFileLoader("bench", f"{sys.argv[1]}/bench").load_module()  # lets its packages be imported as it does
    wrong = import_module("toolbox.payloads.verdict").Wrong
    dist.init_process_group("gloo")
    rank, device = dist.get_rank(), torch.device("cpu")
    group = import_module("toolbox.payloads.group").RankGroup(rank, 2, device)
    ranks = import_module("toolbox.throughput.ranks").RankInfo(rank=rank, size=2, local=2, device=device)
    for of in (group, ranks):
        if rank == 1:
            attack()
            continue
        for name in (*ROUNDS, *LENGTHS, "what smoke sends"):
            print(json.dumps([name, gather(of, tuple[str, list[str]], wrong)]))
    dist.barrier()
    if rank == 0:
        print(json.dumps(["executed", MARK.exists()]), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # a thread of gloo that still runs when Python ends would abort the process


main()
