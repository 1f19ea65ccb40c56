"""Pushes a chart to a registry in the format of `helm push`: https://helm.sh/docs/topics/registries/

A version is written once: an existing version is never replaced.
"""

import json
from typing import Literal

from torchbake.charts.package import ChartPackage
from torchbake.errors import PublishError
from torchbake.oci.manifest import MANIFEST, Manifest, sha256
from torchbake.registry.artifact import send
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.release.mutex import locked

CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_ANNOTATION = "org.opencontainers.image"

PushState = Literal["pushed", "unchanged"]


def push(registry: Registry, package: ChartPackage, signer: Signer) -> tuple[Manifest, PushState]:
    """Push and sign a package, unless this was done before. Raises PublishError if other content has the version."""
    manifest, config = manifest_of(package), config_of(package)
    tag = tag_of(package.version)
    with locked(registry):
        existing = registry.digest(tag)
        if existing not in (None, manifest.digest):
            raise PublishError(
                f"{registry.repository}:{tag} exists with other content ({existing}).",
                hint="A version is written once: give another, --chart-version, or raise the chart's own.",
            )
        if existing is None:
            for content in (package.data, config):
                send(registry, content)
            registry.put(manifest, tag)
        if not signer.skip_reason and not signer.holds(registry.repository, [manifest.digest]):
            signer.sign(registry.repository, [manifest.digest])
    return manifest, "pushed" if existing is None else "unchanged"


def tag_of(version: str) -> str:
    """Return the tag of a version: a tag cannot have +, and Helm reads _ as +."""
    return version.replace("+", "_")


def config_of(package: ChartPackage) -> bytes:
    return json.dumps(package.metadata, sort_keys=True, separators=(",", ":")).encode()


def manifest_of(package: ChartPackage) -> Manifest:
    config = config_of(package)
    metadata = package.metadata
    annotations = {"title": package.name, "version": package.version, "description": metadata.get("description")}
    annotations |= {"url": metadata.get("home"), "source": next(iter(metadata.get("sources", ())), None)}
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": sha256(config), "size": len(config)},
        "layers": [{"mediaType": CONTENT, "digest": sha256(package.data), "size": len(package.data)}],
        "annotations": {f"{_ANNOTATION}.{key}": value for key, value in annotations.items() if value},
    }
    return Manifest(data=json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), media_type=MANIFEST)
