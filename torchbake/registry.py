"""What a registry holds, and how it is changed: manifests, blobs, tags.

The protocol is the OCI distribution specification 1.1. Nothing is believed by its name alone: what is read by a digest
is hashed, and what was written is asked for again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

from torchbake.errors import RegistryError
from torchbake.reference import Repository
from torchbake.transport import ATTEMPTS, Request, StatusError, Transport

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
_DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
_ACCEPT = ", ".join((MANIFEST, INDEX, _DOCKER, _DOCKER_LIST))
_LARGEST_MANIFEST = 4 * 2**20  # bytes; what registries must take at least, by the specification
_CHUNK = 2**20

Count = Callable[[int], None]


class UnsoundError(RegistryError):
    """The registry answered, and what it serves is not what its digest says, or is no manifest."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A file of a registry by its digest: a descriptor of the OCI image specification."""

    digest: str
    size: int
    media_type: str = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest as the bytes that its digest is of; they are never written anew."""

    data: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        return sha256(self.data)

    @cached_property
    def content(self) -> dict[str, Any]:
        """Raises RegistryError for what is no JSON object."""
        try:
            content = json.loads(self.data)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise UnsoundError(f"The manifest {self.digest} is no JSON object.")
        return content

    @property
    def is_index(self) -> bool:
        return self.media_type in (INDEX, _DOCKER_LIST)

    @property
    def config(self) -> Blob:
        return _blob(self.content.get("config"))

    @property
    def layers(self) -> tuple[Blob, ...]:
        return tuple(map(_blob, self.content.get("layers") or ()))

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Everything it needs, each once, the config last."""
        return tuple(dict.fromkeys((*self.layers, self.config)))

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.content.get("annotations") or {}


