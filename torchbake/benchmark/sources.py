"""Files that experiments use: models in the plan's folder, data, and this toolkit's `bench`."""

import hashlib
from functools import cache
from pathlib import Path

from torchbake.benchmark.commands import is_own
from torchbake.benchmark.expand import Experiment, Source, experiments
from torchbake.benchmark.model import Plan, plan_problems
from torchbake.core.digest import digest
from torchbake.core.paths import OWN_BENCH
from torchbake.matrix.yaml_source import Document, Location


def with_source(experiment: Experiment, folder: Path) -> Experiment:
    """Add the identity of its files to an experiment of a plan in ``folder``, as other files can have the same names.

    Raise OSError for a file that exists and cannot be read.
    """
    data = experiment.settings.data_dir
    file = folder / experiment.model.rpartition(":")[0]
    code = hashlib.sha256(file.read_bytes()).hexdigest() if is_own(experiment.model) and file.is_file() else ""
    source = Source(model=f"sha256:{code}" if code else "", data=str(folder / data) if data else "")
    return experiment.model_copy(update={"source": source})


def demand_files(plan: Plan, document: Document, folder: Path) -> None:
    """Raise PlanError if files of a plan in ``folder`` are missing, unless only other machines need them."""
    if plan.hosts and not plan.images and all(host.ssh for host in plan.hosts):
        return
    found: list[tuple[Location, str]] = []
    for data in dict.fromkeys(each.settings.data_dir for each in experiments(plan)):
        if data and not (folder / data).is_dir():
            found.append((("data_dir",), f"{folder / data} is not a folder"))
    for number, model in enumerate(plan.models):
        file = folder / model.rpartition(":")[0]
        if is_own(model) and not file.is_file():
            found.append((("models", number), f"{file} is not a file"))
    if found:
        raise plan_problems(document, found)


@cache
def own_bench() -> str:
    """Return the digest of this toolkit's `bench`, which is mounted into images without one."""
    files = [OWN_BENCH, *sorted((OWN_BENCH.parent / "benchmark").rglob("*.py"))]
    return digest(part for file in files for part in (str(file.relative_to(OWN_BENCH.parent)), file.read_text("utf-8")))
