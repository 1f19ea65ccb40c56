"""Look-ups of images for `pin`: in the registry of a reference, and in this machine's engine."""

from collections.abc import Callable
from functools import cache

from torchbake.engine.client import Engine, connect
from torchbake.errors import EngineError
from torchbake.jobs.foreign import is_ours
from torchbake.jobs.pin import Look, ResolvedImage
from torchbake.oci.labels import ID, labels_in
from torchbake.oci.manifest import UnsoundError
from torchbake.oci.reference import Reference, Repository, parse_reference
from torchbake.oci.tag_names import parse_immutable, revisions_of
from torchbake.registry.client import Registry
from torchbake.registry.variants import images_of


def in_registry(registry_of: Callable[[Repository], Registry]) -> Look:
    """Return a look-up of the tag of a reference in its registry, which raises RegistryError."""

    def look(reference: Reference) -> ResolvedImage | None:
        registry = registry_of(reference.repository)
        digest = registry.digest(reference.tag)
        if digest is None:
            return None
        try:
            manifest = registry.manifest(digest)
            image = next(images_of(registry, manifest), None) if manifest else None  # of an index, the first image
            labels = labels_in(registry.config(image)) if image else None
        except UnsoundError:
            labels = None
        tags: tuple[str, ...] = ()
        # The repositories of others, which may be large, are not searched.
        if labels is not None and is_ours(labels) and not parse_immutable(reference.tag):
            tags = _revision(registry, {reference.tag, labels[ID]}, digest)
        return ResolvedImage(digest=digest, tags=tags, ours=None if labels is None else is_ours(labels))

    return look


def _revision(registry: Registry, names: set[str], digest: str) -> tuple[str, ...]:
    """Return the newest immutable tag of an image with one of these names, or nothing."""
    tags = registry.tags()
    revisions = {revision for name in names for revision in revisions_of(name, tags)}
    newest_first = sorted(revisions, key=lambda revision: revision.revision, reverse=True)
    return tuple(str(revision) for revision in newest_first if registry.digest(str(revision)) == digest)[:1]


def in_engine(open_engine: Callable[[], Engine] = connect) -> Look:
    """Return a look-up in the engine, which finds nothing if no engine answers."""

    @cache
    def engine() -> Engine | None:
        try:
            return open_engine()
        except EngineError:
            return None

    def look(reference: Reference) -> ResolvedImage | None:
        connection = engine()
        names = connection.names(str(reference)) if connection else None
        if connection is None or names is None:
            return None
        ours = [each for each in map(parse_reference, names) if each.repository == reference.repository]
        digest = next((each.digest for each in ours if each.digest), "")
        tags = tuple(each.tag for each in ours if not each.digest)
        labels = connection.config(str(reference)).get("Labels") or {}
        return ResolvedImage(digest=digest, tags=tags, sure=not connection.containerd_store, ours=is_ours(labels))

    return look
