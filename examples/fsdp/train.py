"""Fully sharded training (FSDP2): each rank holds its part of the weights, gradients and optimizer.

A model without sharding learns from the same data, for comparison. Exit code 0: it learned, and both are the same;
else 1.
"""

import argparse
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

TOLERANCE = 1e-3  # gradients are summed in another order


def main() -> int:
    options = arguments()
    device = join()
    plain, sharded = make_model(options, device), make_model(options, device)
    for block in sharded.children():  # each is gathered only while it computes
        if isinstance(block, Block):
            fully_shard(block)
    fully_shard(sharded)
    error = train(sharded, options, device, share=True)
    train(plain, options, device, share=False)
    code = verdict(plain, sharded, error, options.goal)
    dist.barrier()  # no rank leaves while another one still sends to it
    dist.destroy_process_group()
    return code


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--goal", type=float, default=0.1, help="the mean square error that is low enough")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def join() -> torch.device:
    """Join the process group by the variables of `run`, and return this rank's device."""
    timeout = timedelta(seconds=int(os.environ.get("GROUP_TIMEOUT", "600")))
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timeout, device_id=device)
    return device


class Block(nn.Module):
    """A block of a residual net, as in large models; each block is sharded separately."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def make_model(options: argparse.Namespace, device: torch.device) -> nn.Sequential:
    """Make the model, the same on every rank and in each call."""
    torch.manual_seed(options.seed)
    blocks = [Block(options.width) for _ in range(2)]
    return nn.Sequential(nn.Linear(8, options.width), *blocks, nn.Linear(options.width, 1)).to(device)


def train(model: nn.Module, options: argparse.Namespace, device: torch.device, *, share: bool) -> float:
    """Train on this rank's share of each batch, or on all of it; return the mean loss of all ranks in the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss = torch.zeros(())
    for step in range(options.steps):
        x, y = (values.to(device) for values in batch(64 * dist.get_world_size(), options.seed + step))
        if share:
            x, y = (values.chunk(dist.get_world_size())[dist.get_rank()] for values in (x, y))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    return float(total / dist.get_world_size())


def batch(number: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(number, 8, generator=torch.Generator().manual_seed(seed))
    return x, torch.sin(x[:, :1]) + x[:, 1:2] * 0.5


def verdict(plain: nn.Module, sharded: nn.Module, error: float, goal: float) -> int:
    """Return the exit code, the same on every rank."""
    device = next(sharded.parameters()).device
    here = torch.tensor(sum(value.to_local().numel() for value in sharded.parameters()), device=device)
    # Gathered on rank 0, as for saving.
    whole = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    expected = plain.state_dict()
    apart = max((float((value - expected[name].cpu()).abs().max()) for name, value in whole.items()), default=0.0)
    # Tensors, as torch's collectives for objects unpickle: each rank could run code on the others.
    results = torch.tensor([error, apart], dtype=torch.float64, device=device)
    dist.broadcast(results, src=0)
    parts = [torch.empty_like(here) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, here)
    error, apart = results.tolist()
    if dist.get_rank() == 0:
        sizes = [int(part) for part in parts]
        print(f"weights on each rank: {sizes}, of {sum(value.numel() for value in plain.parameters())}")
        print(f"loss {error:.4f}, the goal is {goal}; sharded and whole differ by {apart:.1e}")
    return 0 if error <= goal and apart <= TOLERANCE else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # gloo's threads outlive the group, and Python may abort at its exit because of them
