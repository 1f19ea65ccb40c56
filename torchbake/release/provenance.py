"""The provenance of an image: an in-toto statement with a SLSA provenance predicate.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance

The builder describes itself, on the machine that built. So this is SLSA build level 1 and no more.
"""

import json
from collections.abc import Mapping

from torchbake.oci.in_toto import resource, statement
from torchbake.oci.labels import ID, INPUTS, LABEL

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://github.com/torchbake/torchbake/blob/main/docs/explanation/supply-chain.md#build-type-v1"
BUILDER = "https://github.com/torchbake/torchbake"
_OCI = "org.opencontainers.image"
_DIRTY = "-dirty"


def provenance_text(name: str, digest: str, labels: Mapping[str, str], *, platforms: Mapping[str, str] = {}) -> str:
    """Return the statement about an image with this name, manifest digest and labels, as reproducible JSON.

    An index of several ``platforms`` depends on the images of these digests, which have their own statements.
    """
    images = [resource(f"{name} for {platform}", image) for platform, image in platforms.items()]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"image": labels.get(ID, ""), "source": labels.get(f"{_OCI}.source", "")},
            "internalParameters": {
                "inputs": labels.get(INPUTS, ""),
                "versions": {
                    key.removeprefix(f"{LABEL}."): value
                    for key, value in sorted(labels.items())
                    if key.startswith(f"{LABEL}.") and key not in (ID, INPUTS)
                },
            },
            "resolvedDependencies": images or _dependencies(labels),
        },
        "runDetails": {"builder": {"id": BUILDER}},
    }
    return json.dumps(statement([resource(name, digest)], PREDICATE, predicate), indent=2) + "\n"


def _dependencies(labels: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the commit and the base. Changes since the commit are annotated, as nobody can fetch them."""
    matches: list[dict[str, object]] = []
    revision = labels.get(f"{_OCI}.revision", "")
    if revision:
        source: dict[str, object] = {
            "uri": f"git+{labels.get(f'{_OCI}.source', '')}",
            "digest": {"gitCommit": revision.removesuffix(_DIRTY)},
        }
        matches.append(source | ({"annotations": {"changedSince": True}} if revision.endswith(_DIRTY) else {}))
    if labels.get(f"{_OCI}.base.digest"):
        name = labels.get(f"{_OCI}.base.name") or "bootstrapped from Debian packages"
        matches.append(resource(name, labels[f"{_OCI}.base.digest"]))
    return matches
