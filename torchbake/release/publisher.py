"""Releases images: content first, then the immutable tag, then the record, then the rolling tags, then the record anew.

Whatever ends it, a registry is never left with a tag that lies: the immutable tag is set when all it needs is there,
and rolling tags that were moved go back where the rest cannot be moved. The record is written before they move and
once more afterwards, so that the next run, on whichever machine, knows what was begun and finishes it.

What is signed, recorded and promoted is the candidate that passed here, by its digest; what is there under its tag with
another digest must prove that it is ours (`verification`), and gets nothing of the candidate's.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from torchbake.errors import RegistryError
from torchbake.oci.labels import INPUTS
from torchbake.oci.manifest import Manifest
from torchbake.oci.tag_names import record_tag
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Idle, Signer
from torchbake.release.candidate import Candidate, Parcel, Published, Supply
from torchbake.release.decide import Decision, Move, decide, without_moves
from torchbake.release.immutable_tag import expect, place, places_of
from torchbake.release.mutex import locked
from torchbake.release.record import Found, Moved, Record, record_of, write_record
from torchbake.release.repository_view import Holdings
from torchbake.release.rolling_tags import move_tags
from torchbake.release.upload import Count, Delivery, Tell
from torchbake.release.verification import Verification

_UNSIGNED = Idle(hindrance="no key was given")


class Publisher:
    """Releases the images of one repository. Every method may raise RegistryError and EngineError.

    ``mounts`` are other repositories of the registry that may have layers already; ``signer`` signs what is released.
    ``keep_rolling`` releases under immutable tags alone.
    """

    def __init__(
        self, registry: Registry, *, mounts: Sequence[str] = (), signer: Signer = _UNSIGNED, keep_rolling: bool = False
    ) -> None:
        self._registry, self._signer, self._keep_rolling = registry, signer, keep_rolling
        self._holdings, self._delivery = Holdings(registry), Delivery(registry, mounts)
        self._verification = Verification(registry=registry, verifier=signer)

    def decide(self, candidate: Candidate) -> Decision:
        """What is due for an image of these labels; changes nothing, and proves nothing."""
        name = candidate.tags[0]
        standing = self._holdings.standing(name, candidate.tags)
        try:
            decision = decide(name, candidate.digest, candidate.labels, standing)
        except ValueError as error:
            raise RegistryError(f"{self._registry.repository}: {error}.", hint="Look who else writes there.") from None
        return self._keeping(decision) if self._keep_rolling else decision

    def plan(self, candidate: Candidate) -> Decision:
        """The same for a tested image. Raises PublishError where the registry has another one that is not ours.

        What somebody went back from stays as it is, and so is not asked where it is from.
        """
        decision = self.decide(candidate)
        if decision.digest != candidate.digest and decision.action != "held":
            if decision.action == "finish" and self._signer.hindrance:
                reason = f"{candidate.digest} is what was tested here; without a key nothing tells whose the other is"
                raise self._verification.refusal(decision.tag, decision.digest, reason)
            self._ours(decision)
        return decision

    def publish(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Published:
        """Release it, or finish its release, or find that nothing is due.

        Layers go without a lock, as they can do no harm; tags are read and set by one release at a time.
        """
        with locked(self._registry):
            decision = self.plan(candidate)
            due = self._is_due(candidate, decision)
        if not due:
            return Published(decision=decision, tested=candidate.digest)
        ours = decision.digest == candidate.digest
        parcel = self._delivery.send(candidate, supply, tell, count) if ours else None
        tell("waiting for other releases")
        with locked(self._registry):
            decision = self.plan(candidate)
            if self._is_due(candidate, decision):
                self._carry_out(candidate, decision, parcel, tell)
        sent = parcel.sent if parcel and decision.action == "release" else None
        return Published(decision=decision, tested=candidate.digest, sent=sent)

    def finish(self, tags: Sequence[str], tell: Tell, *, dry: bool = False) -> Decision | None:
        """Finish the newest release of the image whose tags these are, its own tag first; None where it has none.

        What was rolled back is ``held``, and stays. Raises PublishError for a release that is not ours.
        """
        with locked(self._registry):
            standing = self._holdings.standing(tags[0], tags)
            if standing.newest is None:
                return None
            decision = decide(tags[0], standing.newest.digest, standing.newest.labels, standing)
            if decision.action == "release":
                raise self._verification.refusal(
                    standing.newest_tag or decision.tag, decision.digest, "it does not say its inputs"
                )
            if decision.action == "finish":
                record = self._ours(decision)
                self._expect_key(decision, record)
                if not dry:
                    self._promote(decision, record, tell)
        return decision

    def _keeping(self, decision: Decision) -> Decision:
        recorded = decision.action == "finish" and self._found(decision) is not None
        return without_moves(decision, recorded=recorded)

    def _found(self, decision: Decision) -> Found | None:
        return record_of(self._registry, str(decision.tag), decision.digest)

    def _ours(self, decision: Decision) -> Record:
        """The record of a release that is there, and may be promoted."""
        held = self._holdings.image(decision.digest)
        if held is None:
            raise RegistryError(f"{self._registry.repository}:{decision.tag} is gone.")
        return self._verification.record(decision.tag, held)

    def _is_due(self, candidate: Candidate, decision: Decision) -> bool:
        """Whether something is to be done; what lies beside another image than the candidate is not ours to mend."""
        if decision.action in ("release", "finish"):
            return True
        return decision.digest == candidate.digest and not self._is_whole(decision)

    def _is_whole(self, decision: Decision) -> bool:
        """Whether all that lies beside an image is what its record says, and signed where we sign."""
        found = self._found(decision)
        if found is None:
            return True  # somebody went back from it before it had a record
        record = found.record
        if self._verification.misplaced(record):
            return False
        digests = [record.digest, *record.attached.values(), found.digest]
        signed = record.signature == self._signer.how and self._signer.holds(self._registry.repository, digests)
        return signed or bool(self._signer.hindrance)

    def _expect_key(self, decision: Decision, record: Record) -> None:
        """Raises PublishError where a record that is signed would be replaced by one that is not."""
        if self._signer.hindrance and record.is_signed:
            reason = f"its record is signed ({record.signature}): finish it with --key or --keyless"
            raise self._verification.refusal(decision.tag, decision.digest, reason)

    def _carry_out(self, candidate: Candidate, decision: Decision, parcel: Parcel | None, tell: Tell) -> None:
        found = self._found(decision)
        if found:
            self._expect_key(decision, found.record)
        if decision.digest != candidate.digest:
            self._promote(decision, self._ours(decision), tell)
        elif parcel is None:
            raise RegistryError(f"{self._registry.repository} changed meanwhile.", hint="Publish again.")
        elif decision.action in ("release", "finish"):
            self._release(candidate, decision, parcel, tell)
        else:
            self._mend(candidate, decision, parcel, tell)

    def _release(self, candidate: Candidate, decision: Decision, parcel: Parcel, tell: Tell) -> None:
        attached = place(self._registry, parcel, str(decision.tag))
        begun = self._found(decision)
        record = self._record(candidate, decision, parcel.manifest, attached, begun.record if begun else None)
        self._write(record, parcel.manifest, tell, also=(record.digest, *attached.values()))
        if not self._keep_rolling:
            self._roll(record, parcel.manifest, decision.due, tell)

    def _mend(self, candidate: Candidate, decision: Decision, parcel: Parcel, tell: Tell) -> None:
        """What lies beside a release is put back where it is not what was released, and signed where it can be now.

        It is made anew from the image at hand, so that nothing is signed for the reason alone that it was found there:
        of the record, only when it was released and which tags it moved.
        """
        attached = place(self._registry, parcel, str(decision.tag))
        found = self._found(decision)
        if found is None or (self._signer.hindrance and attached == found.record.attached):
            return
        record = self._record(candidate, decision, parcel.manifest, attached, None)
        kept = {name: getattr(found.record, name) for name in ("state", "released", "rolling", "kept")}
        self._write(record.model_copy(update=kept), parcel.manifest, tell, also=(record.digest, *attached.values()))

    def _promote(self, decision: Decision, record: Record, tell: Tell) -> None:
        """Finish a release that is there and ours: all that is new in its record is where its tags are."""
        rolling = _moved(decision, record)
        update = {"rolling": rolling, "kept": dict(decision.kept), "signature": self._signer.how}
        manifest = self._holdings.manifest(decision.digest)
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
            if not self._signer.hindrance:
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
            kept=decision.kept,
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
