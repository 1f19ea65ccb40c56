"""What is due for an image in a repository: what is there is read and judged, and nothing is changed.

What is there under the image's tag with another digest than the candidate's must prove that it is ours.
"""

from collections.abc import Sequence

from torchbake.errors import RegistryError
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Idle, Signer
from torchbake.registry.referrers import referrers_of
from torchbake.release.candidate import Candidate
from torchbake.release.decide import Decision, decide, without_moves
from torchbake.release.record import Found, Record, record_of
from torchbake.release.repository_view import Holdings
from torchbake.release.verification import Verification

UNSIGNED = Idle(skip_reason="no key was given")


class Planner:
    """Plans the releases of one repository. Every method may raise RegistryError.

    ``signer`` is who would sign what is released; with ``keep_rolling`` that is released under immutable tags alone.
    """

    def __init__(self, registry: Registry, signer: Signer = UNSIGNED, *, keep_rolling: bool = False) -> None:
        self._registry, self._signer, self._keep_rolling = registry, signer, keep_rolling
        self._holdings = Holdings(registry)
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
        if not candidate.digest and self.other_compression(candidate, decision):
            return decision  # of the tested image
        if decision.digest != candidate.digest and decision.action != "held":
            if decision.action == "finish" and self._signer.skip_reason:
                reason = f"{candidate.digest} was tested here; without a key nobody can tell who made the other image"
                if compression := self.other_compression(candidate, decision):
                    reason = (
                        f"that is the tested image, compressed by {compression}: finish its release with "
                        "--compression as it was begun, or its tags by `promote --finish`"
                    )
                raise self._verification.refusal(decision.tag, decision.digest, reason)
            self.record(decision)
        return decision

    def unfinished(self, tags: Sequence[str]) -> tuple[Decision, Record | None] | None:
        """The newest release of the image whose tags these are, its own tag first; None where it has none.

        With the record of one that is to be finished; what was rolled back is ``held``, and stays. Raises PublishError
        for a release that is not ours.
        """
        standing = self._holdings.standing(tags[0], tags)
        if standing.newest is None:
            return None
        decision = decide(tags[0], standing.newest.digest, standing.newest.labels, standing)
        if decision.action == "release":
            raise self._verification.refusal(
                standing.newest_tag or decision.tag, decision.digest, "it does not say its inputs"
            )
        if decision.action != "finish":
            return decision, None
        record = self.record(decision)
        self._refuse_unsigned(decision, record)
        return decision, record

    def other_compression(self, candidate: Candidate, decision: Decision) -> str:
        """Name the compression of the released image, if it has the candidate's config and another digest."""
        held = None if decision.digest == candidate.digest else self._holdings.image(decision.digest)
        return held.compression if held and held.config and held.config == candidate.config() else ""

    def is_due(self, candidate: Candidate, decision: Decision) -> bool:
        """Whether something is to be done; what is attached to another image than the candidate is not ours to mend."""
        if decision.action in ("release", "finish"):
            return True
        return decision.digest == candidate.digest and not self._is_whole(decision)

    def record(self, decision: Decision) -> Record:
        """The record of a release that is there, and may be promoted."""
        held = self._holdings.image(decision.digest)
        if held is None:
            raise RegistryError(f"{self._registry.repository}:{decision.tag} is gone.")
        return self._verification.record(decision.tag, held)

    def begun(self, decision: Decision) -> Found | None:
        """The record of what was decided, where it has one already, as `ReleaseWriter` goes on from it.

        Raises PublishError where one that is signed would be replaced by one that is not.
        """
        found = self._found(decision)
        if found:
            self._refuse_unsigned(decision, found.record)
        return found

    def _refuse_unsigned(self, decision: Decision, record: Record) -> None:
        if self._signer.skip_reason and record.is_signed:
            reason = f"its record is signed ({record.signature}): finish it with --key or --keyless"
            raise self._verification.refusal(decision.tag, decision.digest, reason)

    def _keeping(self, decision: Decision) -> Decision:
        recorded = decision.action == "finish" and self._found(decision) is not None
        return without_moves(decision, recorded=recorded)

    def _is_whole(self, decision: Decision) -> bool:
        """Check that the artifacts of an image are what its record says, listed with it, and signed if we sign."""
        found = self._found(decision)
        if found is None:
            return True  # somebody went back from it before it had a record
        record = found.record
        if self._verification.misplaced(record):
            return False
        artifacts = [*record.attached.values(), found.digest]
        if record.listed is not False and not referrers_of(self._registry, record.digest).issuperset(artifacts):
            return False
        digests = [record.digest, *artifacts]
        return bool(self._signer.skip_reason) or self._signer.holds(self._registry.repository, digests)

    def _found(self, decision: Decision) -> Found | None:
        return record_of(self._registry, str(decision.tag), decision.digest)
