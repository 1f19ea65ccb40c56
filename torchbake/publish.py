"""Releases images: content first, then the immutable tag, then the rolling tags, then the record.

Whatever ends it, a registry is never left with a tag that lies: the immutable tag is set when all it needs is there,
and rolling tags that were moved go back where the rest cannot be moved. The record is written before they move and
once more afterwards, so that the next run, on whichever machine, knows what was begun and finishes it.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from torchbake.artifact import ARTIFACTS, artifact_tag, put_artifact, subject_of
from torchbake.candidate import Candidate, Parcel, Published, Sent, Supply
from torchbake.content import Content
from torchbake.errors import PublishError, RegistryError
from torchbake.labels import INPUTS
from torchbake.registry import Blob, Manifest, Registry
from torchbake.release import NAME, Moved, Record, read_record, record_tag, write_record
from torchbake.signature import Idle, Signer
from torchbake.standing import Decision, Held, ImmutableTag, Move, Standing, decide, revisions_of, without_moves
from torchbake.turns import locked

_UPLOADS = 3  # side by side
_LOOKS, _BETWEEN_LOOKS = 5, 0.2  # at a tag that is listed and not served; seconds
_UNSIGNED = Idle(hindrance="no key was given")
Tell = Callable[[str], None]
Count = Callable[[Blob, int], None]  # bytes of a blob that went; a minus where they must go again


class Publisher:
    """Releases the images of one repository. Every method may raise RegistryError and EngineError.

    ``mounts`` are other repositories of the registry that may have layers already; ``signer`` signs what is released.
    ``keep_rolling`` releases under immutable tags alone.
    """

    def __init__(
        self, registry: Registry, *, mounts: Sequence[str] = (), signer: Signer = _UNSIGNED, keep_rolling: bool = False
    ) -> None:
        self._registry, self._mounts, self._signer, self._keep_rolling = registry, mounts, signer, keep_rolling
        self._held: dict[str, Held] = {}

    def standing(self, name: str, tags: Sequence[str]) -> Standing:
        """What the registry holds of the image whose own tag is ``name``."""
        there = self._registry.tags()
        revisions = revisions_of(name, there)
        newest = revisions[-1] if revisions else None
        return Standing(
            newest_tag=newest,
            newest=self._listed(str(newest)) if newest else None,
            recorded=newest is not None and self._is_recorded(str(newest), there),
            rolling=self.rolling(tags, there),
        )

    def rolling(self, tags: Sequence[str], there: Collection[str]) -> dict[str, Held | None]:
        """What each of the tags points at; ``there``: all tags of the registry."""
        return {tag: self._listed(tag) if tag in there else None for tag in tags}

    def decide(self, candidate: Candidate) -> Decision:
        """What is due for a candidate; changes nothing."""
        name = candidate.tags[0]
        try:
            standing = self.standing(name, candidate.tags)
            decision = decide(name, candidate.digest, candidate.labels, standing)
        except ValueError as error:
            raise RegistryError(f"{self._registry.repository}: {error}.", hint="Look who else writes there.") from None
        return self._keeping(decision) if self._keep_rolling else decision

    def _keeping(self, decision: Decision) -> Decision:
        recorded = decision.action == "finish" and read_record(self._registry, str(decision.tag)) is not None
        return without_moves(decision, recorded=recorded)

    def publish(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Published:
        """Release it, or finish its release, or find that nothing is due.

        Layers go without a lock, as they can do no harm; tags are read and set by one release at a time.
        """
        with locked(self._registry):
            decision = self.decide(candidate)
        if decision.action in ("nothing", "held"):
            self._mend(candidate, decision, supply, tell)
            return Published(decision=decision)
        parcel = self._send(candidate, supply, tell, count) if decision.action == "release" else None
        tell("waiting for other releases")
        with locked(self._registry):
            decision = self.decide(candidate)
            if decision.action == "release":
                if parcel is None:
                    raise RegistryError(f"{self._registry.repository} changed meanwhile.", hint="Publish again.")
                self._set_immutable(parcel, decision.tag)
            if decision.action in ("release", "finish"):
                record = self._begin(candidate, decision, tell)
                if not self._keep_rolling:
                    self._roll(record, decision.due, tell)
        return Published(decision=decision, sent=parcel.sent if parcel else None)

    def finish(self, tags: Sequence[str], tell: Tell, *, dry: bool = False) -> Decision | None:
        """Finish the newest release of the image whose tags these are, its own tag first; None where it has none.

        What was rolled back is ``held``, and stays. Raises RegistryError, also where the release has no record.
        """
        with locked(self._registry):
            standing = self.standing(tags[0], tags)
            if standing.newest is None:
                return None
            decision = decide(tags[0], standing.newest.digest, standing.newest.labels, standing)
            if decision.action == "finish" and not dry:
                record = self._begun(decision)
                self._sign([record.digest, *record.attached.values()], tell)
                self._roll(record, decision.due, tell)
        return decision

    def _begun(self, decision: Decision) -> Record:
        """The record of a release that was begun, with the moves that are due now."""
        record = read_record(self._registry, str(decision.tag))
        if record is None:
            raise RegistryError(
                f"{self._registry.repository}:{decision.tag} has no record: its release was interrupted.",
                hint="Publish it again.",
            )
        rolling = _moved(decision, record)
        update = {"rolling": rolling, "kept": dict(decision.kept), "signature": self._signer.how}
        return record.model_copy(update=update)

    def _begin(self, candidate: Candidate, decision: Decision, tell: Tell) -> Record:
        manifest = self._manifest(decision.digest)
        record = self._record(candidate, decision, manifest)
        self._sign([record.digest, *record.attached.values()], tell)
        write_record(self._registry, record, manifest)
        return record

    def _roll(self, record: Record, moves: Sequence[Move], tell: Tell) -> None:
        tell("moving tags")
        manifest = self._manifest(record.digest)
        self.move(manifest, moves)
        done = record.model_copy(update={"state": "released"})
        write_record(self._registry, done, manifest, sign=lambda digest: self._sign([digest], tell))

    def _sign(self, digests: Sequence[str], tell: Tell) -> None:
        if not self._signer.hindrance:
            tell("signing")
            self._signer.sign(self._registry.repository, digests)

    def _mend(self, candidate: Candidate, decision: Decision, supply: Supply, tell: Tell) -> None:
        """What lies beside a release is put back where it is not what was released, and signed where it can be now.

        It is made anew from the image at hand, so that nothing is signed for the reason alone that it was found there:
        of the record, only when it was released and which tags it moved.
        """
        found = read_record(self._registry, str(decision.tag))
        if found is None or self._is_whole(found):
            return
        if candidate.digest != found.digest:
            raise PublishError(
                f"{decision.tag} is not whole or not signed, and the image here is another build of the same inputs.",
                hint="Release it where it was built, or look at it: nox -s validate; docs/supply-chain.md#by-hand",
            )
        parcel = self._send(candidate, supply, tell, lambda *_: None)
        with locked(self._registry):
            self._set_immutable(parcel, decision.tag)
            record = self._record(candidate, decision, parcel.manifest).model_copy(
                update={name: getattr(found, name) for name in ("state", "released", "rolling", "kept")}
            )
            if self._signer.hindrance and record.attached == found.attached:
                return
            self._sign([record.digest, *record.attached.values()], tell)
            write_record(self._registry, record, parcel.manifest, sign=lambda digest: self._sign([digest], tell))

    def _is_whole(self, record: Record) -> bool:
        """Whether all that lies beside an image is what its record says, and signed where we sign."""
        beside = {name: self._registry.digest(artifact_tag(record.tag, name)) for name in (*ARTIFACTS, NAME)}
        there = {name: digest for name, digest in beside.items() if digest}
        said = {name: digest for name, digest in there.items() if name != NAME}
        if said != record.attached or self._signer.hindrance:
            return said == record.attached
        signed = record.signature == self._signer.how
        return signed and self._signer.holds(self._registry.repository, [record.digest, *there.values()])

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

    def _send(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Parcel:
        """All that the image's manifest needs."""
        with tempfile.TemporaryDirectory(prefix="torchbake-publish-") as folder:
            tell("reading the image")
            content = supply.source.take_out(
                candidate.digest, Path(folder), lambda digest: supply.needs(digest) or not self._there(digest)
            )
            tell("sending layers")
            blobs = content.manifest.blobs
            with ThreadPoolExecutor(_UPLOADS + 1) as pool:
                described = pool.submit(supply.describe, content)
                needed = list(pool.map(lambda blob: self._upload(content, blob, count), blobs))
        sizes = [blob.size for blob, sent in zip(blobs, needed, strict=True) if sent]
        whole = sum(blob.size for blob in content.manifest.layers)
        return Parcel(
            manifest=content.manifest,
            artifacts=tuple(described.result()),
            sent=Sent(bytes=sum(sizes), layers=len(sizes), whole=whole),
        )

    def _set_immutable(self, parcel: Parcel, tag: ImmutableTag) -> None:
        """Asked for before and after: it is never written over. What is said of the image is there before it is."""
        manifest = parcel.manifest
        taken = self._registry.digest(str(tag))
        if taken not in (None, manifest.digest):
            raise RegistryError(
                f"{self._registry.repository}:{tag} was taken by another release meanwhile ({taken}).",
                hint="Publish again: it finds the next revision.",
            )
        for artifact in parcel.artifacts:
            beside = put_artifact(self._registry, artifact, manifest)
            self._registry.put(beside, artifact_tag(str(tag), artifact.name))
        if taken is None:
            self._registry.put(manifest, str(tag))

    def _there(self, digest: str) -> bool:
        return self._registry.size_of(digest) is not None

    def _upload(self, content: Content, blob: Blob, count: Count) -> bool:
        """Whether it had to be sent."""
        if self._registry.has(blob) or any(self._registry.mount(blob, source) for source in self._mounts):
            return False
        path = content.path(blob)
        if not path.exists():
            raise RegistryError(f"{self._registry.repository} had {blob.digest}, and now it has not.", hint="Again.")
        self._registry.upload(blob, path, partial(count, blob))
        return True

    def _is_recorded(self, tag: str, there: Sequence[str]) -> bool:
        record = read_record(self._registry, tag) if record_tag(tag) in there else None
        return record is not None and record.state == "released"

    def _record(self, candidate: Candidate, decision: Decision, manifest: Manifest) -> Record:
        """Where rolling tags pointed before is what the run that began this release saw."""
        begun = read_record(self._registry, str(decision.tag)) if decision.action == "finish" else None
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
            rolling=_moved(decision, begun),
            kept=decision.kept,
            verdict=candidate.verdict,
            waived=candidate.waived,
            attached=self._attached(str(decision.tag), decision.digest),
            signature=self._signer.how,
        )

    def _attached(self, tag: str, digest: str) -> dict[str, str]:
        """What lies beside an image by name: the digests of artifacts that are of this very image."""
        found = {name: self._registry.manifest(artifact_tag(tag, name)) for name in ARTIFACTS}
        return {name: beside.digest for name, beside in found.items() if beside and subject_of(beside) == digest}

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


def _moved(decision: Decision, begun: Record | None) -> tuple[Moved, ...]:
    """Where rolling tags pointed before is what the run saw that began to move them."""
    earlier = {moved.tag: moved.before for moved in begun.rolling} if begun else {}
    return tuple(
        Moved(tag=move.tag, before=earlier.get(move.tag, move.before), after=move.after) for move in decision.moves
    )


def labels_of(registry: Registry, digest: str) -> dict[str, str] | None:
    """An image's labels; an index, or what is no image, has none. None where the registry does not have it."""
    manifest = registry.manifest(digest)
    if manifest is None:
        return None
    if manifest.is_index:
        return {}
    return (registry.config(manifest).get("config") or {}).get("Labels") or {}
