"""What is released: a tested image with its content, what is said of it, and what became of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torchbake.engine.export import Content, Source
from torchbake.oci.manifest import Manifest
from torchbake.registry.artifact import Artifact
from torchbake.registry.probe import Abilities
from torchbake.release.decide import Decision
from torchbake.release.record import Judgement
from torchbake.store.layers import LayerStore


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A tested image to release. ``tags`` are its rolling tags, its own tag first, the widest last.

    ``digest`` is the manifest's. In a dry run it is empty if the image is not compressed yet. ``tested`` is the ID of
    the image in the engine, or empty if the two are equal. The ID in Docker's classic store is the digest of the
    config. ``config`` finds that digest, or an empty text; no compression changes it.
    """

    id: str
    digest: str
    labels: Mapping[str, str]
    tags: tuple[str, ...]
    verdict: Judgement | None
    waived: Mapping[str, str] = field(default_factory=dict)
    tested: str = ""
    config: Callable[[], str] = str


def _nothing(_: Content) -> tuple[Artifact, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Supply:
    """Where a candidate's content is, and what is said of it: artifacts that will be attached to the image.

    ``needs`` are layers, by digest, that ``describe`` must read even where the registry has them. ``layers`` is
    the store of packed layers, which a signed release lists for other machines.
    """

    source: Source
    describe: Callable[[Content], Sequence[Artifact]] = _nothing
    needs: Callable[[str], bool] = lambda digest: False
    layers: LayerStore | None = None


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What went over the wire: bytes and layers that were sent, and bytes of all layers."""

    bytes: int
    layers: int
    whole: int


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """Content that is in the registry and has no tag yet, and what is said of it.

    ``images`` are those of an index, the first one first, or the image itself. ``shared`` is the list of its packed
    layers.
    """

    manifest: Manifest
    images: tuple[Manifest, ...]
    artifacts: tuple[Artifact, ...]
    sent: Sent
    shared: Artifact | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """What became of a candidate, whose digest is ``tested``. ``decision`` is what was found to be due.

    ``abilities`` are those of its registry, if a dry run asked for them. ``released_by`` is the compression of the
    release, if it has the config of the tested image and another digest; else it is empty.
    """

    decision: Decision
    tested: str
    sent: Sent | None = None
    abilities: Abilities | None = None
    released_by: str = ""
