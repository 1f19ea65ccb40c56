"""The data of a release: the tested image, its source, its uploaded content, and the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torchbake.engine.export import Content, ImageSource
from torchbake.oci.manifest import Manifest
from torchbake.registry.artifact import Artifact
from torchbake.registry.probe import Abilities
from torchbake.release.decide import Decision
from torchbake.release.record import PlatformRelease, RecordedVerdict
from torchbake.store.layers import LayerStore


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A tested image to release. ``tags`` are its rolling tags, its own tag first, the widest last.

    An image of one platform of several has no rolling tags, and its immutable tags begin with ``own``. The index of all
    platforms has the releases of its ``platforms``.

    The digest of its manifest is ``digest``, or "" in a dry run if the image is not compressed yet. The engine's ID of
    the image is ``tested``, or "" if both are equal; in Docker's classic store it is the digest of the config. The
    function ``config`` returns the digest of the config, which no compression changes, or "".
    """

    id: str
    digest: str
    labels: Mapping[str, str]
    tags: tuple[str, ...]
    verdict: RecordedVerdict | None
    waived: Mapping[str, str] = field(default_factory=dict)
    tested: str = ""
    config: Callable[[], str] = str
    own: str = ""
    platforms: Mapping[str, PlatformRelease] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The beginning of its immutable tags."""
        return self.own or self.tags[0]


@dataclass(frozen=True, kw_only=True)
class Supply:
    """The source of a candidate's content, and the function that makes the artifacts to attach to the image.

    The function ``needs`` returns true for digests of layers that ``describe`` must read, although the registry has
    them. A signed release lists the packed layers of the store ``layers`` for other machines.
    """

    source: ImageSource
    describe: Callable[[Content], Sequence[Artifact]] = lambda content: ()
    needs: Callable[[str], bool] = lambda digest: False
    layers: LayerStore | None = None


@dataclass(frozen=True, kw_only=True)
class TransferCount:
    """The numbers of bytes and blobs that were sent, and the bytes of all: layers and configurations."""

    bytes: int
    layers: int
    whole: int


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """Content that is in the registry and has no tag yet, and its artifacts.

    The manifests ``images`` are those of an index, in its order, or of the image itself. The artifact ``shared`` lists
    the packed layers.
    """

    manifest: Manifest
    images: tuple[Manifest, ...]
    artifacts: tuple[Artifact, ...]
    count: TransferCount
    shared: Artifact | None = None


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The result for a candidate with the digest ``tested``.

    A dry run of a release has the registry's ``abilities``. If the released image has the config of the tested image
    but another digest, its compression is in ``released_by``. The digests of documents that are attached without a tag
    are in ``documents``, by name.
    """

    decision: Decision
    tested: str
    transfer: TransferCount | None = None
    abilities: Abilities | None = None
    released_by: str = ""
    documents: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_tested(self) -> bool:
        """Return whether the released image is the tested one, in any compression."""
        return self.decision.digest == self.tested or bool(self.released_by)


@dataclass(frozen=True, kw_only=True)
class IndexPublication:
    """The result for an index of several platforms.

    Nothing was written if platforms are ``lacking``, for these reasons. Then there is no ``decision``.
    """

    decision: Decision | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)
