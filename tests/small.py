"""Images of a few bytes, made as they are asked for, with all that is attached to an image in a registry."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchbake.engine.export import Content
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.manifest import MANIFEST, Manifest, sha256
from torchbake.oci.tag_names import PROVENANCE, SBOM
from torchbake.registry.artifact import IMAGE_CONFIG, Artifact
from torchbake.release.attestations import SBOM_TYPE
from torchbake.release.candidate import Supply
from torchbake.release.provenance import provenance_text


@dataclass(frozen=True)
class Small:
    """A source of such images; ``images`` are what was made, by digest."""

    images: dict[str, tuple[Manifest, dict[str, bytes], Mapping[str, str]]] = field(default_factory=dict)

    def make(self, labels: Mapping[str, str], layers: Sequence[bytes], **about: str) -> Manifest:
        """An image of these labels and layers; ``about`` is in its configuration."""
        config = {"os": "linux", "architecture": "amd64", **about, "config": {"Labels": dict(labels)}}
        blobs = {sha256(data): data for data in (json.dumps(config).encode(), *layers)}
        described = [
            {"mediaType": "application/octet-stream", "digest": digest, "size": len(data)}
            for digest, data in blobs.items()
        ]
        described[0]["mediaType"] = IMAGE_CONFIG
        content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
        manifest = Manifest(data=json.dumps(content).encode(), media_type=MANIFEST)
        self.images[manifest.digest] = manifest, blobs, labels
        return manifest

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        manifest, blobs, _ = self.images[digest]
        for name, data in blobs.items():
            if select(name):
                (folder / name.removeprefix("sha256:")).write_bytes(data)
        return Content(manifest=manifest, folder=folder)

    def describe(self, content: Content) -> tuple[Artifact, ...]:
        digest = content.manifest.digest
        labels = self.images[digest][2]
        sbom = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "components": [{"type": "library", "name": "torch", "version": labels.get("org.torchbake.torch", "")}],
        }
        return (
            Artifact(name=SBOM, media_type=SBOM_TYPE, text=json.dumps(sbom)),
            Artifact(name=PROVENANCE, media_type=MEDIA_TYPE, text=provenance_text("small", digest, labels)),
        )

    @property
    def supply(self) -> Supply:
        return Supply(source=self, describe=self.describe)
