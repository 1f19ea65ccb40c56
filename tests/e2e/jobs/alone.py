"""A script that was written for a group: it says how large the group is, and how many threads torch starts."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(3)
dist.all_reduce(ones)
threads = f"threads {torch.get_num_threads()}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS')}"
print(f"of {dist.get_world_size()}, sum {ones.sum().item():g}, {threads}")
dist.destroy_process_group()
