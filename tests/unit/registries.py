"""A registry in memory, with the interface of the real one: what a release does to it is seen request by request."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchbake.core.problem import Problem
from torchbake.errors import SignatureError
from torchbake.oci.manifest import Blob, Manifest, UnsoundError, sha256
from torchbake.oci.reference import Repository
from torchbake.registry.artifact import IMAGE_CONFIG, subject_of
from torchbake.registry.client import Registry
from torchbake.registry.http import HttpResponse
from torchbake.registry.transport import StatusError

OnMessage = Callable[[str, str], None]  # gets a request's method, and its tag or digest; may raise


@dataclass
class Store:
    """The contents of one repository."""

    tags: dict[str, str] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    signed: set[tuple[str, str]] = field(default_factory=set)  # keys, and the digests that they signed
    lists: bool = True  # has the referrers API
    artifacts: bool = True  # accepts configs that are not an image's
    indexes: bool = True  # accepts indexes
    immutable: str = ""  # a pattern of tags that are never written twice
    deletes: bool = True  # deletes manifests
    untags: bool = True  # deletes a tag alone


class MemoryRegistry(Registry):
    """The repository ``store``, as one machine sees it: turns are taken by name, and each machine has its own.

    ``message`` is called before each request.
    """

    def __init__(self, store: Store, machine: str = "one", message: OnMessage = lambda *_: None) -> None:
        self.repository = Repository(host=f"{machine}.example.com", path="team/pytorch")
        self.store, self.message = store, message
        self.images_only, self.lists_artifacts = False, True

    def manifest(self, key: str) -> Manifest | None:
        self.message("GET", key)
        return self.store.manifests.get(self.store.tags.get(key, key))

    def digest(self, tag: str) -> str | None:
        self.message("HEAD", tag)
        return self.store.tags.get(tag) or (tag if tag in self.store.manifests else None)

    def put(self, manifest: Manifest, key: str) -> None:
        self._write(manifest, key)

    def _write(self, manifest: Manifest, key: str) -> HttpResponse:
        self.message("PUT", key)
        if manifest.is_index and not self.store.indexes:
            raise StatusError("unknown media type", status=400, codes=("MANIFEST_INVALID",))
        if self.store.immutable and key in self.store.tags and re.search(self.store.immutable, key):
            raise StatusError(f"the tag {key} is immutable", status=400, codes=("TAG_INVALID",))
        self.store.manifests[manifest.digest] = manifest
        if key != manifest.digest:
            self.store.tags[key] = manifest.digest
        return HttpResponse(url="", status=201, reason="", headers={}, data=b"")

    def delete(self, key: str) -> bool:
        self.message("DELETE", key)
        if not (self.store.deletes and (self.store.untags or key in self.store.manifests)):
            raise StatusError("The operation is unsupported", status=405, codes=("UNSUPPORTED",))
        was_there = key in self.store.manifests or key in self.store.tags
        self.store.manifests.pop(key, None)
        self.store.tags = {tag: digest for tag, digest in self.store.tags.items() if key not in (tag, digest)}
        return was_there

    def attach(self, manifest: Manifest) -> bool:
        if not self.store.artifacts and manifest.config.media_type != IMAGE_CONFIG:
            raise StatusError("unknown config media type", status=400, codes=("MANIFEST_INVALID",))
        self._write(manifest, manifest.digest)
        return self.store.lists

    def referrers(self, digest: str) -> tuple[Blob, ...] | None:
        self.message("GET", digest)
        if not self.store.lists:
            return None
        manifests = [one for one in self.store.manifests.values() if not one.is_index and subject_of(one) == digest]
        return tuple(Blob(digest=one.digest, size=len(one.data)) for one in manifests)

    def try_upload(self) -> None:
        self.message("POST", "upload")

    def digests(self, tags: Iterable[str]) -> list[str | None]:
        """One after the other: a machine takes its turns in one thread."""
        return [self.digest(tag) for tag in tags]

    def size_of(self, digest: str) -> int | None:
        self.message("HEAD", digest)
        return len(self.store.blobs[digest]) if digest in self.store.blobs else None

    def mount(self, blob: Blob, source: str) -> bool:
        return False

    def upload(self, blob: Blob, path: Path, count: Callable[[int], None] = lambda _: None) -> None:
        self.message("POST", blob.digest)
        data = path.read_bytes()
        assert sha256(data) == blob.digest
        self.store.blobs[blob.digest] = data

    def read(self, blob: Blob) -> bytes:
        self.message("GET", blob.digest)
        if blob.digest not in self.store.blobs:
            raise UnsoundError(f"{self.repository}: {blob.digest} is not there.")
        return self.store.blobs[blob.digest]

    def download(self, blob: Blob, path: Path, go_on: Callable[[], object] = lambda: None) -> None:
        go_on()
        data = self.read(blob)
        path.write_bytes(data)
        if sha256(data) != blob.digest:
            raise UnsoundError(f"{self.repository}: what is served for {blob.digest} is something else.")

    def config(self, manifest: Manifest) -> dict[str, Any]:
        return Manifest(data=self.read(manifest.config), media_type="").content

    def tags(self) -> tuple[str, ...]:
        self.message("GET", "tags")
        return tuple(sorted(self.store.tags))


@dataclass(frozen=True, kw_only=True)
class MemorySigner:
    """Signs in a store by the name of a key."""

    store: Store
    key: str = "ours"
    skip_reason: str = ""

    @property
    def how(self) -> str:
        return f"by {self.key}"

    def sign(self, repository: Repository, digests: Sequence[str]) -> None:
        for digest in digests:
            if digest not in self.store.manifests:
                raise SignatureError(f"{digest} is not there")
        self.store.signed |= {(self.key, digest) for digest in digests}

    def holds(self, repository: Repository, digests: Sequence[str]) -> bool:
        return not any(self.problem(repository, digest) for digest in digests)

    def problem(self, repository: Repository, digest: str) -> Problem | None:
        return None if (self.key, digest) in self.store.signed else Problem(reason="not signed")


class Turns:
    """Runs several works, each in a thread, and lets one at a time go on to its next question or change of a tag.

    ``order`` says whose turn is next; a work that has ended loses its turns, and after the last the works go on one
    after the other, by name.
    """

    def __init__(self, order: Sequence[str]) -> None:
        self._order, self._changed = list(order), threading.Condition()
        self._running: set[str] = set()
        self._active = ""

    def run(self, works: Mapping[str, Callable[[OnMessage], object]]) -> dict[str, Exception | None]:
        """How each ended: None for well."""
        ends: dict[str, Exception | None] = {}
        self._running = set(works)

        def work(name: str) -> None:
            try:
                works[name](lambda _, key: None if key.startswith("sha256:") else self._step(name))
                ends[name] = None
            except Exception as error:
                ends[name] = error
            with self._changed:
                self._running.discard(name)
                self._active = "" if self._active == name else self._active
                self._changed.notify_all()

        threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a work waits for a turn that never comes"
        return ends

    def _step(self, name: str) -> None:
        """The turn lasts until the work's next step, so that its request is done alone."""
        with self._changed:
            if self._active == name:
                self._active = ""
                self._changed.notify_all()
            self._changed.wait_for(lambda: not self._active and self._next() == name, 60)
            self._active = name
            if self._order:
                self._order.pop(0)

    def _next(self) -> str:
        while self._order and self._order[0] not in self._running:
            self._order.pop(0)
        return self._order[0] if self._order else min(self._running)
