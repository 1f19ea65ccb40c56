"""Release images: plan by the registry's tags (`planner`), send content (`upload`), write tags and records (`writer`).

Content is sent before tags are set, so an interrupted run never leaves a tag without its content.

A run signs, records and promotes the tested candidate by its digest. If the registry has another digest under the
candidate's tag, that image must prove that it is ours, and gets none of the candidate's artifacts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from torchbake.errors import RegistryError
from torchbake.registry.artifact import Artifact
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.registry.probe import Abilities, probe
from torchbake.release.attached_document import attach_document
from torchbake.release.candidate import Candidate, IndexPublication, Parcel, Publication, Supply
from torchbake.release.decide import Decision
from torchbake.release.index_parts import ReleasedPart, join, read_parts
from torchbake.release.mutex import locked
from torchbake.release.planner import UNSIGNED, Planner
from torchbake.release.platforms import PlatformSet
from torchbake.release.upload import Count, Delivery, Tell
from torchbake.release.writer import ReleaseWriter


class Publisher:
    """Releases the images of one repository. Every method may raise RegistryError and EngineError.

    The registry may have layers already in the repositories ``mounts``. The ``signer`` signs releases. With
    ``immutable_only`` they get immutable tags only.
    """

    def __init__(
        self, registry: Registry, *, mounts: Sequence[str] = (), signer: Signer = UNSIGNED, immutable_only: bool = False
    ) -> None:
        self.registry, self._signer = registry, signer
        self._planner = Planner(registry, signer, immutable_only=immutable_only)
        self._delivery = Delivery(registry, mounts)
        self._writer = ReleaseWriter(registry, signer)

    def plan(self, candidate: Candidate) -> Decision:
        """Decide what is due for a tested image. Raises PublishError if the registry has an image that is not ours."""
        return self._planner.plan(candidate)

    def kept_release(self, candidate: Candidate) -> str:
        """Return the tag of another build of its inputs that stays in place of a candidate; "" if there is none."""
        decision = self.plan(candidate)
        is_other = decision.action in ("finish", "nothing") and decision.digest != candidate.digest
        return str(decision.tag) if is_other and not self._planner.other_compression(candidate, decision) else ""

    def rehearse(self, candidate: Candidate) -> Publication:
        """Decide what is due, and ask the registry for the abilities that it needs, without writing to it."""
        decision = self.plan(candidate)
        abilities = self._abilities if decision.action in ("release", "finish") else None
        released_by = self._planner.other_compression(candidate, decision)
        return Publication(decision=decision, tested=candidate.digest, abilities=abilities, released_by=released_by)

    @cached_property
    def _abilities(self) -> Abilities:
        return probe(self.registry)

    def publish(self, candidate: Candidate, supply: Supply, tell: Tell, count: Count) -> Publication:
        """Release a candidate, or finish its release, unless nothing is due.

        Layers are sent without the lock, as they are harmless. Tags are read and set under the lock.
        """
        with locked(self.registry):
            decision = self._planner.plan(candidate)
            due = self._planner.is_due(candidate, decision)
        released_by = self._planner.other_compression(candidate, decision)
        if not due:
            return Publication(decision=decision, tested=candidate.digest, released_by=released_by)
        if self._signer.skip_reason:  # nobody may trust an unsigned list of layers
            supply = replace(supply, layers=None)
        ours = decision.digest == candidate.digest
        parcel = self._delivery.send(candidate, supply, tell, count) if ours else None
        tell("waiting for other releases")
        with locked(self.registry):
            decision = self._planner.plan(candidate)
            if self._planner.is_due(candidate, decision):
                self._carry_out(candidate, decision, parcel, tell)
        sent_bytes = parcel.count if parcel and decision.action == "release" else None
        return Publication(decision=decision, tested=candidate.digest, transfer=sent_bytes, released_by=released_by)

    def promote(self, candidate: Candidate, tell: Tell) -> Decision:
        """Move the rolling tags to the release of a candidate, which `publish` has made. A rollback stays as it is."""
        planner = Planner(self.registry, self._signer)
        with locked(self.registry):
            decision = planner.plan(candidate)
            if decision.action == "release":
                raise RegistryError(f"{self.registry.repository} changed during this run.", hint="Publish again.")
            if decision.action == "finish":
                self._writer.promote(decision, tell)
        return decision

    def attach(
        self, publication: Publication, artifact: Artifact, tell: Tell, *, always: bool = True
    ) -> Publication:  # fmt: skip
        """Attach a document to the released image, if it is the tested one, which the document is about.

        Unless ``always``, a document only follows an earlier one.
        """
        decision = publication.decision
        if not publication.is_tested:
            return publication
        tell(f"attaching {artifact.name}")
        with locked(self.registry):
            digest = attach_document(self.registry, decision.digest, artifact, self._signer, always=always)
        documents = {**publication.documents, artifact.name: digest} if digest else publication.documents
        return replace(publication, documents=documents)

    def finish(self, tags: Sequence[str], tell: Tell, *, dry: bool = False) -> Decision | None:
        """Finish the newest release of the image with these tags, its own tag first; None if it has no release.

        A release that was rolled back is ``held``, and stays. Raises PublishError if the release is not ours.
        """
        with locked(self.registry):
            records = self._planner.unfinished(tags)
            if records is None:
                return None
            decision, record = records
            if record and not dry:
                self._writer.promote(decision, tell)
        return decision

    def publish_index(
        self, image: PlatformSet, tell: Tell, *, dry: bool = False,
        judge: Callable[[Sequence[ReleasedPart]], None] = lambda parts: None,
    ) -> IndexPublication:  # fmt: skip
        """Release the index of all platforms of an image, unless a platform lacks a release of today's files.

        Only the registry is needed, so any machine finishes the release that others began. With ``dry`` nothing is
        written. The function ``judge`` gets the releases of today's files, and may raise. Raises PublishError if the
        release of a platform, or of the index, is not ours.
        """
        with locked(self.registry):
            parts, lacking = read_parts(self.registry, image)
            judge(parts)
            if lacking:
                return IndexPublication(lacking=lacking)
            candidate, parcel = join(self.registry, image, parts)
            decision = self._planner.plan(candidate)
            if self._planner.is_due(candidate, decision):
                for each in parts:
                    self._planner.verify(each.tag, each.holder)
                if not dry:
                    tell("joining its platforms")
                    self._carry_out(candidate, decision, parcel, tell)
        return IndexPublication(decision=decision)

    def _carry_out(self, candidate: Candidate, decision: Decision, parcel: Parcel | None, tell: Tell) -> None:
        stored = self._planner.started_record(decision)
        if decision.digest != candidate.digest:
            self._planner.record(decision)
            self._writer.promote(decision, tell)
        elif parcel is None:
            raise RegistryError(f"{self.registry.repository} changed during this run.", hint="Publish again.")
        else:
            self._writer.release(candidate, decision, parcel, stored, tell)
