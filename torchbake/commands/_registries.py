"""The registry that a command's options name. Commands without one do not load its HTTP client: see common.py."""

import argparse

from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import Transport


def registry_of(args: argparse.Namespace, repository: Repository) -> Registry:
    return Registry(Transport(repository.host, plain=args.plain_http), repository)
