"""The comparison before a release: an image that is slower than the release of its tag is not published."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torchbake.benchmark.compare import Comparison
from torchbake.benchmark.expand import PlaceName
from torchbake.benchmark.model import Plan
from torchbake.benchmark.places import Finder
from torchbake.checks.smoke_run import Session
from torchbake.commands._benchmark_places import (
    clean_up,
    compare_all,
    demand_speed,
    experiments_of,
    folder_of,
    read_plan,
    released_image,
    runnable,
)
from torchbake.engine.client import Engine
from torchbake.errors import CheckError, TorchbakeError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.oci.reference import Repository
from torchbake.release.candidate import Candidate
from torchbake.release.decide import Decision
from torchbake.ui import console

Find = Callable[[], Candidate]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Compares images with their releases by a plan, one after the other and before anything is uploaded."""

    plan: Plan
    folder: Path
    project: Project
    engine: Engine
    plain_http: bool

    def judge(self, find: Find, decide: Callable[[Candidate], Decision], spec: Spec, repository: Repository) -> Find:
        """Return ``find``, or a function that raises CheckError if the image must not be released.

        An image for which no release is due is not compared.
        """
        try:
            candidate = find()
            if decide(candidate).action == "release" and isinstance(spec, ImageSpec):
                self._compare(candidate, spec, repository)
        except TorchbakeError as error:
            return _refusing(error)
        return find

    def _compare(self, candidate: Candidate, spec: ImageSpec, repository: Repository) -> None:
        """Raises SlowerError and NoisyError, and BenchmarkError if the images cannot be measured."""
        cases = experiments_of(self.plan, self.project, (PlaceName(kind="image", word=spec.id, name=spec.id),))
        if not cases:
            console.say(f"{spec.id}: the plan excludes all of its experiments", style="yellow")
            return
        before = released_image(spec, repository, self.engine, plain_http=self.plain_http)
        if not before:
            console.say(f"{spec.id} has no release yet: there is nothing to be slower than", style="dim")
            return
        clean_up(self.engine)
        session = Session()
        finder = Finder(
            engine=self.engine, session=session, folder=self.folder, timeout=self.plan.timeout, own=True,
            docker=self.plan.docker,
        )  # fmt: skip
        names = (before, candidate.tested or candidate.digest)
        a, b = (finder.place(PlaceName(kind="image", word=spec.id, name=each), each) for each in names)
        able = runnable((a, b), cases, finder.gpu)
        comparisons = compare_all(Comparison(a=a, b=b, limit=self.plan.timeout), able, session, self.engine)
        demand_speed(comparisons, quieter="give the plan more num_batches")


def _refusing(error: TorchbakeError) -> Find:
    def refuse() -> NoReturn:
        raise CheckError(error.message, hint=error.hint)

    return refuse


def gate_of(path: Path, project: Project, engine: Engine, *, plain_http: bool) -> Gate:
    """Read the plan of a gate. Raises PlanError."""
    return Gate(
        plan=read_plan(path, engine), folder=folder_of(path), project=project, engine=engine, plain_http=plain_http
    )
