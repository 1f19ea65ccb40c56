"""Names of images: ``HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]``, parsed once and formatted in one place."""

import re
from dataclasses import dataclass, replace

from torchbake.errors import UsageError

_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HUB = "docker.io"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository of a registry, such as ``registry.example.com:5000`` and ``team/pytorch``."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    def __truediv__(self, name: str) -> "Repository":
        return replace(self, path=f"{self.path}/{name}" if self.path else name)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image of a repository, by tag, by digest, or by both (then the digest decides)."""

    repository: Repository
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.repository}" + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def key(self) -> str:
        """The last part of a manifest's URL in a registry."""
        return self.digest or self.tag


def parse_reference(text: str) -> Reference:
    """Parse a reference as `docker pull` takes it: no host means Docker Hub, no tag means ``latest``.

    The grammar is that of github.com/distribution/reference. Raises UsageError.
    """
    rest, at, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, colon, tag = rest, "", ""
    host, path = _split_host(name)
    if _is_path(path.lower()) and not _is_path(path):
        raise _upper_case(f"{text!r} is not an image reference", name.lower() + text.removeprefix(name))
    if not _is_path(path) or (colon and not _TAG.fullmatch(tag)) or (at and not _DIGEST.fullmatch(digest)):
        raise UsageError(
            f"{text!r} is not an image reference.", hint="Write it as registry.example.com:5000/team/pytorch:cpu"
        )
    return Reference(
        repository=Repository(host=host, path=path), tag=tag or ("" if digest else "latest"), digest=digest
    )


def is_reference(text: str) -> bool:
    """Return True for the text of an image reference, and False for a tag or a selector of the matrix."""
    return bool(set(text) & set("/:@"))


def names_host(text: str) -> bool:
    """Return whether a reference names its registry. One without is of Docker Hub, or of one machine alone."""
    first, slash, _ = text.partition("/")
    return bool(slash) and _is_host(first)


def parse_registry(text: str) -> Repository:
    """Parse ``HOST[:PORT][/NAMESPACE]``, the place of released repositories. Raises UsageError."""
    host, slash, path = text.partition("/")
    if _HOST.fullmatch(host) and _is_path(path.lower()) and not _is_path(path):
        raise _upper_case(f"{text!r} is not a registry", text.lower())
    if not _HOST.fullmatch(host) or (slash and not _is_path(path)):
        raise UsageError(
            f"{text!r} is not a registry.", hint="Write HOST[:PORT]/NAMESPACE, without https://: ghcr.io/acme"
        )
    return Repository(host=host, path=path)


def _upper_case(problem: str, instead: str) -> UsageError:
    return UsageError(f"{problem}: names of repositories are lower case.", hint=f"Write {instead}")


def _split_host(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and _is_host(first):
        return first, rest
    return _HUB, name if slash else f"library/{name}"


def _is_host(text: str) -> bool:
    return bool(_HOST.fullmatch(text)) and (bool(set(text) & {".", ":", "["}) or text == "localhost")


def _is_path(text: str) -> bool:
    return all(_PATH.fullmatch(part) for part in text.split("/")) and len(text) <= 255
