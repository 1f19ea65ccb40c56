"""Connects all ranks at the address of torch's env:// variables, without torch, whose import takes two core-seconds.

Rank 0 adds up the ranks that connect to it; each rank prints its identity and the sum as one JSON line.
"""

import contextlib
import json
import os
import socket
import time

LIMIT = 60  # seconds until all must have come
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# The next port, because a torchrun that starts the ranks has its store on MASTER_PORT.
master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1


def gather() -> int:
    """On rank 0: wait for all other ranks, send each the sum of the ranks, and return the sum."""
    with socket.create_server(("", port)) as server:
        server.settimeout(LIMIT)
        others = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(other.makefile("r").readline()) for other in others)
    for other in others:
        other.sendall(f"{total}\n".encode())
        other.close()
    return total


def go() -> int:
    """On any other rank: send the rank to rank 0, and return the sum that it answers."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((master, port), timeout=LIMIT) as there:
            there.sendall(f"{rank}\n".encode())
            return int(there.makefile("r").readline())
        time.sleep(0.1)
    raise SystemExit(f"rank {rank}: nobody is at {master}:{port}")


total = go() if rank else gather()
found = {"rank": rank, "local_rank": int(os.environ["LOCAL_RANK"]), "world": world, "sum": total}
os.write(1, (json.dumps(found) + "\n").encode())
