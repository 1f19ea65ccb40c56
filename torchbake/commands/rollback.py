"""`rollback`: move rolling tags back to an earlier release, where `publish` then leaves them."""

from torchbake.commands._rolling import Shifting, run_shift

EXAMPLES = (
    "cpu --registry ghcr.io/acme",
    "cuda12 --registry ghcr.io/acme --to r1 --dry-run",
    "cpu --registry ghcr.io/acme --key cosign.pub",
)
Arguments = Shifting


def run(args: Arguments) -> int:
    return run_shift(args, back=True)
