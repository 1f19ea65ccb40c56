"""Looks images up for `pin`: in the registry that a reference names, and in this machine's engine."""

from collections.abc import Callable
from functools import cache

from torchbake.engine.client import Engine, connect
from torchbake.errors import EngineError
from torchbake.jobs.pin import Found, Look
from torchbake.oci.labels import ID
from torchbake.oci.reference import Reference, Repository, parse_reference
from torchbake.oci.tag_names import parse_immutable, revisions_of
from torchbake.registry.client import Registry
from torchbake.release.repository_view import Holdings


def in_registry(registry_of: Callable[[Repository], Registry]) -> Look:
    """What the registry of a reference serves for its tag; raises RegistryError."""

    def look(reference: Reference) -> Found | None:
        registry = registry_of(reference.repository)
        digest = registry.digest(reference.tag)
        return Found(digest=digest, tags=_revision(registry, reference.tag, digest)) if digest else None

    return look


def _revision(registry: Registry, tag: str, digest: str) -> tuple[str, ...]:
    """The newest immutable tag of an image of ours; nobody else's repository is searched, which may be long."""
    image = Holdings(registry).image(digest)
    if parse_immutable(tag) or image is None or ID not in image.labels:
        return ()
    tags = registry.tags()
    revisions = {revision for name in (tag, image.labels[ID]) for revision in revisions_of(name, tags)}
    newest_first = sorted(revisions, key=lambda revision: revision.revision, reverse=True)
    return tuple(str(revision) for revision in newest_first if registry.digest(str(revision)) == digest)[:1]


def in_engine(connected: Callable[[], Engine] = connect) -> Look:
    """What the engine holds under a reference; where none answers, nothing."""

    @cache
    def engine() -> Engine | None:
        try:
            return connected()
        except EngineError:
            return None

    def look(reference: Reference) -> Found | None:
        connection = engine()
        names = connection.names(str(reference)) if connection else None
        if connection is None or names is None:
            return None
        ours = [each for each in map(parse_reference, names) if each.repository == reference.repository]
        digest = next((each.digest for each in ours if each.digest), "")
        tags = tuple(each.tag for each in ours if not each.digest)
        return Found(digest=digest, tags=tags, sure=not connection.containerd_store)

    return look
