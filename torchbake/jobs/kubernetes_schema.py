"""Manifests against the schemas that packages bring along: no cluster, no network.

Kubernetes' own are in `kubernetes-validate`. An operator's kinds have none there, but models of their own.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

import yaml

from torchbake.errors import JobError
from torchbake.jobs.operator_schema import check_object, has_model
from torchbake.jobs.schema_packages import not_installed

OLDEST = "oldest"  # in place of a version: the oldest that the package has


def check_manifest(text: str, version: str = "") -> str:
    """Hold every object against its operator's model, or the schema of a version of Kubernetes, else of the newest.

    Keys that these do not know count as wrong. Gives back whose they are. Raises JobError, and InstallError without a
    package.
    """
    takers = list[str]()
    for manifest in yaml.safe_load_all(text):
        takers.append(check_object(manifest) if has_model(manifest) else _check(manifest, version))
    return " and ".join(dict.fromkeys(takers))


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
