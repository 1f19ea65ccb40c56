"""Whether a release that a registry holds may be promoted: by its record, and where there is a key, by signatures.

Who can write to a registry can put any image there, with our labels and a record of its own making. What nobody but us
can make is a signature. So the labels of an image decide nothing here; its digest does.
"""

from dataclasses import dataclass

from torchbake.errors import PublishError
from torchbake.oci.manifest import UnsoundError
from torchbake.oci.tag_names import ARTIFACTS, RECORD, ImmutableTag, artifact_tag
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier
from torchbake.release.decide import Held
from torchbake.release.record import Found, Record, find_record

_HINT = "See what it is: nox -s validate; then docs/releases.md#an-image-that-is-not-ours"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Judges the releases of a repository. ``verifier`` verifies the signatures that we trust, where it can."""

    registry: Registry
    verifier: Verifier

    def record(self, tag: ImmutableTag, held: Held) -> Record:
        """The record of a release, which is of this very image. Where signatures are verified, the record is signed,
        and so are the image and all that the record names.

        Raises PublishError, which names the digest, for any other; and RegistryError.
        """
        try:
            release = find_record(self.registry, str(tag))
        except UnsoundError as error:
            raise self.refusal(tag, held.digest, f"its record cannot be read: {error.message}") from None
        if release is None:
            raise self.refusal(tag, held.digest, "it has no record: its release was interrupted, or is not ours")
        problem = release.record.flaw(str(tag), held.digest, held.labels)
        problem = problem or self.misplaced(release.record) or self._unsigned(release)
        if problem:
            raise self.refusal(tag, held.digest, problem)
        return release.record

    def refusal(self, tag: ImmutableTag, digest: str, reason: str) -> PublishError:
        """The error for an image that is neither the tested one nor proved to be ours."""
        return PublishError(f"{self.registry.repository}:{tag} holds {digest}, and {reason}.", hint=_HINT)

    def misplaced(self, record: Record) -> str:
        """Which artifact attached to an image is not the one that the record names; empty where all are."""
        places = [artifact_tag(record.tag, name) for name in ARTIFACTS]
        for name, place, served in zip(ARTIFACTS, places, self.registry.digests(places), strict=True):
            wanted = record.attached.get(name)
            if served != wanted:
                return f"{place} is {served or 'gone'}, where its record names {wanted or 'none'}"
        return ""

    def _unsigned(self, found: Found) -> str:
        """What has no signature that we trust; empty also where none is verified."""
        if self.verifier.skip_reason:
            return ""
        parts = {"image": found.record.digest, **found.record.attached, RECORD: found.digest}
        for name, digest in parts.items():
            problem = self.verifier.problem(self.registry.repository, digest)
            if problem and problem.unknown:  # cosign failed before it had seen a signature
                return f"its {name}: {problem.sentence}"
            if problem:
                return f"its {name} ({digest}) is {problem.sentence}"
        return ""
