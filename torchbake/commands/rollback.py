"""`rollback`: rolling tags back to the release before; its immutable tag stays, and publish leaves them there."""

import argparse

from torchbake.commands._rolling import Shifting, add_shift, run_shift
from torchbake.commands._signing import add_verifying

EXAMPLES = (
    "cpu --registry ghcr.io/acme",
    "cuda12 --registry ghcr.io/acme --to r1 --dry-run",
    "cpu --registry ghcr.io/acme --key cosign.pub",
)
Arguments = Shifting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shift(parser, to="the one before the current one")
    add_verifying(parser)


def run(args: Arguments) -> int:
    return run_shift(args, back=True)
