"""Training that can go on: `lasting.py STEPS [CODE]`, of a step each tenth of a second, which is an all_reduce.

Rank 0 saves every 50th step, and the one at which any rank was asked to stop by SIGTERM: then all end with 143. With a
CODE the last rank ends with it after its fifth step. /data/steps has for each step that is done when, and its number.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

STOPPED = 128 + signal.SIGTERM
data = Path("/data")
asked: list[bool] = []
steps, code = int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0


def save(step: int) -> None:
    beside = data / "saved.new"
    beside.write_text(str(step))
    beside.replace(data / "saved")


signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
# Torch's default is half an hour.
dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ.get("GROUP_TIMEOUT", "1800"))))
rank, last = dist.get_rank(), dist.get_world_size() - 1
(data / f"pid-{rank}").write_text(str(os.getpid()))
first = int((data / "saved").read_text()) if (data / "saved").exists() else 0
stops = torch.zeros(1)
for step in range(first + 1, steps + 1):
    stops = torch.tensor([float(bool(asked))])
    dist.all_reduce(stops)
    if rank == 0:
        with (data / "steps").open("a") as file:
            file.write(f"{time.time()} {step}\n")
        if step % 50 == 0 or step == steps or stops:
            save(step)
    if code and rank == last and step == 5:
        os._exit(code)
    if stops:
        break
    time.sleep(0.1)
dist.barrier()  # no rank leaves before all ranks know that the job stops
print(f"rank {rank} ends", flush=True)
os._exit(STOPPED if stops else 0)
