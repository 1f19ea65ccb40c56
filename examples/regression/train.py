"""One linear layer finds the coefficients of a polynomial, on CPUs.

Exit code 0: each coefficient is within --goal of the true one; else 1.
"""

import argparse
import sys

import torch
from torch import Tensor, nn

COEFFICIENTS = torch.tensor([1.0, -2.0, 0.5, 3.0])  # of x, x², x³, x⁴
CONSTANT = 0.7


def main() -> int:
    options = arguments()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layer = nn.Linear(len(COEFFICIENTS), 1).to(device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for step in range(options.steps):
        x, y = (values.to(device) for values in batch(256, options.seed + step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(layer(x), y)
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return verdict(layer, options.goal)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--goal", type=float, default=0.05, help="how far a coefficient may be from the true one")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def batch(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw points of the polynomial, with a little noise: the powers of x, and y."""
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(number, 1, generator=source) * 2 - 1
    powers = torch.cat([x**power for power in range(1, len(COEFFICIENTS) + 1)], dim=1)
    noise = 0.01 * torch.randn(number, 1, generator=source)
    return powers, (powers @ COEFFICIENTS[:, None]) + CONSTANT + noise


def verdict(layer: nn.Linear, goal: float) -> int:
    value = torch.cat([layer.bias, layer.weight[0]]).detach().cpu()
    expected = torch.cat([torch.tensor([CONSTANT]), COEFFICIENTS])
    for power, (ours, true) in enumerate(zip(value.tolist(), expected.tolist(), strict=True)):
        print(f"x^{power}: {ours:+.3f}, truly {true:+.3f}")
    apart = float((value - expected).abs().max())
    print(f"the furthest is {apart:.3f} apart; the goal is {goal}")
    return 0 if apart <= goal else 1


if __name__ == "__main__":
    sys.exit(main())
