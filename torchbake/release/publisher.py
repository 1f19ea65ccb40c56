"""Releases images: reads what is there (`planner`), brings content (`upload`), and sets tags and records (`writer`).

Whatever ends it, a registry is never left with a tag that lies: content goes first, and tags when all is there.

What is signed, recorded and promoted is the candidate that passed here, by its digest; what is there under its tag with
another digest must prove that it is ours, and gets nothing of the candidate's.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from torchbake.errors import RegistryError
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.registry.probe import Abilities, probe
from torchbake.release.candidate import Candidate, Parcel, Published, Supply
from torchbake.release.decide import Decision
from torchbake.release.mutex import locked
from torchbake.release.planner import UNSIGNED, Planner
from torchbake.release.upload import Count, Delivery, Tell
from torchbake.release.writer import ReleaseWriter


class Publisher:
    """Releases the images of one repository. Every method may raise RegistryError and EngineError.

    ``mounts`` are other repositories of the registry that may have layers already; ``signer`` signs what is released.
    ``keep_rolling`` releases under immutable tags alone.
    """

    def __init__(
        self, registry: Registry, *, mounts: Sequence[str] = (), signer: Signer = UNSIGNED, keep_rolling: bool = False
    ) -> None:
        self._registry, self._signs = registry, not signer.skip_reason
        self._planner = Planner(registry, signer, keep_rolling=keep_rolling)
        self._delivery = Delivery(registry, mounts)
        self._writer = ReleaseWriter(registry, signer)

    def plan(self, candidate: Candidate) -> Decision:
        """What is due for a tested image; changes nothing. Raises PublishError where another one is there, not ours."""
        return self._planner.plan(candidate)

    def rehearse(self, candidate: Candidate) -> Published:
        """The same, and whether the registry can take what is due, without leaving anything there."""
        decision = self.plan(candidate)
        abilities = self._abilities if decision.action in ("release", "finish") else None
        released_by = self._planner.other_compression(candidate, decision)
        return Published(decision=decision, tested=candidate.digest, abilities=abilities, released_by=released_by)

    @cached_property
    def _abilities(self) -> Abilities:
        return probe(self._registry)

    def publish(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Published:
        """Release it, or finish its release, or find that nothing is due.

        Layers go without a lock, as they can do no harm; tags are read and set by one release at a time.
        """
        with locked(self._registry):
            decision = self._planner.plan(candidate)
            due = self._planner.is_due(candidate, decision)
        released_by = self._planner.other_compression(candidate, decision)
        if not due:
            return Published(decision=decision, tested=candidate.digest, released_by=released_by)
        ours = decision.digest == candidate.digest
        # Nobody would believe a list of layers without a signature.
        supply = supply if self._signs else replace(supply, layers=None)
        parcel = self._delivery.send(candidate, supply, tell, count) if ours else None
        tell("waiting for other releases")
        with locked(self._registry):
            decision = self._planner.plan(candidate)
            if self._planner.is_due(candidate, decision):
                self._carry_out(candidate, decision, parcel, tell)
        sent = parcel.sent if parcel and decision.action == "release" else None
        return Published(decision=decision, tested=candidate.digest, sent=sent, released_by=released_by)

    def finish(self, tags: Sequence[str], tell: Tell, *, dry: bool = False) -> Decision | None:
        """Finish the newest release of the image whose tags these are, its own tag first; None where it has none.

        What was rolled back is ``held``, and stays. Raises PublishError for a release that is not ours.
        """
        with locked(self._registry):
            found = self._planner.unfinished(tags)
            if found is None:
                return None
            decision, record = found
            if record and not dry:
                self._writer.promote(decision, tell)
        return decision

    def _carry_out(self, candidate: Candidate, decision: Decision, parcel: Parcel | None, tell: Tell) -> None:
        found = self._planner.begun(decision)
        if decision.digest != candidate.digest:
            self._planner.record(decision)
            self._writer.promote(decision, tell)
        elif parcel is None:
            raise RegistryError(f"{self._registry.repository} changed meanwhile.", hint="Publish again.")
        else:
            self._writer.release(candidate, decision, parcel, found, tell)
