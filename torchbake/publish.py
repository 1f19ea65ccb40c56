"""Releases images: content first, then the immutable tag, then the rolling tags, then the record.

Whatever ends it, a registry is never left with a tag that lies: the immutable tag is set when all it needs is there,
and rolling tags that were moved go back where the rest cannot be moved. The record is written before they move and
once more afterwards, so that the next run, on whichever machine, knows what was begun and finishes it.
"""

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from torchbake.content import Content, Source
from torchbake.errors import RegistryError
from torchbake.labels import INPUTS
from torchbake.registry import Blob, Manifest, Registry
from torchbake.release import Judgement, Moved, Record, read_record, record_tag, write_record
from torchbake.standing import Decision, Held, ImmutableTag, Move, Standing, decide, revisions_of

_UPLOADS = 3  # side by side
_LOOKS, _BETWEEN_LOOKS = 5, 0.2  # at a tag that is listed and not served; seconds
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A tested image to release. ``tags`` are its rolling tags, its own tag first, the widest last."""

    id: str
    digest: str
    labels: Mapping[str, str]
    tags: tuple[str, ...]
    verdict: Judgement | None
    waived: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What went over the wire: bytes and layers that were sent, and bytes of all layers."""

    bytes: int
    layers: int
    whole: int


@dataclass(frozen=True, kw_only=True)
class Published:
    """What became of a candidate. ``decision`` is what was found to be due when it began."""

    decision: Decision
    sent: Sent | None = None


