"""A chart in a registry, as `helm push` puts it there: https://helm.sh/docs/topics/registries/

A version is written once: what is there with other content stays.
"""

import json
from typing import Literal

from torchbake.charts.package import Package
from torchbake.errors import PublishError
from torchbake.oci.manifest import MANIFEST, Manifest, sha256
from torchbake.registry.artifact import send
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.release.mutex import locked

CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_ANNOTATION = "org.opencontainers.image"

Done = Literal["pushed", "unchanged"]


def push(registry: Registry, package: Package, signer: Signer) -> tuple[Manifest, Done]:
    """Put it there and sign it, each unless that is done. Raises PublishError for a version that is taken."""
    manifest, config = manifest_of(package), config_of(package)
    tag = tag_of(package.version)
    with locked(registry):
        there = registry.digest(tag)
        if there not in (None, manifest.digest):
            raise PublishError(
                f"{registry.repository}:{tag} is there with other content ({there}).",
                hint="A version is written once: give another, --chart-version, or raise the chart's own.",
            )
        if there is None:
            for content in (package.data, config):
                send(registry, content)
            registry.put(manifest, tag)
        if not signer.skip_reason and not signer.holds(registry.repository, [manifest.digest]):
            signer.sign(registry.repository, [manifest.digest])
    return manifest, "pushed" if there is None else "unchanged"


def tag_of(version: str) -> str:
    """A tag has no +; Helm reads _ as one."""
    return version.replace("+", "_")


def config_of(package: Package) -> bytes:
    return json.dumps(package.metadata, sort_keys=True, separators=(",", ":")).encode()


def manifest_of(package: Package) -> Manifest:
    config = config_of(package)
    said = {"title": package.name, "version": package.version, "description": package.metadata.get("description")}
    said |= {"url": package.metadata.get("home"), "source": next(iter(package.metadata.get("sources", ())), None)}
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": sha256(config), "size": len(config)},
        "layers": [{"mediaType": CONTENT, "digest": sha256(package.data), "size": len(package.data)}],
        "annotations": {f"{_ANNOTATION}.{key}": value for key, value in said.items() if value},
    }
    return Manifest(data=json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), media_type=MANIFEST)
