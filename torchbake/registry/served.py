"""The digest that a registry serves for an image, if it answers soon."""

import time

from torchbake.errors import RegistryError
from torchbake.oci.reference import Reference
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport

PATIENCE = 20  # seconds; a closed network may swallow packets instead of refusing them


def served_digest(reference: Reference, *, plain: bool = False, insecure: bool = False) -> tuple[str, str]:
    """Return the digest of an image, and the reason in a few words if there is none.

    ``plain`` and ``insecure`` are as for `RegistryTransport`.
    """
    until = time.monotonic() + PATIENCE

    def sleep(seconds: float) -> None:
        if time.monotonic() + seconds > until:
            raise RegistryError(f"{reference.repository.host} does not answer within {PATIENCE} seconds.")
        time.sleep(seconds)

    try:
        transport = RegistryTransport(reference.repository.host, plain=plain, insecure=insecure, sleep=sleep)
        digest = Registry(transport, reference.repository).digest(reference.key)
    except RegistryError as error:
        return "", error.message.partition(": ")[0].rstrip(".")
    return digest or "", "" if digest else f"{reference} is not there"
