"""`benchmark compare`: measure two images, or an image and its release."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from torchbake.benchmark.compare import Comparison, as_json, overall, row
from torchbake.benchmark.expand import Experiment, PlaceName
from torchbake.benchmark.model import Plan
from torchbake.benchmark.places import Finder, project_of
from torchbake.checks.smoke_run import Session
from torchbake.commands._benchmark_options import Arguments
from torchbake.commands._benchmark_places import (
    clean_up,
    compare_all,
    demand_speed,
    engine_of,
    experiments_of,
    folder_of,
    one_image,
    read_plan,
    released_image,
    runnable,
    words_of_rules,
)
from torchbake.commands._selection import repository_of
from torchbake.core.signals import interruptible
from torchbake.engine.client import Engine
from torchbake.errors import BenchmarkError, UsageError
from torchbake.matrix.problems import explain
from torchbake.matrix.project import Project
from torchbake.ui import console
from torchbake.ui.command import Command

_WITHOUT_A_PLAN = {"models": ("resnet50",), "num_batches": 20}


def compare(args: Arguments, *words: str) -> None:
    if len(words) > 1 and args.registry:
        raise UsageError("--registry does nothing here: both images are named.", hint="Leave it out, or the first one.")
    session, engine = Session(), engine_of(dry=args.dry_run)
    plan, path = _experiments(args, engine)
    project = project_of(args.matrix, [*words, *words_of_rules(plan)])
    finder = Finder(
        engine=engine, session=session, folder=folder_of(path), timeout=plan.timeout, gpu=args.gpu, own=True,
        dry=args.dry_run, docker=plan.docker,
    )  # fmt: skip
    with interruptible():
        if engine and not args.dry_run:
            clean_up(engine)
        names = words if len(words) > 1 else (_release_reference(args, words[0], project, engine), *words)
        a, b = (finder.place(*one_image(word, project)) for word in names)
        if a.where.digest == b.where.digest and not args.dry_run:
            console.say("both are the same image", style="yellow")
        cases = runnable((a, b), _planned(plan, project, (a.place_name, b.place_name)), args.gpu)
        options = {"threshold": args.threshold, "rounds": args.rounds, "seed": args.seed}
        judging: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        comparison = Comparison(a=a, b=b, limit=plan.timeout, **judging)
        if args.dry_run:
            _show_runs(comparison, cases)
            return
        comparisons = compare_all(comparison, cases, session, engine)
    if args.format == "json":
        console.show_json({
            "verdict": overall(comparisons), "threshold": comparison.threshold, "a": a.where.model_dump(),
            "b": b.where.model_dump(), "experiments": [as_json(each) for each in comparisons],
        })  # fmt: skip
    else:
        title = f"{b.place_name.name} against {a.place_name.name}"
        console.show_table(("experiment", "first", "second", "verdict"), map(row, comparisons), title=title)
    demand_speed(comparisons, quieter="give --rounds or --threshold more")


def _release_reference(args: Arguments, word: str, project: Project | None, engine: Engine | None) -> str:
    """Return the reference of an image's release: its digest, or its tag in a dry run, which pulls nothing.

    Raises UsageError, BenchmarkError, RegistryError and EngineError.
    """
    if not args.registry:
        raise UsageError(
            "With which image?", hint="Write: compare A B; or name the registry of its release: --registry"
        )
    name = one_image(word, project)[0].name
    spec = next((spec for spec in project.expansion.specs if spec.id == name), None) if project else None
    if spec is None:
        raise UsageError(f"{word!r} is not an image of the matrix.", hint="Name both: compare A B")
    repository = repository_of(args.registry, spec)
    if args.dry_run or engine is None:
        return f"{repository}:{spec.own_tag}"
    reference = released_image(spec, repository, engine, plain_http=args.plain_http)
    if not reference:
        raise BenchmarkError(f"{repository} holds no {spec.own_tag}.", hint="Name both images: compare A B")
    return reference


def _experiments(args: Arguments, engine: Engine | None) -> tuple[Plan, Path | None]:
    """Return the plan, which the options describe unless `--plan` names a file. Raises PlanError and UsageError."""
    names = ("model", "batch_size", "dtype", "phase", "num_batches", "num_gpus")
    arguments = {name: value for name in names if (value := getattr(args, name)) not in (None, ())}
    if args.plan:
        if arguments:
            raise UsageError(
                f"--plan says what is measured, and so does --{next(iter(arguments))}.", hint="Choose one."
            )
        return read_plan(args.plan, engine, args.variables), args.plan
    if args.variable:
        raise UsageError("-P does nothing here: no plan has variables.", hint="Name a plan: --plan FILE")
    keys = {"model": "models", "batch_size": "batch_sizes", "dtype": "dtypes", "phase": "phases", "num_gpus": "gpus"}
    try:
        plan = Plan.model_validate(_WITHOUT_A_PLAN | {keys.get(name, name): value for name, value in arguments.items()})
    except ValidationError as error:
        (key, *_), problem = explain(error.errors()[0], Plan)
        option = next((name for name, plural in keys.items() if plural == key), key)
        raise UsageError(f"--{option} {problem}.", hint=f"See: {Command('benchmark', '--help')}") from None
    return plan, None


def _planned(plan: Plan, project: Project | None, images: Sequence[PlaceName]) -> Sequence[Experiment]:
    """Raises BenchmarkError if the plan excludes all experiments."""
    experiments = experiments_of(plan, project, images)
    if not experiments:
        raise BenchmarkError(
            f"The plan excludes all of its experiments in {' and '.join(place_name.name for place_name in images)}.",
            hint="Take a rule of `exclude` away, or compare other images.",
        )
    return experiments


def _show_runs(comparison: Comparison, cases: Sequence[Experiment]) -> None:
    for each in cases:
        for place in (comparison.a, comparison.b):
            print(f"# {each.name}, {place.place_name.name}")
            print(place.command(each))
    least, most = comparison.rounds, comparison.most_rounds
    print(f"# rounds of the first alone, A A A A: {least}; then of both, A B B A: {least} to {most}")
