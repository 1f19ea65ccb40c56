"""The registry that a command's options name. Commands without one do not load its HTTP client: see common.py."""

from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import Transport


def registry_of(repository: Repository, *, plain_http: bool) -> Registry:
    return Registry(Transport(repository.host, plain=plain_http), repository)
