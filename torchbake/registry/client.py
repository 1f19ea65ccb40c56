"""What a registry holds, and how it is changed: manifests, blobs, tags.

The protocol is the OCI distribution specification 1.1. Nothing is trusted by its name alone: what is read by a digest
is hashed, and what was written is asked for again.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

from torchbake.core.digest import file_digest
from torchbake.core.parallel import side_by_side
from torchbake.errors import RegistryError
from torchbake.oci.manifest import (
    DIGEST,
    DOCKER,
    DOCKER_LIST,
    INDEX,
    MANIFEST,
    Blob,
    Manifest,
    UnsoundError,
    sha256,
    type_of,
)
from torchbake.oci.reference import Repository
from torchbake.registry.http import MISCALLED, Answer, Sized, written_to
from torchbake.registry.listing import next_page, tags_in
from torchbake.registry.origin import led_to
from torchbake.registry.transport import ATTEMPTS, Request, StatusError, Transport

_ACCEPT = ", ".join((MANIFEST, INDEX, DOCKER, DOCKER_LIST))
_LARGEST_MANIFEST = 4 * 2**20  # bytes; what registries must take at least, by the specification
_LARGEST_CONFIG = 8 * 2**20  # ours has some thousand
_LARGEST_LIST = 32 * 2**20  # a page of tags, of a registry that gives all of them at once
_LARGEST_READ = 64 * 2**20  # the largest file that is read into memory: an SBOM has one or two million
_MOST_PAGES, _MOST_TAGS = 10_000, 1_000_000
_CHUNK = 2**20
_AT_ONCE = 4  # requests side by side: most of a small one's time is the way to the registry and back
_SIZE = re.compile(r"[0-9]{1,18}")

Count = Callable[[int], None]


class Registry:
    """One repository of a registry. Safe for many threads. Everything may raise RegistryError."""

    def __init__(self, transport: Transport, repository: Repository) -> None:
        self.images_only = False  # it has refused a manifest whose config is not an image's
        self.lists_artifacts = True  # until it has refused a list of an image's artifacts
        self._transport, self.repository = transport, repository
        self._pull = f"repository:{repository.path}:pull"
        self._push = f"repository:{repository.path}:pull,push"

    def manifest(self, key: str) -> Manifest | None:
        """The manifest of a tag or a digest; None where there is none."""
        for _ in range(ATTEMPTS):
            answer = self._transport.send(
                Request(
                    method="GET", path=self._path("manifests", key), good=(200, 404), headers={"Accept": _ACCEPT},
                    most=_LARGEST_MANIFEST,
                ),
                self._pull,
            )  # fmt: skip
            if answer.status == 404:
                return None
            manifest = Manifest(data=answer.data, media_type=type_of(answer.headers, answer.data))
            told = answer.headers.get("Docker-Content-Digest", manifest.digest)
            wanted = key if key.startswith("sha256:") else told
            if manifest.digest == wanted == told:
                return manifest
        what = f"{key} is {wanted[:200]}, but what is served for it is {manifest.digest}"
        raise UnsoundError(f"{self.repository}: {what}.")

    def digest(self, tag: str) -> str | None:
        """What a tag points at, without fetching it; None where there is no such tag."""
        answer = self._transport.send(
            Request(method="HEAD", path=self._path("manifests", tag), good=(200, 404), headers={"Accept": _ACCEPT}),
            self._pull,
        )
        if answer.status == 404:
            return None
        told = answer.headers.get("Docker-Content-Digest")
        if told and not DIGEST.fullmatch(told):
            raise UnsoundError(f"{self.repository}: {tag} is {told[:200]!r}, which is not a digest.")
        if told:
            return told
        manifest = self.manifest(tag)  # a registry that does not say it for a HEAD
        return manifest.digest if manifest else None

    def digests(self, tags: Iterable[str]) -> list[str | None]:
        """What each of the tags points at, asked for side by side."""
        return side_by_side(self.digest, tags, most=_AT_ONCE)

    def put(self, manifest: Manifest, key: str) -> None:
        """Write the manifest's own bytes under a tag or its digest, and see that they are there."""
        self._put(manifest, key)

    def attach(self, manifest: Manifest) -> bool:
        """Write an artifact under its digest. False: the registry does not list it for its subject."""
        answer = self._put(manifest, manifest.digest)
        return answer is not None and "OCI-Subject" in answer.headers

    def _put(self, manifest: Manifest, key: str) -> Answer | None:
        try:
            answer = self._write(manifest, key)
        except StatusError:
            # An earlier try may have written it, with its answer lost; an immutable tag then refuses even the same.
            if self.digest(key) == manifest.digest:
                return None
            raise
        served = self.digest(key)
        if served != manifest.digest:
            raise RegistryError(f"{self.repository}:{key} was set to {manifest.digest}, but is {served}.")
        return answer

    def _write(self, manifest: Manifest, key: str) -> Answer:
        if len(manifest.data) > _LARGEST_MANIFEST:
            raise RegistryError(f"A manifest of {len(manifest.data)} bytes is more than registries take.")
        return self._transport.send(
            Request(
                method="PUT", path=self._path("manifests", key), good=(201,), body=lambda: manifest.data,
                headers={"Content-Type": manifest.media_type},
            ),
            self._push,
        )  # fmt: skip

    def put_all(
        self, manifest: Manifest, tags: Sequence[str], begin: Callable[[str], object] = lambda _: None
    ) -> list[str | None]:
        """Write it under several tags, one after the other; what each of them points at when all are written.

        ``begin`` hears of each before it is written. They do not go side by side: with each of a manifest's tags a
        registry may write anew where the manifest is, and has none meanwhile.
        """
        for tag in tags:
            begin(tag)
            self._write(manifest, tag)
        return self.digests(tags)

    def has(self, blob: Blob) -> bool:
        """Whether the blob is there, in its whole size."""
        return self.size_of(blob.digest) == blob.size

    def size_of(self, digest: str) -> int | None:
        """The bytes of a blob; None where it is not there."""
        answer = self._transport.send(
            Request(method="HEAD", path=self._path("blobs", digest), good=(200, 404)), self._pull
        )
        if answer.status == 404:
            return None
        size = answer.headers.get("Content-Length", "")
        if not _SIZE.fullmatch(size):
            raise UnsoundError(f"{self.repository} has {digest}, and gives an impossible size: {size[:200]!r}.")
        return int(size)

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
        return answer.status == 201

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
            return Sized(read(path.open("rb")), blob.size)

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

    def try_upload(self) -> None:
        """Begin an upload and cancel it, to see that this login may push. Raises RegistryError."""
        place = self._begin()
        with contextlib.suppress(StatusError):  # a registry that cannot cancel forgets it by itself
            self._transport.send(Request(method="DELETE", path=place, good=(200, 202, 204)), self._push)

    def _begin(self) -> str:
        """The address of a new upload."""
        began = self._transport.send(
            Request(method="POST", path=self._path("blobs/uploads", ""), good=(202,)), self._push
        )
        try:
            return led_to(began.url, began.headers["Location"])
        except (KeyError, ValueError) as error:
            why = "names no address for it" if isinstance(error, KeyError) else str(error)
            raise RegistryError(f"{self.repository} begins an upload, and {why}.", hint=MISCALLED) from None

    def _send(self, blob: Blob, body: Callable[[], Any]) -> None:
        """POST for a place, then PUT: one request for the whole blob."""
        place = self._begin()
        self._transport.send(
            Request(
                method="PUT", path=f"{place}{'&' if urlsplit(place).query else '?'}digest={quote(blob.digest)}",
                good=(201,), body=body, headers={"Content-Type": "application/octet-stream"},
            ),
            self._push,
        )  # fmt: skip

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """An image's configuration."""
        blob = manifest.config
        if blob.size > _LARGEST_CONFIG:
            raise UnsoundError(f"{self.repository}: the configuration {blob.digest} has {blob.size} bytes.")
        return Manifest(data=self.read(blob), media_type=blob.media_type).content

    def read(self, blob: Blob) -> bytes:
        """A small blob, hashed."""
        if blob.size > _LARGEST_READ:
            raise UnsoundError(f"{self.repository}: {blob.digest} has {blob.size} bytes, too many for a text.")
        for _ in range(ATTEMPTS):
            answer = self._transport.send(
                Request(method="GET", path=self._path("blobs", blob.digest), most=blob.size), self._pull
            )
            if sha256(answer.data) == blob.digest:
                return answer.data
        raise UnsoundError(f"{self.repository}: what is served for {blob.digest} is something else.")

    def download(self, blob: Blob, path: Path, go_on: Callable[[], object] = lambda: None) -> None:
        """Write a blob of any size to a file, and hash it. ``go_on`` is called for each piece, and may raise."""
        into = partial(written_to, path, go_on)
        request = Request(method="GET", path=self._path("blobs", blob.digest), most=blob.size, into=into)
        self._transport.send(request, self._pull)
        if file_digest(path) != blob.digest:
            raise UnsoundError(f"{self.repository}: what is served for {blob.digest} is something else.")

    def referrers(self, digest: str) -> tuple[Blob, ...] | None:
        """The artifacts that the registry lists for an image; None where it has no such list."""
        path, found = self._path("referrers", digest), list[Blob]()
        for _ in range(100):  # pages; one image has some few artifacts
            try:
                answer = self._transport.send(Request(method="GET", path=path, most=_LARGEST_MANIFEST), self._pull)
            except StatusError as error:
                if error.passing or error.status in (401, 403):
                    raise
                return None
            if type_of(answer.headers, b"") != INDEX:  # a page for people
                return None
            found += [blob for blob, _ in Manifest(data=answer.data, media_type=INDEX).images]
            path = next_page(answer, self.repository)
            if not path:
                return tuple(found)
        raise UnsoundError(f"{self.repository} lists artifacts of {digest} without end.")

    def tags(self) -> tuple[str, ...]:
        """All tags, sorted; none where the repository does not exist."""
        tags, asked, path = set[str](), set[str](), self._path("tags", "list") + "?n=1000"
        while path not in asked and len(asked) < _MOST_PAGES and len(tags) < _MOST_TAGS:
            asked.add(path)
            request = Request(method="GET", path=path, good=(200, 404), most=_LARGEST_LIST)
            answer = self._transport.send(request, self._pull)
            if answer.status == 404 and len(asked) == 1:
                return ()
            if answer.status == 404:
                raise UnsoundError(f"{self.repository}: a page of its tags is not there: {path[:200]}")
            tags.update(tags_in(answer, self.repository))
            path = next_page(answer, self.repository)
            if not path:
                return tuple(sorted(tags))
        raise UnsoundError(f"{self.repository} lists tags without end, the last time at {path[:200]}.")

    def _path(self, kind: str, name: str) -> str:
        return f"{self.repository.path}/{kind}/{name}"
