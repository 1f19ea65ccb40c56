"""A job of many small all_reduces in which one rank meets a fault: `steps.py FAULT RANK`.

FAULT is none, raise, exit, kill, segfault, hang, stop (frozen by SIGSTOP) or ignore-term.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

fault, victim = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", timeout=timedelta(minutes=5))  # some ranks may load torch long after others
dist.barrier()
group = dist.new_group(timeout=timedelta(seconds=int(os.environ["GROUP_TIMEOUT"])))
rank = dist.get_rank()
if fault == "ignore-term":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"rank {rank} of {dist.get_world_size()} is up, on {os.environ.get('GLOO_SOCKET_IFNAME')}", flush=True)
for step in range(int(os.environ.get("STEPS", "15"))):
    if step == 5 and rank == victim:
        print(f"rank {rank} meets {fault} at {time.time():.3f}", flush=True)
        if fault == "raise":
            raise ValueError("the loss is not a number")
        if fault == "exit":
            sys.exit(7)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(600)
        if fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
    value = torch.ones(4) * rank
    dist.all_reduce(value, group=group)
    time.sleep(0.2)
dist.barrier(group=group)
dist.destroy_process_group()
print(f"rank {rank} is done", flush=True)
