"""Verify that a registry's release may be promoted: by its record, and with a key by signatures.

Anybody who can write to a registry can put any image there, with our labels and a forged record, but without our
signature. So verification relies on the digest of an image, and never on its labels.
"""

from dataclasses import dataclass

from torchbake.errors import PublishError
from torchbake.oci.manifest import UnsoundError
from torchbake.oci.tag_names import ARTIFACTS, RECORD, ImmutableTag, artifact_tag
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier
from torchbake.release.decide import TagHolder
from torchbake.release.record import Record, StoredRecord, find_record
from torchbake.ui.command import Command

_HINT = f"See what it is: {Command('validate')}; then read {Command('help', 'release#if-a-tag-holds-another-image')}"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Verifies the releases of a repository. The ``verifier`` may skip signatures for a reason."""

    registry: Registry
    verifier: Verifier

    def record(self, tag: ImmutableTag, holder: TagHolder) -> Record:
        """Return the verified record of an image's release.

        Raises PublishError if the record is missing or another image's. If signatures are verified, the image, the
        record and each artifact in the record must have one. Raises RegistryError too.
        """
        try:
            release = find_record(self.registry, str(tag))
        except UnsoundError as error:
            raise self.refusal(tag, holder.digest, f"its record cannot be read: {error.message}") from None
        if release is None:
            raise self.refusal(tag, holder.digest, "it has no record: its release was interrupted, or is not ours")
        problem = release.record.flaw(str(tag), holder.digest, holder.labels)
        problem = problem or self.misplaced(release.record) or self._signature_problem(release)
        if problem:
            raise self.refusal(tag, holder.digest, problem)
        return release.record

    def refusal(self, tag: ImmutableTag, digest: str, reason: str) -> PublishError:
        """Return the error for an image that is neither the tested image nor proved to be ours."""
        return PublishError(f"{self.registry.repository}:{tag} holds {digest}, and {reason}.", hint=_HINT)

    def misplaced(self, record: Record) -> str:
        """Name an artifact of the image with another digest than in the record; "" if there is none."""
        places = [artifact_tag(record.tag, name) for name in ARTIFACTS]
        for name, place, served in zip(ARTIFACTS, places, self.registry.digests(places), strict=True):
            expected = record.attached.get(name)
            if served != expected:
                return f"{place} is {served or 'gone'}, where its record names {expected or 'none'}"
        return ""

    def _signature_problem(self, stored: StoredRecord) -> str:
        """Name a part of a release without a valid signature; "" if there is none, or signatures are not verified."""
        if self.verifier.skip_reason:
            return ""
        parts = {"image": stored.record.digest, **stored.record.attached, RECORD: stored.digest}
        for name, digest in parts.items():
            problem = self.verifier.problem(self.registry.repository, digest)
            if problem and problem.unknown:  # cosign failed before it read a signature
                return f"its {name}: {problem.sentence}"
            if problem:
                return f"its {name} ({digest}) is {problem.sentence}"
        return ""
