"""What commands do with benchmarks: a plan's places found, and two images compared."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torchbake.benchmark.compare import Compared, Comparison, overall, row, sentence
from torchbake.benchmark.estimate import Verdict
from torchbake.benchmark.expand import Experiment, Named
from torchbake.benchmark.field_types import Host
from torchbake.benchmark.places import Finder, Place, names_of
from torchbake.checks.smoke_run import Session
from torchbake.commands._registries import registry_of
from torchbake.core.parallel import run_all
from torchbake.engine.client import Engine
from torchbake.engine.leftovers import remove_leftovers
from torchbake.errors import BenchmarkError, NoisyError, SelectorError, SlowerError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.reference import Repository
from torchbake.registry.credentials import login_for_engine
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board

HEAD = ("experiment", "first", "second", "verdict")


def one_image(word: str, project: Project | None) -> tuple[Named, str | Host]:
    """The one image that a word means. Raises SelectorError and UsageError."""
    found = names_of([word], (), project)
    if len(found) != 1:
        names = ", ".join(named.name for named, _ in found[:3]) + (", …" if len(found) > 3 else "")
        raise SelectorError(f"{word!r} means {len(found)} images ({names}).", hint="Name one.")
    return found[0]


def image_place(finder: Finder, word: str, project: Project | None) -> Place:
    """Where it runs. Raises SelectorError, BenchmarkError and EngineError."""
    return finder.place(*one_image(word, project))


def clean_up(engine: Engine) -> None:
    """Remove what runs left that were killed: it would go on measuring beside us."""
    left = remove_leftovers(engine)
    if left:
        console.say(f"removed {left} containers, networks and volumes that a killed run had left", style="yellow")


def compare_all(
    comparison: Comparison, experiments: Sequence[Experiment], session: Session, engine: Engine
) -> list[Compared]:
    """One after the other. Raises BenchmarkError where a run fails, or where one cannot be."""
    for place in (comparison.a, comparison.b):
        for each in experiments:
            if problem := place.problem(each):
                raise BenchmarkError(f"{each.name} in {place.named.name}: {problem}.", hint="See docs/gpu.md.")
    with board(len(experiments), doing="comparing") as shown, contextlib.ExitStack() as ending:
        return run_all(
            experiments,
            lambda each: _compare(comparison, each, shown),
            jobs=1,
            stop=partial(session.stop, engine, ending),
        )


def _compare(comparison: Comparison, experiment: Experiment, shown: Board) -> Compared:
    shown.start(experiment.name, f"{comparison.a.named.name} against {comparison.b.named.name}")
    try:
        found = comparison.run(experiment, partial(shown.look, experiment.name))
    except BenchmarkError as error:
        shown.end(experiment.name, error.message, good=False)
        raise
    good = found.judgement.verdict in ("same", "faster")
    shown.end(experiment.name, sentence(found.judgement), good=good)
    return found


def demand_speed(compared: Sequence[Compared]) -> Verdict:
    """The verdict of all. Raises SlowerError and NoisyError."""
    verdict = overall(compared)
    bad = [each for each in compared if each.judgement.verdict == verdict]
    told = "; ".join(f"{each.experiment.name}: {sentence(each.judgement)}" for each in bad)
    if verdict == "slower":
        raise SlowerError(f"The second image is slower. {told}.", hint="Look for what changed: `nox -s sbom`.")
    if verdict == "too noisy":
        raise NoisyError(
            f"This machine is too noisy to tell. {told}.",
            hint="End what else runs, or give --rounds or --threshold more.",
        )
    return verdict


def show(compared: Sequence[Compared], title: str) -> None:
    console.show_table(HEAD, [row(each) for each in compared], title=title)


def folder_of(path: Path | None) -> Path:
    """What paths of a plan are relative to."""
    return (path.absolute().parent if path else Path.cwd()).resolve()


def released_image(spec: Spec, repository: Repository, engine: Engine, *, plain_http: bool) -> str:
    """The release that an image's own tag points at, by digest, pulled where the engine has it not.

    Empty where the image has no release. Raises RegistryError and EngineError.
    """
    digest = registry_of(repository, plain_http=plain_http).digest(spec.own_tag)
    if digest is None:
        return ""
    reference = f"{repository}@{digest}"
    if engine.find([reference]) is None:
        console.say(f"pulling {repository}:{spec.own_tag} …", style="dim")
        engine.pull(str(repository), digest, login_for_engine(repository.host))
    return reference
