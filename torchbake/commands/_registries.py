"""The client of a registry. It imports HTTP, so only commands that use a registry import this module."""

from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport


def registry_of(repository: Repository, *, plain_http: bool) -> Registry:
    return Registry(RegistryTransport(repository.host, plain=plain_http), repository)
