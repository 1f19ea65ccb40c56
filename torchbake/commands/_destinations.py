"""The repositories of an image's releases: registries with their namespaces, and the names of PyTorch images there."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchbake.core.digest import short_digest
from torchbake.oci.reference import Repository, parse_registry

if TYPE_CHECKING:
    from torchbake.matrix.spec import Spec  # its packages are not imported for a command line


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A ``registry`` with its namespace, such as ``ghcr.io/acme``, and the ``name`` of PyTorch images there.

    Without a name images have the last part of their own repository's. The option of the command line is ``typed``; it
    is empty for a registry of the environment or of the matrix.
    """

    registry: str
    name: str = ""
    typed: str = field(default="", compare=False)

    def repository(self, spec: "Spec") -> Repository:
        """Return the repository of an image. An init image has one name only. Raises UsageError for no registry."""
        own = self.name if spec.kind == "pytorch" else ""
        return parse_registry(self.registry) / (own or spec.repository.rpartition("/")[2])


def repositories_of(destinations: Iterable[Destination], spec: "Spec") -> list[Repository]:
    """Return the repositories of an image in the order of the destinations, without repetition."""
    return list(dict.fromkeys(each.repository(spec) for each in destinations))


def distinct_names(places: Sequence[tuple[str, Repository]]) -> list[str]:
    """Name each image by its id, and an image in several repositories also by the repository."""
    counts = Counter(name for name, _ in places)
    return [name if counts[name] == 1 else f"{name} in {repository}" for name, repository in places]


def differing_digests(images: Iterable[tuple[str, Repository, str]]) -> Iterator[str]:
    """Yield a text for each image id that has several digests: the repositories with their digests."""
    digests: dict[str, dict[str, Repository]] = {}
    for name, repository, digest in images:
        digests.setdefault(name, {}).setdefault(digest, repository)
    for name, builds in digests.items():
        if len(builds) > 1:
            yield f"{name}: " + ", ".join(f"{place} has {short_digest(digest)}" for digest, place in builds.items())
