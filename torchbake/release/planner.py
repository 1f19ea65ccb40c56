"""Decide and verify what is due for an image in a repository, without changing anything.

If the registry has another digest under the image's tag than the candidate's, that image must prove that it is ours.
"""

from collections.abc import Sequence

from torchbake.errors import RegistryError
from torchbake.oci.tag_names import ImmutableTag
from torchbake.registry.client import Registry
from torchbake.registry.cosign import NoCosign, Signer
from torchbake.registry.referrers import referrers_of
from torchbake.release.candidate import Candidate
from torchbake.release.decide import Decision, TagHolder, decide, without_moves
from torchbake.release.record import Record, StoredRecord, record_of
from torchbake.release.repository_view import Holdings
from torchbake.release.verification import Verification

UNSIGNED = NoCosign(skip_reason="no key was given")


class Planner:
    """Plans the releases of one repository. Every method may raise RegistryError.

    The ``signer`` would sign the releases. With ``immutable_only`` they get immutable tags only.
    """

    def __init__(self, registry: Registry, signer: Signer = UNSIGNED, *, immutable_only: bool = False) -> None:
        self._registry, self._signer, self._immutable_only = registry, signer, immutable_only
        self._holdings = Holdings(registry)
        self._verification = Verification(registry=registry, verifier=signer)

    def decide(self, candidate: Candidate) -> Decision:
        """Decide by the candidate's labels, without verification."""
        name = candidate.name
        standing = self._holdings.standing(name, candidate.tags)
        try:
            decision = decide(name, candidate.digest, candidate.labels, standing)
        except ValueError as error:
            hint = "Find out who else writes to this repository."
            raise RegistryError(f"{self._registry.repository}: {error}.", hint=hint) from None
        if not self._immutable_only:
            return decision
        recorded = decision.action == "finish" and self._find(decision) is not None
        return without_moves(decision, recorded=recorded)

    def plan(self, candidate: Candidate) -> Decision:
        """Decide for a tested image. Raises PublishError if the registry has another image, which is not ours.

        A release that was rolled back is not verified, as it stays as it is.
        """
        decision = self.decide(candidate)
        if not candidate.digest and self.other_compression(candidate, decision):
            return decision  # of the tested image
        if decision.digest != candidate.digest and decision.action != "held":
            if decision.action == "finish" and self._signer.skip_reason:
                reason = f"{candidate.digest} was tested here; without a key nobody can tell who made the other image"
                if compression := self.other_compression(candidate, decision):
                    reason = (
                        f"that is the tested image, compressed by {compression}: finish its release with "
                        "--compression as it was begun, or its tags by `promote --pending`"
                    )
                raise self._verification.refusal(decision.tag, decision.digest, reason)
            self.record(decision)
        return decision

    def unfinished(self, tags: Sequence[str]) -> tuple[Decision, Record | None] | None:
        """Find the newest release of the image with these tags, its own tag first; None if it has no release.

        The record is returned if the release must be finished. A release that was rolled back is ``held``. Raises
        PublishError if the release is not ours.
        """
        standing = self._holdings.standing(tags[0], tags)
        if standing.newest is None:
            return None
        decision = decide(tags[0], standing.newest.digest, standing.newest.labels, standing)
        if decision.action == "release":
            tag = standing.newest_tag or decision.tag
            raise self._verification.refusal(tag, decision.digest, "it does not say its inputs")
        if decision.action != "finish":
            return decision, None
        record = self.record(decision)
        self._refuse_unsigned(decision.tag, record)
        return decision, record

    def other_compression(self, candidate: Candidate, decision: Decision) -> str:
        """Name the compression of the released image, if it has the candidate's config and another digest."""
        holder = None if decision.digest == candidate.digest else self._holdings.image(decision.digest)
        return holder.compression if holder and holder.config and holder.config == candidate.config() else ""

    def is_due(self, candidate: Candidate, decision: Decision) -> bool:
        """Check if anything is due. The artifacts of another image than the candidate are never repaired."""
        if decision.action in ("release", "finish"):
            return True
        return decision.digest == candidate.digest and not self._is_whole(decision)

    def record(self, decision: Decision) -> Record:
        """Return the verified record of a release that may be promoted."""
        holder = self._holdings.image(decision.digest)
        if holder is None:
            raise RegistryError(f"{self._registry.repository}:{decision.tag} is gone.")
        return self._verification.record(decision.tag, holder)

    def verify(self, tag: ImmutableTag, holder: TagHolder) -> None:
        """Verify a release that another release will name. Raises PublishError if it is not ours, or unsigned here."""
        record = self._verification.record(tag, holder)
        self._refuse_unsigned(tag, record)

    def started_record(self, decision: Decision) -> StoredRecord | None:
        """Return the record of an earlier run for this decision, from which `ReleaseWriter` continues.

        Raises PublishError if an unsigned record would replace a signed one.
        """
        stored = self._find(decision)
        if stored:
            self._refuse_unsigned(decision.tag, stored.record)
        return stored

    def _refuse_unsigned(self, tag: ImmutableTag, record: Record) -> None:
        if self._signer.skip_reason and record.is_signed:
            reason = f"its record is signed ({record.signature}): finish it with --key or --keyless"
            raise self._verification.refusal(tag, record.digest, reason)

    def _is_whole(self, decision: Decision) -> bool:
        """Check the artifacts of a release: as in its record, listed with the image, and signed if we sign."""
        stored = self._find(decision)
        if stored is None:
            return True  # somebody rolled it back before it had a record
        record = stored.record
        if self._verification.misplaced(record):
            return False
        artifacts = [*record.attached.values(), stored.digest]
        if record.listed is not False and not referrers_of(self._registry, record.digest).issuperset(artifacts):
            return False
        digests = [record.digest, *artifacts]
        return bool(self._signer.skip_reason) or self._signer.holds(self._registry.repository, digests)

    def _find(self, decision: Decision) -> StoredRecord | None:
        return record_of(self._registry, str(decision.tag), decision.digest)
