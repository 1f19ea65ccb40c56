"""Fits a linear model on all ranks; each rank has different data, and prints its results as one JSON line.

Gradients are averaged and steps are taken by hand: torch's wrapper and optimizers load its compiler, for another
core-second in each rank. The wrapper is tested by ddp.py, by the payload `ddp` of `smoke` and by examples/ddp.
"""

import hashlib
import json
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ.get("GROUP_TIMEOUT", "60"))))
rank, world = dist.get_rank(), dist.get_world_size()
dist.all_reduce(torch.ones(1))
reduced = time.time()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(rank))
targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
losses = []
for _ in range(20):
    loss = (model(inputs) - targets).square().mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for value, gradient in zip(model.parameters(), gradients, strict=True):
            dist.all_reduce(gradient)
            value.sub_(0.1 * gradient / world)
    losses.append(float(loss.detach()))
total = torch.tensor(rank)
dist.all_reduce(total)
content = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
dist.barrier()
dist.destroy_process_group()
found = {
    "rank": rank, "local_rank": int(os.environ["LOCAL_RANK"]), "world": world, "sum": int(total),
    "falls": losses[-1] < losses[0] / 10, "parameters": hashlib.sha256(content).hexdigest(),
    "reduced": reduced,
}  # fmt: skip
os.write(1, (json.dumps(found) + "\n").encode())
os._exit(0)  # gloo's threads live on with the model, and Python's end may abort when it meets them
