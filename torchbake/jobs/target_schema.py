"""The schema check of `job show --check`: each target's manifest by the schema of its launcher."""

from collections.abc import Callable, Mapping
from functools import partial

from torchbake.errors import UsageError
from torchbake.jobs.json_schema import OF_OPENPAI, check_compose, check_openpai, check_values
from torchbake.jobs.kubernetes_schema import OLDEST, check_manifest

_OF_KUBERNETES = ("kubernetes", "jobset", "leaderworkerset", "pytorchjob", "trainjob")
CHECKS: Mapping[str, Callable[[str], str]] = {
    "compose": check_compose,
    "swarm": check_compose,
    **dict.fromkeys(_OF_KUBERNETES, check_manifest),
    "kubernetes-1.20": partial(check_manifest, version=OLDEST),
    "helm": check_values,
    **{target: partial(check_openpai, target) for target in OF_OPENPAI},
}


def check_for(target: str, manifest: str) -> str:
    """Check a manifest; returns the names of the schemas. Raises JobError, and UsageError if the target has none."""
    if target not in CHECKS:
        raise UsageError(f"There is no schema of {target}: it is a script.", hint=f"--check knows: {', '.join(CHECKS)}")
    return CHECKS[target](manifest)
