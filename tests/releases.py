"""Releases with a record and an SBOM in a registry, each with its day and its packages."""

from datetime import date

from tests.small import Small
from torchbake.oci.tag_names import SBOM, artifact_tag
from torchbake.registry.artifact import Artifact, put_artifact, send
from torchbake.registry.client import Registry
from torchbake.release.attestations import SBOM_TYPE
from torchbake.release.record import Record, write_record
from torchbake.sbom.cyclonedx import sbom_text
from torchbake.sbom.packages import ImagePackages


def put_release(registry: Registry, tag: str, day: date, packages: ImagePackages, *, about: str = "") -> str:
    """Put a release, whose SBOM is about another image if ``about`` is not empty. Return the digest of its image."""
    small = Small()
    image = small.make({}, [tag.encode()])
    subject = small.make({}, [about.encode()]) if about else image
    for _, blobs, _ in small.images.values():
        for data in blobs.values():
            send(registry, data)
    registry.put(image, tag)
    text = sbom_text(packages, name="team/pytorch", version="1", digest=image.digest, created=None)
    artifact = put_artifact(registry, Artifact(name=SBOM, media_type=SBOM_TYPE, text=text), subject)
    registry.put(artifact, artifact_tag(tag, SBOM))
    record = Record(
        id="cpu", tag=tag, digest=image.digest, inputs="", released=f"{day.isoformat()}T10:00:00+00:00", size=1,
        layers=1, labels={}, rolling=(),
    )  # fmt: skip
    write_record(registry, record, image)
    return image.digest
