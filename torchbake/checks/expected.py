"""The checks of the current suite for an image. A verdict that lacks one of them is incomplete."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchbake.checks.smoke_jobs import SmokeOptions, jobs_of
from torchbake.checks.verdict import Verdict
from torchbake.core.paths import TOOLKIT
from torchbake.core.plain_text import last_line
from torchbake.engine.gpu import GpuAccess
from torchbake.errors import CheckError
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.ui.tool_environment import environment_of

# For a child process: this process could import a `tests` package from the user's folder instead.
_CATALOGUE = """
import json, sys
sys.path.insert(0, "")  # with PYTHONSAFEPATH, Python leaves this folder out
from tests.images.checks import catalogue
print(json.dumps([{"id": one.id, "kinds": one.kinds, "families": one.families} for one in catalogue()]))
"""


@dataclass(frozen=True, kw_only=True)
class SuiteCheck:
    """A check of the suite, and the kinds and families of images that it is for."""

    id: str
    kinds: Sequence[str]
    families: Sequence[str]


def missing_checks(verdict: Verdict, spec: Spec | None) -> tuple[str, ...]:
    """Return the ids of the checks that a verdict on an image of this row lacks, sorted. Raise CheckError.

    Without a row, only the checks for all images are expected.
    """
    kinds = {spec.kind} if spec else {"pytorch", "init"}
    families = {spec.family} if isinstance(spec, ImageSpec) else {"cpu", "cuda"}
    expected = {
        each.id
        for each in suite_checks()
        if kinds <= {*each.kinds} and (kinds == {"init"} or families <= {*each.families})
    }
    if isinstance(spec, ImageSpec):  # its smoke tests depend on the options of the run
        options = dict(word.partition("=")[::2] for word in verdict.how)
        numbers: dict[str, Any] = {
            key: int(options[key]) for key in ("nodes", "nproc") if options.get(key, "").isdigit()
        }
        jobs = jobs_of(spec.family, GpuAccess(how="none", reason="not looked for"), SmokeOptions(**numbers))
        expected.update(name for job in jobs for name in job.check_ids)
    return tuple(sorted(expected - {check.id for check in verdict.checks}))


@cache
def suite_checks() -> tuple[SuiteCheck, ...]:
    """Return the checks of the suite, which takes half a second once. Raise CheckError with Python's message."""
    process = subprocess.run(
        [sys.executable, "-c", _CATALOGUE], cwd=TOOLKIT, env=environment_of("pytest"), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if process.returncode:
        raise CheckError(f"The checks of images cannot be listed: {last_line(process.stderr)}")
    return tuple(SuiteCheck(**each) for each in json.loads(process.stdout))
