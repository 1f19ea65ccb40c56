"""All ranks meet where the variables of torch's env:// say, without torch, which takes a core two seconds in each rank.

Rank 0 adds up the ranks that come to it; each prints who it is and the sum, as one JSON line.
"""

import contextlib
import json
import os
import socket
import time

LIMIT = 60  # seconds until all must have come
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# The next port: on its own a torchrun around the ranks has a store.
master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1


def gather() -> int:
    """What rank 0 does: the sum, once all are there, which each is told."""
    with socket.create_server(("", port)) as server:
        server.settimeout(LIMIT)
        others = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(other.makefile("r").readline()) for other in others)
    for other in others:
        other.sendall(f"{total}\n".encode())
        other.close()
    return total


def go() -> int:
    """What any other rank does."""
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
