"""The steps that `benchmark` and the gate of `publish` share: plans, places, and the comparison of two images."""

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchbake.benchmark.compare import Comparison, ExperimentComparison, overall, sentence
from torchbake.benchmark.estimate import Verdict
from torchbake.benchmark.expand import Experiment, PlaceName, comparable, demand_files
from torchbake.benchmark.field_types import PlanHost
from torchbake.benchmark.model import Plan, load_plan
from torchbake.benchmark.places import Place, names_of
from torchbake.checks.smoke_run import Session
from torchbake.commands._registries import registry_of
from torchbake.core.parallel import run_all
from torchbake.engine.client import Engine, connect
from torchbake.engine.image_check import pull_image
from torchbake.engine.leftovers import remove_leftovers
from torchbake.errors import BenchmarkError, EngineError, NoisyError, SelectorError, SlowerError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.matrix.yaml_source import Document
from torchbake.oci.reference import Repository
from torchbake.registry.credentials import login_for_engine
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.progress_board import Board, board

_GPUS = f"Read: {Command('help', 'gpu')}"


def one_image(word: str, project: Project | None) -> tuple[PlaceName, str | PlanHost]:
    """Return the image that a word selects. Raises SelectorError if it selects several, and UsageError."""
    images = names_of([word], (), project)
    if len(images) != 1:
        names = ", ".join(place_name.name for place_name, _ in images[:3]) + (", …" if len(images) > 3 else "")
        raise SelectorError(f"{word!r} means {len(images)} images ({names}).", hint="Name one.")
    return images[0]


def engine_of(*, dry: bool) -> Engine | None:
    """Connect to the engine. A dry run, which only shows commands, goes on without one. Raises EngineError."""
    try:
        return connect()
    except EngineError as error:
        if not dry:
            raise
        console.say(f"{error.message} Commands are shown as if it had the images.", style="yellow")
        return None


def clean_up(engine: Engine) -> None:
    """Remove the containers of killed runs, which would still use CPU and GPU."""
    removed = remove_leftovers(engine)
    if removed:
        console.say(f"removed {removed} containers, networks and volumes that a killed run had left", style="yellow")


def words_of_rules(plan: Plan) -> list[str]:
    """Return the words by which the rules of a plan name images."""
    return [word for rule in plan.exclude for word in rule.image or ()]


def experiments_of(plan: Plan, project: Project | None, images: Sequence[PlaceName]) -> tuple[Experiment, ...]:
    """Return the experiments that no rule of the plan excludes in any of these images.

    Raises SelectorError and UsageError for a word of a rule that selects no image.
    """
    names = {place_name.name for place_name in images}
    named_images = [place_name for word in words_of_rules(plan) for place_name, _ in names_of([word], (), project)]
    return comparable(plan, [*images, *(place_name for place_name in named_images if place_name.name in names)])


def runnable(places: Sequence[Place], experiments: Sequence[Experiment], gpu: str) -> list[Experiment]:
    """Return the experiments that every place can run. An experiment that no place can run is left out with a warning.

    Raises BenchmarkError if only some places can run an experiment, if none can and ``gpu`` is `require`, and if
    nothing is left.
    """
    able, left_out = list[Experiment](), list[str]()
    for each in experiments:
        matches = [(place, place.problem(each)) for place in places]
        problems = [
            f"{each.name} in {place.place_name.name}: {problem.sentence}" for place, problem in matches if problem
        ]
        if problems and (gpu == "require" or len(problems) < len(places)):
            raise BenchmarkError(f"{problems[0]}.", hint=_GPUS)
        if problems:
            left_out.append(problems[0])
        else:
            able.append(each)
    if left_out and not able:
        raise BenchmarkError(f"No experiment can be run. {left_out[0]}.", hint=_GPUS)
    for why in left_out:
        console.say(f"left out: {why}", style="yellow")
    return able


def compare_all(
    comparison: Comparison, experiments: Sequence[Experiment], session: Session, engine: Engine | None
) -> list[ExperimentComparison]:
    """Compare experiments one after the other. Raises BenchmarkError if a run fails."""
    with board(len(experiments), doing="comparing") as progress, contextlib.ExitStack() as ending:
        return run_all(
            experiments,
            lambda each: _compare(comparison, each, progress),
            jobs=1,
            stop=partial(session.stop, engine, ending),
        )


def _compare(comparison: Comparison, experiment: Experiment, progress: Board) -> ExperimentComparison:
    progress.start(experiment.name, f"{comparison.a.place_name.name} against {comparison.b.place_name.name}")
    try:
        compared = comparison.run(experiment, partial(progress.look, experiment.name))
    except BenchmarkError as error:
        progress.end(experiment.name, error.message, good=False)
        raise
    good = compared.judgement.verdict in ("same", "faster")
    progress.end(experiment.name, sentence(compared.judgement), good=good)
    return compared


def demand_speed(comparisons: Sequence[ExperimentComparison], *, quieter: str) -> Verdict:
    """Return the verdict of all comparisons. Raises SlowerError and NoisyError; ``quieter`` is advice against noise."""
    verdict = overall(comparisons)
    bad = [each for each in comparisons if each.judgement.verdict == verdict]
    results = "; ".join(f"{each.experiment.name}: {sentence(each.judgement)}" for each in bad)
    if verdict == "slower":
        raise SlowerError(f"The second image is slower. {results}.", hint=f"Compare their packages: {Command('sbom')}")
    if verdict == "too noisy":
        raise NoisyError(f"This machine is too noisy to tell. {results}.", hint=f"End what else runs, or {quieter}.")
    return verdict


def read_plan(path: Path, engine: Engine | None, variables: Mapping[str, Any] | None = None) -> Plan:
    """Read a plan whose images the command line names. Raises PlanError with every problem."""
    plan, document = load_plan(path, places=False, variables=variables)
    check_files(plan, document, folder_of(path), engine)
    return plan


def check_files(plan: Plan, document: Document, folder: Path, engine: Engine | None) -> None:
    """Raise PlanError for missing files. The files of an engine on another machine cannot be checked."""
    if engine is None or engine.address.local:
        demand_files(plan, document, folder)


def folder_of(path: Path | None) -> Path:
    """Return the folder to which the paths of a plan are relative."""
    return (path.absolute().parent if path else Path.cwd()).resolve()


def released_image(spec: Spec, repository: Repository, engine: Engine, *, plain_http: bool) -> str:
    """Return the reference, by digest, of the release that an image's own tag names, and pull it if it is missing.

    It is empty if the image has no release. Raises RegistryError and EngineError.
    """
    digest = registry_of(repository, plain_http=plain_http).digest(spec.own_tag)
    if digest is None:
        return ""
    reference = f"{repository}@{digest}"
    if engine.find([reference]) is None:
        console.say(f"pulling {repository}:{spec.own_tag} …", style="dim")
        pull_image(engine, str(repository), digest, login_for_engine(repository.host))
    return reference
