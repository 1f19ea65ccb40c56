"""Ask the registry mirrors of the engine for a base."""

from collections.abc import Iterator
from dataclasses import dataclass

from torchbake.engine.mirrors import copies_of, engine_mirrors
from torchbake.oci.reference import parse_reference
from torchbake.registry.served import served_digest
from torchbake.ui.steps import step
from torchbake.ui.tool_environment import environment_of


@dataclass(frozen=True, kw_only=True)
class MirrorAnswer:
    """The answer of the mirror at ``host``: the digest of the image, or an empty one and the reason."""

    host: str
    digest: str
    reason: str


def answers_of_mirrors(image: str) -> Iterator[MirrorAnswer]:
    """Yield the answers of the mirrors of an image in their order, up to the first with a digest."""
    for mirror, copy in copies_of(parse_reference(image), engine_mirrors(environment_of("docker"))):
        with step(f"looking for {copy}, in the engine's mirror"):
            digest, reason = served_digest(copy, plain=mirror.plain, insecure=mirror.insecure)
        yield MirrorAnswer(host=copy.repository.host, digest=digest, reason=reason)
        if digest:
            return
