"""Manifests against Kubernetes' own schemas, which `kubernetes-validate` brings along: no cluster, no network."""

from importlib import import_module
from types import ModuleType
from typing import Any

import yaml

from torchbake.errors import InstallError, JobError


def check_manifest(text: str, version: str = "") -> str:
    """Hold every object against the schema of a version of Kubernetes, else the newest, and give back which.

    Keys that the schema does not know count as wrong. Raises JobError, and InstallError without the package.
    """
    schemas = _package()
    version = version or str(schemas.latest_version())
    for manifest in yaml.safe_load_all(text):
        _check(schemas, manifest, version)
    return version


def _package() -> ModuleType:
    try:
        return import_module("kubernetes_validate")  # an extra: few want it, and its schemas are large
    except ImportError:
        raise InstallError(
            "Kubernetes' schemas are in the package kubernetes-validate, which is not installed.",
            hint="Run: pip install 'torchbake[jobs]', and then torchbake job show … --check",
        ) from None


def _check(schemas: ModuleType, manifest: dict[str, Any], version: str) -> None:
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    try:
        schemas.validate(manifest, version, strict=True)
    except schemas.utils.ValidationError as error:
        place = ".".join(str(part) for part in error.path) or "it"
        raise JobError(f"{what}: {place}: Kubernetes {version} does not take this: {error.message}") from None
    except (schemas.utils.SchemaNotFoundError, schemas.utils.VersionNotSupportedError) as error:
        raise JobError(f"{what}: {error.message}.", hint="Leave --check out.") from None