class Registry:
    """One repository of a registry. Safe for many threads. Everything may raise RegistryError."""

    def __init__(self, transport: Transport, repository: Repository) -> None:
        self._transport = transport
        self.repository = repository
        self._pull = f"repository:{repository.path}:pull"
        self._push = f"repository:{repository.path}:pull,push"

    def manifest(self, key: str) -> Manifest | None:
        """The manifest of a tag or a digest; None where there is none."""
        for _ in range(ATTEMPTS):
            answer = self._transport.send(
                Request(method="GET", path=self._path("manifests", key), good=(200, 404), headers={"Accept": _ACCEPT}),
                self._pull,
            )
            if answer.status_code == 404:
                return None
            found = Manifest(data=answer.content, media_type=_type_of(answer.headers, answer.content))
            told = answer.headers.get("Docker-Content-Digest", found.digest)
            wanted = key if key.startswith("sha256:") else told
            if found.digest == wanted == told:
                return found
        raise UnsoundError(f"{self.repository}: {key} is {wanted}, but what is served for it is {found.digest}.")

    def digest(self, tag: str) -> str | None:
        """What a tag points at, without fetching it; None where there is no such tag."""
        answer = self._transport.send(
            Request(method="HEAD", path=self._path("manifests", tag), good=(200, 404), headers={"Accept": _ACCEPT}),
            self._pull,
        )
        if answer.status_code == 404:
            return None
        told = answer.headers.get("Docker-Content-Digest")
        if told:
            return str(told)
        found = self.manifest(tag)  # a registry that does not say it for a HEAD
        return found.digest if found else None

    def put(self, manifest: Manifest, key: str) -> None:
        """Write the manifest's own bytes under a tag or its digest, and see that they are there."""
        if len(manifest.data) > _LARGEST_MANIFEST:
            raise RegistryError(f"A manifest of {len(manifest.data)} bytes is more than registries take.")
        self._transport.send(
            Request(
                method="PUT", path=self._path("manifests", key), good=(201,), body=lambda: manifest.data,
                headers={"Content-Type": manifest.media_type},
            ),
            self._push,
        )  # fmt: skip
        found = self.digest(key)
        if found != manifest.digest:
            raise RegistryError(f"{self.repository}:{key} was set to {manifest.digest}, but is {found}.")

    def has(self, blob: Blob) -> bool:
        """Whether the blob is there, in its whole size."""
        return self.size_of(blob.digest) == blob.size

    def size_of(self, digest: str) -> int | None:
        """The bytes of a blob; None where it is not there."""
        answer = self._transport.send(
            Request(method="HEAD", path=self._path("blobs", digest), good=(200, 404)), self._pull
        )
        return int(answer.headers.get("Content-Length", 0)) if answer.status_code == 200 else None

    def mount(self, blob: Blob, source: str) -> bool:
        """Take a blob over from another repository of the same registry; False where that cannot be done."""
        try:
            answer = self._transport.send(
                Request(
                    method="POST", path=self._path("blobs/uploads", ""), good=(201, 202),
                    params={"mount": blob.digest, "from": source},
                ),
                f"{self._push} repository:{source}:pull",
            )  # fmt: skip
        except StatusError:
            return False  # not allowed to read there: then it is sent
        return answer.status_code == 201

    def upload(self, blob: Blob, path: Path, count: Count = lambda _: None) -> None:
        """Send a file as a blob; ``count`` hears of bytes as they go, and of a minus when they must go again."""
        sent = 0

        def read(file: BinaryIO) -> Iterator[bytes]:
            nonlocal sent
            while piece := file.read(_CHUNK):
                yield piece
                sent += len(piece)
                count(len(piece))

        def body() -> Any:
            nonlocal sent
            count(-sent)
            sent = 0
            return _Sized(read(path.open("rb")), blob.size)

        for attempt in range(ATTEMPTS):
            try:
                self._send(blob, body)
                return
            except StatusError as error:
                # An upload that the registry has forgotten, or a body that broke on its way: begin anew.
                if attempt + 1 == ATTEMPTS or not set(error.codes) & {
                    "BLOB_UPLOAD_UNKNOWN",
                    "BLOB_UPLOAD_INVALID",
                    "DIGEST_INVALID",
                    "SIZE_INVALID",
                }:
                    raise

    def _send(self, blob: Blob, body: Callable[[], Any]) -> None:
        """POST for a place, then PUT: one request for the whole blob."""
        place = self._transport.send(
            Request(method="POST", path=self._path("blobs/uploads", ""), good=(202,)), self._push
        ).headers.get("Location", "")
        parts = urlsplit(place)
        self._transport.send(
            Request(
                method="PUT", path=parts._replace(query="").geturl(), good=(201,), body=body,
                params={**dict(parse_qsl(parts.query)), "digest": blob.digest},
                headers={"Content-Type": "application/octet-stream"},
            ),
            self._push,
        )  # fmt: skip

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """An image's configuration."""
        blob = manifest.config
        return Manifest(data=self.read(blob), media_type=blob.media_type).content

    def read(self, blob: Blob) -> bytes:
        """A small blob, hashed."""
        for _ in range(ATTEMPTS):
            answer = self._transport.send(Request(method="GET", path=self._path("blobs", blob.digest)), self._pull)
            if sha256(answer.content) == blob.digest:
                return answer.content
        raise UnsoundError(f"{self.repository}: what is served for {blob.digest} is something else.")

    def tags(self) -> tuple[str, ...]:
        """All tags, sorted; none where the repository does not exist."""
        found: list[str] = []
        path, params = self._path("tags", "list"), {"n": "1000"}
        while path:
            answer = self._transport.send(Request(method="GET", path=path, good=(200, 404), params=params), self._pull)
            if answer.status_code == 404:
                return ()
            found += answer.json().get("tags") or ()
            path, params = answer.links.get("next", {}).get("url", ""), {}
        return tuple(sorted(set(found)))

    def _path(self, kind: str, name: str) -> str:
        return f"{self.repository.path}/{kind}/{name}"


class _Sized:
    """A body of known length: else requests would send it in chunks, which registries refuse for a PUT."""

    def __init__(self, pieces: Iterator[bytes], length: int) -> None:
        self._pieces, self._length = pieces, length

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def __len__(self) -> int:
        return self._length


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _blob(value: Any) -> Blob:
    try:
        return Blob(digest=str(value["digest"]), size=int(value["size"]), media_type=str(value.get("mediaType", "")))
    except (TypeError, KeyError, ValueError):
        raise UnsoundError(f"A manifest describes a blob by {value!r}, which is no descriptor.") from None


def _type_of(headers: Mapping[str, str], data: bytes) -> str:
    """What a manifest says of itself comes before what the header says."""
    try:
        own = json.loads(data).get("mediaType")
    except (ValueError, AttributeError):
        own = None
    return str(own or headers.get("Content-Type", MANIFEST).partition(";")[0])