class Publisher:
    """Releases the images of one repository. Every method may raise RegistryError and EngineError.

    ``mounts`` are other repositories of the registry that may have layers already.
    """

    def __init__(self, registry: Registry, source: Source, *, mounts: Sequence[str] = ()) -> None:
        self._registry, self._source, self._mounts = registry, source, mounts
        self._held: dict[str, Held] = {}

    def standing(self, name: str, tags: Sequence[str], known: Sequence[str] | None = None) -> Standing:
        """What the registry holds of the image whose own tag is ``name``; ``known``: the registry's tags, if asked."""
        there = self._registry.tags() if known is None else known
        revisions = revisions_of(name, there)
        newest = revisions[-1] if revisions else None
        return Standing(
            newest_tag=newest,
            newest=self._listed(str(newest)) if newest else None,
            recorded=newest is not None and self._is_recorded(str(newest), there),
            rolling={tag: self._listed(tag) if tag in there else None for tag in tags},
        )

    def decide(self, candidate: Candidate) -> Decision:
        """What is due for a candidate; changes nothing."""
        name = candidate.tags[0]
        try:
            return decide(name, candidate.digest, candidate.labels, self.standing(name, candidate.tags))
        except ValueError as error:
            raise RegistryError(f"{self._registry.repository}: {error}.", hint="Look who else writes there.") from None

    def publish(self, candidate: Candidate, tell: Tell, count: Callable[[int], None]) -> Published:
        """Release it, or finish its release, or find that nothing is due.

        Layers go without a lock, as they can do no harm; tags are read and set by one release at a time.
        """
        with locked(self._registry):
            decision = self.decide(candidate)
        sent, manifest = None, None
        if decision.action == "release":
            sent, manifest = self._send(candidate, tell, count)
        if decision.action in ("nothing", "held"):
            return Published(decision=decision)
        tell("waiting for other releases")
        with locked(self._registry):
            decision = self.decide(candidate)
            if decision.action == "release":
                if manifest is None:
                    raise RegistryError(f"{self._registry.repository} changed meanwhile.", hint="Publish again.")
                self._set_immutable(manifest, decision.tag)
            if decision.action in ("release", "finish"):
                self._roll(candidate, decision, tell)
        return Published(decision=decision, sent=sent)

    def _roll(self, candidate: Candidate, decision: Decision, tell: Tell) -> None:
        manifest = self._manifest(decision.digest)
        record = self._record(candidate, decision, manifest)
        tell("moving tags")
        write_record(self._registry, record, manifest)
        self.move(manifest, decision.due)
        write_record(self._registry, record.model_copy(update={"state": "released"}), manifest)

    def move(self, manifest: Manifest, moves: Sequence[Move]) -> None:
        """Set rolling tags, in order; where one cannot be set, those before it go back, and the error is raised."""
        done: list[Move] = []
        try:
            for move in moves:
                done.append(move)
                self._registry.put(manifest, move.tag)
            for move in moves:
                found = self._registry.digest(move.tag)
                if found != move.after:
                    raise RegistryError(
                        f"{move.tag} was set to {move.after}, and now is {found}: who else writes there?"
                    )
        except BaseException:
            self._restore(done)
            raise

    def _restore(self, moves: Sequence[Move]) -> None:
        for move in reversed(moves):
            if move.before:
                with contextlib.suppress(RegistryError):  # the first error is the one to tell
                    self._registry.put(self._manifest(move.before), move.tag)

    def _send(self, candidate: Candidate, tell: Tell, count: Callable[[int], None]) -> tuple[Sent, Manifest]:
        """All that the image's manifest needs."""
        with tempfile.TemporaryDirectory(prefix="torchbake-publish-") as folder:
            tell("reading the image")
            content = self._source.take_out(candidate.digest, Path(folder), lambda digest: not self._there(digest))
            tell("sending layers")
            blobs = content.manifest.blobs
            with ThreadPoolExecutor(_UPLOADS) as pool:
                needed = list(pool.map(lambda blob: self._upload(content, blob, count), blobs))
        sizes = [blob.size for blob, sent in zip(blobs, needed, strict=True) if sent]
        whole = sum(blob.size for blob in content.manifest.layers)
        return Sent(bytes=sum(sizes), layers=len(sizes), whole=whole), content.manifest

    def _set_immutable(self, manifest: Manifest, tag: ImmutableTag) -> None:
        """Asked for before and after: it is never written over."""
        taken = self._registry.digest(str(tag))
        if taken not in (None, manifest.digest):
            raise RegistryError(
                f"{self._registry.repository}:{tag} was taken by another release meanwhile ({taken}).",
                hint="Publish again: it finds the next revision.",
            )
        if taken is None:
            self._registry.put(manifest, str(tag))

    def _there(self, digest: str) -> bool:
        return self._registry.size_of(digest) is not None

    def _upload(self, content: Content, blob: Blob, count: Callable[[int], None]) -> bool:
        """Whether it had to be sent."""
        if self._registry.has(blob) or any(self._registry.mount(blob, source) for source in self._mounts):
            return False
        path = content.path(blob)
        if not path.exists():
            raise RegistryError(f"{self._registry.repository} had {blob.digest}, and now it has not.", hint="Again.")
        self._registry.upload(blob, path, count)
        return True

    def _is_recorded(self, tag: str, there: Sequence[str]) -> bool:
        record = read_record(self._registry, tag) if record_tag(tag) in there else None
        return record is not None and record.state == "released"

    def _record(self, candidate: Candidate, decision: Decision, manifest: Manifest) -> Record:
        """Where rolling tags pointed before is what the run that began this release saw."""
        begun = read_record(self._registry, str(decision.tag)) if decision.action == "finish" else None
        earlier = {moved.tag: moved.before for moved in begun.rolling} if begun else {}
        return Record(
            state="begun",
            id=candidate.id,
            tag=str(decision.tag),
            digest=decision.digest,
            inputs=candidate.labels.get(INPUTS, ""),
            released=datetime.now(UTC).isoformat(timespec="seconds"),
            size=sum(layer.size for layer in manifest.layers),
            layers=len(manifest.layers),
            labels=dict(candidate.labels),
            rolling=tuple(
                Moved(tag=move.tag, before=earlier.get(move.tag, move.before), after=move.after)
                for move in decision.moves
            ),
            kept=decision.kept,
            verdict=candidate.verdict,
            waived=candidate.waived,
        )

    def _manifest(self, digest: str) -> Manifest:
        found = self._registry.manifest(digest)
        if found is None:
            raise RegistryError(f"{self._registry.repository} does not hold {digest}.")
        return found

    def _listed(self, tag: str) -> Held:
        """The image under a tag that is there; somebody may be writing it just now, so it is asked for again."""
        for _ in range(_LOOKS):
            held = self.look(tag)
            if held:
                return held
            time.sleep(_BETWEEN_LOOKS)
        raise RegistryError(f"{self._registry.repository} lists the tag {tag}, but does not serve it.")

    def digest(self, tag: str) -> str | None:
        """What a tag points at; None where there is none."""
        return self._registry.digest(tag)

    def look(self, tag: str) -> Held | None:
        """The image under a tag; None where there is none."""
        digest = self._registry.digest(tag)
        if digest is None:
            return None
        if digest not in self._held:
            labels = labels_of(self._registry, digest)
            if labels is None:
                return None
            self._held[digest] = Held(digest=digest, labels=labels)
        return self._held[digest]


def labels_of(registry: Registry, digest: str) -> dict[str, str] | None:
    """An image's labels; an index, or what is no image, has none. None where the registry does not have it."""
    manifest = registry.manifest(digest)
    if manifest is None:
        return None
    if manifest.is_index:
        return {}
    config = Manifest(data=registry.read(manifest.config), media_type=manifest.config.media_type).content
    return (config.get("config") or {}).get("Labels") or {}


_THREADS: dict[str, threading.Lock] = {}


@contextlib.contextmanager
def locked(registry: Registry) -> Iterator[None]:
    """One release at a time for a repository, among all users of this machine.

    A registry has no lock of its own: releases from several machines are put in a row by their CI (docs/tags.md).
    """
    name = sha256(str(registry.repository).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"torchbake-release-{name}.lock")
    with _THREADS.setdefault(name, threading.Lock()):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
