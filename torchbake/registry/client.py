"""One repository of a registry: its manifests, blobs and tags, read and written.

The protocol is the OCI distribution specification 1.1. The client checks the digest of each manifest and blob that it
reads, and asks the registry again for each manifest that it has written.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

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
from torchbake.registry.http import MISCALLED, HttpRequest, HttpResponse, SizedBody, written_to
from torchbake.registry.listing import next_page, tags_in
from torchbake.registry.origin import led_to
from torchbake.registry.transport import ATTEMPTS, RegistryTransport, StatusError

_ACCEPT = {"Accept": ", ".join((MANIFEST, INDEX, DOCKER, DOCKER_LIST))}
_LARGEST_MANIFEST = 4 * 2**20  # Bytes; the specification asks registries to take at least this.
_LARGEST_CONFIG = 8 * 2**20  # A config of our images has a few kB.
_LARGEST_LIST = 32 * 2**20  # A page of tags; some registries send all tags at once.
_LARGEST_READ = 64 * 2**20  # A file that is read into memory; the largest is an SBOM of one or two MB.
_MOST_PAGES, _MOST_TAGS = 10_000, 1_000_000
_CHUNK = 2**20
_AT_ONCE = 4  # parallel requests: a small request spends most of its time on the network
_SIZE = re.compile(r"[0-9]{1,18}")
# The registry has forgotten an upload, or its body was damaged: the upload can be repeated.
_BROKEN_UPLOAD = {"BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID", "DIGEST_INVALID", "SIZE_INVALID"}

Count = Callable[[int], None]


class Registry:
    """One repository of a registry. Safe for many threads. Every method may raise RegistryError."""

    def __init__(self, transport: RegistryTransport, repository: Repository) -> None:
        self.images_only = False  # True after the registry has refused a manifest without an image's config
        self.lists_artifacts = True  # until it has refused a list of an image's artifacts
        self._transport, self.repository = transport, repository
        self._pull = f"repository:{repository.path}:pull"
        self._push = f"repository:{repository.path}:pull,push"

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest of a tag or a digest; None if the registry has none."""
        for _ in range(ATTEMPTS):
            path = self._path("manifests", key)
            answer = self._ask("GET", path, good=(200, 404), headers=_ACCEPT, most=_LARGEST_MANIFEST)
            if answer.status == 404:
                return None
            manifest = Manifest(data=answer.data, media_type=type_of(answer.headers, answer.data))
            reported = answer.headers.get("Docker-Content-Digest", manifest.digest)
            expected = key if key.startswith("sha256:") else reported
            if manifest.digest == expected == reported:
                return manifest
        what = f"{key} is {expected[:200]}, but what is served for it is {manifest.digest}"
        raise UnsoundError(f"{self.repository}: {what}.")

    def digest(self, tag: str) -> str | None:
        """Return the digest that a tag points at, without fetching the manifest; None if there is no such tag."""
        answer = self._ask("HEAD", self._path("manifests", tag), good=(200, 404), headers=_ACCEPT)
        if answer.status == 404:
            return None
        reported = answer.headers.get("Docker-Content-Digest")
        if reported and not DIGEST.fullmatch(reported):
            raise UnsoundError(f"{self.repository}: {tag} is {reported[:200]!r}, which is not a digest.")
        if reported:
            return reported
        manifest = self.manifest(tag)  # this registry reports no digest for a HEAD
        return manifest.digest if manifest else None

    def digests(self, tags: Iterable[str]) -> list[str | None]:
        """Return the digest that each tag points at, by parallel requests."""
        return side_by_side(self.digest, tags, most=_AT_ONCE)

    def put(self, manifest: Manifest, key: str) -> None:
        """Write the manifest's bytes under a tag or its digest, and check that the registry serves them."""
        self._put(manifest, key)

    def attach(self, manifest: Manifest) -> bool:
        """Write an artifact under its digest. Return False if the registry does not list it for its subject."""
        answer = self._put(manifest, manifest.digest)
        return answer is not None and "OCI-Subject" in answer.headers

    def _put(self, manifest: Manifest, key: str) -> HttpResponse | None:
        try:
            answer = self._write(manifest, key)
        except StatusError:
            # An earlier attempt may have written it and lost the answer; an immutable tag then refuses equal bytes too.
            if self.digest(key) == manifest.digest:
                return None
            raise
        served = self.digest(key)
        if served != manifest.digest:
            raise RegistryError(f"{self.repository}:{key} was set to {manifest.digest}, but is {served}.")
        return answer

    def _write(self, manifest: Manifest, key: str) -> HttpResponse:
        if len(manifest.data) > _LARGEST_MANIFEST:
            raise RegistryError(f"A manifest of {len(manifest.data)} bytes is more than registries take.")
        path, headers = self._path("manifests", key), {"Content-Type": manifest.media_type}
        return self._ask("PUT", path, self._push, good=(201,), body=lambda: manifest.data, headers=headers)

    def put_all(
        self, manifest: Manifest, tags: Sequence[str], begin: Callable[[str], object] = lambda _: None
    ) -> list[str | None]:
        """Write a manifest under several tags, and return the digest that each tag points at afterwards.

        ``begin`` is called with each tag before it is written. The writes are not parallel: a registry may rewrite its
        link to the manifest for each tag, and serves no manifest at that moment.
        """
        for tag in tags:
            begin(tag)
            self._write(manifest, tag)
        return self.digests(tags)

    def delete(self, key: str) -> bool:
        """Remove a manifest with all its tags by its digest, or a tag alone. Return False if it was not there."""
        scope = f"repository:{self.repository.path}:pull,delete"
        return self._ask("DELETE", self._path("manifests", key), scope, good=(200, 202, 204, 404)).status != 404

    def has(self, blob: Blob) -> bool:
        """Check if the registry has the blob in its full size."""
        return self.size_of(blob.digest) == blob.size

    def size_of(self, digest: str) -> int | None:
        """Return the bytes of a blob; None if the registry lacks it."""
        answer = self._ask("HEAD", self._path("blobs", digest), good=(200, 404))
        if answer.status == 404:
            return None
        size = answer.headers.get("Content-Length", "")
        if not _SIZE.fullmatch(size):
            raise UnsoundError(f"{self.repository} has {digest}, and gives an impossible size: {size[:200]!r}.")
        return int(size)

    def mount(self, blob: Blob, source: str) -> bool:
        """Take a blob from another repository of the same registry. Return False if the registry does not allow it."""
        scope = f"{self._push} repository:{source}:pull"
        url = f"{self._path('blobs/uploads', '')}?{urlencode({'mount': blob.digest, 'from': source})}"
        try:
            return self._ask("POST", url, scope, good=(201, 202)).status == 201
        except StatusError:
            return False  # this login may not read there

    def upload(self, blob: Blob, path: Path, count: Count = lambda _: None) -> None:
        """Send a file as a blob.

        ``count`` is called with the bytes of each sent piece, and with a negative number if they must be sent again.
        """
        sent_bytes = 0

        def read(file: BinaryIO) -> Iterator[bytes]:
            nonlocal sent_bytes
            while piece := file.read(_CHUNK):
                yield piece
                sent_bytes += len(piece)
                count(len(piece))

        def body() -> Any:
            nonlocal sent_bytes
            count(-sent_bytes)
            sent_bytes = 0
            return SizedBody(read(path.open("rb")), blob.size)

        for attempt in range(ATTEMPTS):
            try:
                place = self._begin_upload()
                url = f"{place}{'&' if urlsplit(place).query else '?'}digest={quote(blob.digest)}"
                headers = {"Content-Type": "application/octet-stream"}
                self._ask("PUT", url, self._push, good=(201,), body=body, headers=headers)
                return
            except StatusError as error:
                if attempt + 1 == ATTEMPTS or not _BROKEN_UPLOAD.intersection(error.codes):
                    raise

    def try_upload(self) -> None:
        """Begin an upload and cancel it, to check that this login may push. Raises RegistryError."""
        place = self._begin_upload()
        with contextlib.suppress(StatusError):  # a registry without cancellation drops the upload after a while
            self._ask("DELETE", place, self._push, good=(200, 202, 204))

    def _begin_upload(self) -> str:
        """Return the address of a new upload."""
        answer = self._ask("POST", self._path("blobs/uploads", ""), self._push, good=(202,))
        try:
            return led_to(answer.url, answer.headers["Location"])
        except (KeyError, ValueError) as error:
            why = "names no address for it" if isinstance(error, KeyError) else str(error)
            raise RegistryError(f"{self.repository} begins an upload, and {why}.", hint=MISCALLED) from None

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """Return an image's configuration."""
        blob = manifest.config
        if blob.size > _LARGEST_CONFIG:
            raise UnsoundError(f"{self.repository}: the configuration {blob.digest} has {blob.size} bytes.")
        return Manifest(data=self.read(blob), media_type=blob.media_type).content

    def read(self, blob: Blob) -> bytes:
        """Return the bytes of a small blob, and check their digest."""
        if blob.size > _LARGEST_READ:
            raise UnsoundError(f"{self.repository}: {blob.digest} has {blob.size} bytes, too many for a text.")
        for _ in range(ATTEMPTS):
            answer = self._ask("GET", self._path("blobs", blob.digest), most=blob.size)
            if sha256(answer.data) == blob.digest:
                return answer.data
        raise UnsoundError(f"{self.repository}: what is served for {blob.digest} is something else.")

    def download(self, blob: Blob, path: Path, go_on: Callable[[], object] = lambda: None) -> None:
        """Write a blob of any size to a file, and check its digest. Each piece calls ``go_on``, which may raise."""
        self._ask("GET", self._path("blobs", blob.digest), most=blob.size, into=partial(written_to, path, go_on))
        if file_digest(path) != blob.digest:
            raise UnsoundError(f"{self.repository}: what is served for {blob.digest} is something else.")

    def referrers(self, digest: str) -> tuple[Blob, ...] | None:
        """Return the artifacts that the registry lists for an image; None if the registry has no such lists."""
        path, blobs = self._path("referrers", digest), list[Blob]()
        for _ in range(100):  # pages; an image has only a few artifacts
            try:
                answer = self._ask("GET", path, most=_LARGEST_MANIFEST)
            except StatusError as error:
                if error.passing or error.status in (401, 403):
                    raise
                return None
            if type_of(answer.headers, b"") != INDEX:  # an HTML page
                return None
            blobs += [blob for blob, _ in Manifest(data=answer.data, media_type=INDEX).images]
            path = next_page(answer, self.repository)
            if not path:
                return tuple(blobs)
        raise UnsoundError(f"{self.repository} lists artifacts of {digest} without end.")

    def tags(self) -> tuple[str, ...]:
        """Return all tags, sorted; none if the repository does not exist."""
        tags, seen_names, path = set[str](), set[str](), self._path("tags", "list") + "?n=1000"
        while path not in seen_names and len(seen_names) < _MOST_PAGES and len(tags) < _MOST_TAGS:
            seen_names.add(path)
            answer = self._ask("GET", path, good=(200, 404), most=_LARGEST_LIST)
            if answer.status == 404 and len(seen_names) == 1:
                return ()
            if answer.status == 404:
                raise UnsoundError(f"{self.repository}: a page of its tags is not there: {path[:200]}")
            tags.update(tags_in(answer, self.repository))
            path = next_page(answer, self.repository)
            if not path:
                return tuple(sorted(tags))
        raise UnsoundError(f"{self.repository} lists tags without end, the last time at {path[:200]}.")

    def _ask(self, method: str, url: str, scope: str = "", **options: Any) -> HttpResponse:
        """Send a request; ``options`` are the other fields of `HttpRequest`. The scope is pull if none is given."""
        return self._transport.send(HttpRequest(method=method, url=url, **options), scope or self._pull)

    def _path(self, kind: str, name: str) -> str:
        return f"{self.repository.path}/{kind}/{name}"
