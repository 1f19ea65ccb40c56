"""Write a release: the immutable tag, then the artifacts of its image, then the record, then the rolling tags.

Each tag except the rolling tags is written once, so a registry may make it immutable. If a run was killed, the missing
tags show the rest of its work, and the next run on any machine finishes it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from torchbake.oci.labels import INPUTS
from torchbake.oci.manifest import Manifest
from torchbake.oci.tag_names import record_tag
from torchbake.registry.artifact import put_artifact
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.registry.referrers import list_again
from torchbake.release.candidate import Candidate, Parcel
from torchbake.release.decide import Decision
from torchbake.release.immutable_tag import expect, place, places_of
from torchbake.release.record import Record, StoredRecord, TagMove, write_record
from torchbake.release.repository_view import Holdings
from torchbake.release.rolling_tags import move_tags
from torchbake.release.upload import Tell


class ReleaseWriter:
    """Writes decided releases to one repository, signed by ``signer``. Every method may raise RegistryError."""

    def __init__(self, registry: Registry, signer: Signer) -> None:
        self._registry, self._signer = registry, signer

    def release(
        self, candidate: Candidate, decision: Decision, parcel: Parcel, stored: StoredRecord | None, tell: Tell
    ) -> None:
        """Release a candidate after its upload, or finish or repair its release with the record ``stored``.

        The artifacts are made again from the local image, so no artifact of the registry is signed unseen.
        """
        attached = place(self._registry, parcel, str(decision.tag))
        if parcel.shared:
            shared = put_artifact(self._registry, parcel.shared, parcel.manifest).digest
            if not self._signer.holds(self._registry.repository, [shared]):
                self._sign([shared], tell)
        record = self._record(candidate, decision, parcel.images[0], attached)
        if stored:  # only that record has the time of the release, and the tags before it
            constant_fields = ("state", "released", "rolling", "held_back", "listed")
            record = record.model_copy(update={name: getattr(stored.record, name) for name in constant_fields})
        if stored and self._may_stay(stored, record):
            parts = [record.digest, *attached.values(), stored.digest]
            if not self._signer.skip_reason and not self._signer.holds(self._registry.repository, parts):
                self._sign(parts, tell)
            expect(self._registry, {**places_of(stored.record), record_tag(record.tag): stored.digest})
            list_again(self._registry, stored.digest, record.digest)
        else:
            self._write(record, parcel.manifest, tell)
        self.promote(decision, tell)

    def promote(self, decision: Decision, tell: Tell) -> None:
        """Move the rolling tags to a verified release."""
        if decision.due:
            tell("moving tags")
            move_tags(self._registry, Holdings(self._registry).manifest(decision.digest), decision.due)

    def _may_stay(self, stored: StoredRecord, record: Record) -> bool:
        """Check if the record in the registry is equal to ``record``, or signed by us."""
        if stored.record.attached != record.attached or stored.record.flaw(record.tag, record.digest, record.labels):
            return False
        if self._signer.skip_reason or self._signer.holds(self._registry.repository, [stored.digest]):
            return True
        return stored.record.model_copy(update={"signature": record.signature}) == record

    def _write(self, record: Record, manifest: Manifest, tell: Tell) -> None:
        """Sign and write the record. Before and after its tag is set, each tag of the release must be as written.

        If two machines have set one immutable tag at the same time, one of them finds the other's image here.
        """

        def prepare(digest: str) -> None:
            self._sign([record.digest, *record.attached.values(), digest], tell)
            expect(self._registry, places_of(record))

        text = write_record(self._registry, record, manifest, prepare)
        expect(self._registry, {**places_of(record), record_tag(record.tag): text})

    def _sign(self, digests: Sequence[str], tell: Tell) -> None:
        if not self._signer.skip_reason:
            tell("signing")
            self._signer.sign(self._registry.repository, digests)

    def _record(self, candidate: Candidate, decision: Decision, first: Manifest, attached: Mapping[str, str]) -> Record:
        rolling = tuple(TagMove(tag=move.tag, before=move.before, after=move.after) for move in decision.moves)
        moving = {move.tag for move in decision.moves}
        return Record(
            id=candidate.id,
            tag=str(decision.tag),
            digest=candidate.digest,
            inputs=candidate.labels.get(INPUTS, ""),
            released=datetime.now(UTC).isoformat(timespec="seconds"),
            size=sum(layer.size for layer in first.layers),
            layers=len(first.layers),
            labels=dict(candidate.labels),
            rolling=rolling,
            held_back={tag: reason for tag, reason in decision.held_back.items() if tag not in moving},
            verdict=candidate.verdict,
            waived=candidate.waived,
            attached=attached,
            listed=self._registry.lists_artifacts,
            platforms=candidate.platforms,
            signature=self._signer.how,
        )
