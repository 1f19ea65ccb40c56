"""`promote`: rolling tags forward to a release that is there."""

import argparse

from torchbake.verbs.shifting import add_shift, run_shift

SUMMARY = "move rolling tags to a release, by default to the newest"
EXAMPLES = (
    "nox -s promote -- cpu --registry ghcr.io/acme",
    "nox -s promote -- 2.7.1 --registry ghcr.io/acme --to r3 --dry-run",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shift(parser, to="the newest")


def run(args: argparse.Namespace) -> int:
    return run_shift(args, back=False)
