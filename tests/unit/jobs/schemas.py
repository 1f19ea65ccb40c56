"""Kubernetes' schemas for tests: the package would read them again for each object that it checks."""

from functools import cache

from kubernetes_validate import utils  # type: ignore[import-not-found,import-untyped,unused-ignore]

from torchbake.jobs.kubernetes_schema import check_manifest

utils.schema_contents = cache(utils.schema_contents)

__all__ = ["check_manifest"]
