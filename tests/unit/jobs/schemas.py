"""Kubernetes' schemas for tests: the package would read and list them again for each object that it checks."""

from functools import cache

from kubernetes_validate import utils  # type: ignore[import-not-found,import-untyped,unused-ignore]

from torchbake.jobs.kubernetes_schema import check_manifest

utils.schema_contents = cache(utils.schema_contents)
utils.all_versions = cache(utils.all_versions)

__all__ = ["check_manifest"]
