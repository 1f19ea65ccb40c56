"""Manifests against the schemas that packages bring along: no cluster, no network.

Kubernetes' own are in `kubernetes-validate`. An operator's kinds have none there, but models of their own, or a schema
that is written by their API.
"""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import yaml

from torchbake.errors import JobError
from torchbake.jobs.json_schema import check_leader_worker_set
from torchbake.jobs.operator_schema import check_object, has_model
from torchbake.jobs.schema_packages import not_installed

OLDEST = "oldest"  # in place of a version: the oldest that the package has


def check_manifest(text: str, version: str = "") -> str:
    """Hold every object against its operator's model, or the schema of a version of Kubernetes, else of the newest.

    Keys that these do not know count as wrong. Gives back whose they are. Raises JobError, and InstallError without a
    package.
    """
    takers = [taker for manifest in yaml.safe_load_all(text) for taker in _takers(manifest, version)]
    return " and ".join(dict.fromkeys(takers))


def _takers(manifest: dict[str, Any], version: str) -> Iterator[str]:
    if has_model(manifest):
        yield check_object(manifest)
    elif manifest["kind"] == "LeaderWorkerSet":
        yield check_leader_worker_set(manifest)
        group = manifest["spec"]["leaderWorkerTemplate"]
        for template in (group[key] for key in ("leaderTemplate", "workerTemplate") if key in group):
            name = {"name": manifest["metadata"]["name"], **template.get("metadata", {})}
            yield _check({"apiVersion": "v1", "kind": "Pod", **template, "metadata": name}, version)
    else:
        yield _check(manifest, version)


def _package() -> ModuleType:
    try:
        return import_module("kubernetes_validate")  # an extra: few want it, and its schemas are large
    except ImportError:
        raise not_installed("Kubernetes' schemas are", "kubernetes-validate") from None


def _check(manifest: dict[str, Any], version: str) -> str:
    schemas = _package()
    versions = schemas.utils.all_versions()
    version = {"": versions[-1], OLDEST: versions[0]}.get(version, version)
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    try:
        schemas.validate(manifest, version, strict=True)
    except schemas.utils.ValidationError as error:
        place = ".".join(str(part) for part in error.path) or "it"
        raise JobError(f"{what}: {place}: Kubernetes {version} does not take this: {error.message}") from None
    except (schemas.utils.SchemaNotFoundError, schemas.utils.VersionNotSupportedError) as error:
        raise JobError(f"{what}: {error.message}.", hint="Leave --check out.") from None
    return f"Kubernetes {version}"
