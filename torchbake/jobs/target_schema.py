"""What `--check` holds a manifest against: the target's own schema, without a cluster and without a network."""

from collections.abc import Callable, Mapping
from functools import partial

from torchbake.errors import UsageError
from torchbake.jobs.compose_schema import check_compose
from torchbake.jobs.json_schema import OF_OPENPAI, check_openpai, check_values
from torchbake.jobs.kubernetes_schema import OLDEST, check_manifest

CHECKS: Mapping[str, Callable[[str], str]] = {
    "compose": check_compose,
    "swarm": check_compose,
    "kubernetes": check_manifest,
    "kubernetes-1.20": partial(check_manifest, version=OLDEST),
    "jobset": check_manifest,
    "leaderworkerset": check_manifest,
    "pytorchjob": check_manifest,
    "trainjob": check_manifest,
    "helm": check_values,
    **{target: partial(check_openpai, target) for target in OF_OPENPAI},
}


def check_for(target: str, manifest: str) -> str:
    """Hold it, and give back whose the schema is. Raises JobError, and UsageError for a target that has none."""
    if target not in CHECKS:
        raise UsageError(f"There is no schema of {target}: it is a script.", hint=f"--check knows: {', '.join(CHECKS)}")
    return CHECKS[target](manifest)
