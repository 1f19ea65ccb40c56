"""Writes a release: the immutable tag, then the record, then the rolling tags, then the record anew.

The immutable tag is set when all it needs is there, and rolling tags that were moved go back where the rest cannot be
moved. The record is written before they move and once more afterwards, so that the next run, on whichever machine,
knows what was begun and finishes it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from torchbake.oci.labels import INPUTS
from torchbake.oci.manifest import Manifest
from torchbake.oci.tag_names import record_tag
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.release.candidate import Candidate, Parcel
from torchbake.release.decide import Decision, Move
from torchbake.release.immutable_tag import expect, place, places_of
from torchbake.release.record import Found, Moved, Record, write_record
from torchbake.release.repository_view import Holdings
from torchbake.release.rolling_tags import move_tags
from torchbake.release.upload import Tell


class ReleaseWriter:
    """Writes what was decided, in one repository. Every method may raise RegistryError.

    ``signer`` signs what is released. With ``keep_rolling`` a release has its immutable tag alone, and is only begun.
    """

    def __init__(self, registry: Registry, signer: Signer, *, keep_rolling: bool = False) -> None:
        self._registry, self._signer, self._keep_rolling = registry, signer, keep_rolling

    def release(
        self, candidate: Candidate, decision: Decision, parcel: Parcel, begun: Found | None, tell: Tell
    ) -> None:
        """Release a candidate whose content is there, or finish what was ``begun`` of it."""
        attached = place(self._registry, parcel, str(decision.tag))
        record = self._record(candidate, decision, parcel.manifest, attached, begun.record if begun else None)
        self._write(record, parcel.manifest, tell, also=(record.digest, *attached.values()))
        if not self._keep_rolling:
            self._roll(record, parcel.manifest, decision.due, tell)

    def mend(self, candidate: Candidate, decision: Decision, parcel: Parcel, found: Found | None, tell: Tell) -> None:
        """What is attached to a release is put back where it is not what was released, and signed where it can be now.

        It is made anew from the image at hand, so that nothing is signed for the reason alone that it was found there:
        of the record, only when it was released and which tags it moved.
        """
        attached = place(self._registry, parcel, str(decision.tag))
        if found is None or (self._signer.skip_reason and attached == found.record.attached):
            return
        record = self._record(candidate, decision, parcel.manifest, attached, None)
        unchanged = {name: getattr(found.record, name) for name in ("state", "released", "rolling", "held_back")}
        self._write(
            record.model_copy(update=unchanged), parcel.manifest, tell, also=(record.digest, *attached.values())
        )

    def promote(self, decision: Decision, record: Record, tell: Tell) -> None:
        """Finish a release that is there and ours: all that is new in its record is where its tags are."""
        rolling = _moved(decision, record)
        update = {"rolling": rolling, "held_back": dict(decision.held_back), "signature": self._signer.how}
        manifest = Holdings(self._registry).manifest(decision.digest)
        self._roll(record.model_copy(update=update), manifest, decision.due, tell)

    def _roll(self, record: Record, manifest: Manifest, moves: Sequence[Move], tell: Tell) -> None:
        tell("moving tags")
        move_tags(self._registry, manifest, moves)
        self._write(record.model_copy(update={"state": "released"}), manifest, tell)

    def _write(self, record: Record, manifest: Manifest, tell: Tell, also: Sequence[str] = ()) -> None:
        """Write the record, signed together with ``also``. Before its tag shows it and after, all it names is there.

        Two machines may have set one immutable tag at the same moment: then one of them finds the other's image here.
        """

        def prepare(digest: str) -> None:
            if not self._signer.skip_reason:
                tell("signing")
                self._signer.sign(self._registry.repository, [*also, digest])
            expect(self._registry, places_of(record))

        written = write_record(self._registry, record, manifest, prepare)
        expect(self._registry, {**places_of(record), record_tag(record.tag): written})

    def _record(
        self,
        candidate: Candidate,
        decision: Decision,
        manifest: Manifest,
        attached: Mapping[str, str],
        begun: Record | None,
    ) -> Record:
        """Where rolling tags pointed before is what the run that began this release saw."""
        return Record(
            state="begun",
            id=candidate.id,
            tag=str(decision.tag),
            digest=candidate.digest,
            inputs=candidate.labels.get(INPUTS, ""),
            released=datetime.now(UTC).isoformat(timespec="seconds"),
            size=sum(layer.size for layer in manifest.layers),
            layers=len(manifest.layers),
            labels=dict(candidate.labels),
            rolling=_moved(decision, begun),
            held_back=decision.held_back,
            verdict=candidate.verdict,
            waived=candidate.waived,
            attached=attached,
            signature=self._signer.how,
        )


def _moved(decision: Decision, begun: Record | None) -> tuple[Moved, ...]:
    """Where rolling tags pointed before is what the run saw that began to move them."""
    earlier = {moved.tag: moved.before for moved in begun.rolling} if begun else {}
    return tuple(
        Moved(tag=move.tag, before=earlier.get(move.tag, move.before), after=move.after) for move in decision.moves
    )
