"""`benchmark`: run a plan of experiments on images and hosts, or compare two images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from torchbake.benchmark.expand import PlaceName, PlanCase, expand, with_source
from torchbake.benchmark.field_types import PlanHost
from torchbake.benchmark.manual import plan_schema
from torchbake.benchmark.model import load_plan
from torchbake.benchmark.page import render_page, summarise
from torchbake.benchmark.places import Finder, Place, names_of, project_of
from torchbake.benchmark.records import Records, write_csv, write_monitor
from torchbake.benchmark.run import CaseResult, PendingCase, PlanRun, begin, figure, milliseconds, unfinished
from torchbake.checks.smoke_run import Session
from torchbake.commands import _options as opt
from torchbake.commands._benchmark_compare import compare
from torchbake.commands._benchmark_options import FOLDER, Arguments
from torchbake.commands._benchmark_places import check_files, clean_up, engine_of, folder_of
from torchbake.commands._subcommands import Subcommand, SubcommandWord
from torchbake.core.files import write_text
from torchbake.core.plain_text import with_reasons
from torchbake.core.problem import Problem, problem_of
from torchbake.core.signals import interruptible
from torchbake.errors import BenchmarkError, UsageError
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

__all__ = ["EXAMPLES", "Arguments", "run"]

EXAMPLES = (
    "examples/benchmark/plan.yaml",
    "examples/benchmark/plan.yaml --dry-run",
    "examples/benchmark/plan.yaml --report",
    "examples/benchmark/largest-batch.yaml -P net=resnet18 -P sizes='[8, 16]' --report",
    "compare 2.13.0-cpu-runtime-debian12 ghcr.io/acme/pytorch:cpu --model resnet50",
    "compare 2.13.0-cpu-runtime-debian12 --registry ghcr.io/acme --threshold 3%",
    "schema > benchmark.schema.json",
)
_IMAGE = "an image of the matrix by its words, or a reference"
SUBCOMMANDS = {
    "PLAN": Subcommand(
        summary="measure the experiments of a plan", words=(SubcommandWord(name="PLAN.yaml", help="the plan"),)
    ),
    "compare": Subcommand(
        summary="measure two images by turns, or an image and its release, and say whether the second is slower",
        words=(SubcommandWord(name="IMAGE", help=f"{_IMAGE}; one alone is compared with its release", many=True),),
    ),
    "schema": Subcommand(summary="write the JSON schema of plans, for editors"),
}
_HEAD = ("experiment", "place", "state", "samples/s", "median", "95%")


def run(args: Arguments) -> int:
    if not args.request:
        raise UsageError(
            "Which plan?", hint=f"Write: {Command('benchmark', 'PLAN.yaml')}, or: {Command('benchmark', 'compare A B')}"
        )
    action, *words = args.request
    act, most = _ACTIONS.get(action, (_run_plan, 0))
    if len(words) > most or (action == "compare" and not words):
        takes = {"compare": "two images, or one and --registry", "schema": "nothing more"}.get(action, "one plan")
        raise UsageError(f"`benchmark {action}` takes {takes}.", hint=f"See: {Command('benchmark', '--help')}")
    opt.refuse_unused(args, "benchmark", action if action in _ACTIONS else "PLAN")
    return act(args, *(words if action in _ACTIONS else args.request)) or 0


def _run_plan(args: Arguments, file: str) -> None:
    path = Path(file)
    plan, document = load_plan(path, variables=args.variables)
    folder = folder_of(path)
    project = project_of(args.matrix, plan.images)
    names = names_of(plan.images, plan.hosts, project)
    cases = [
        replace(case, experiment=with_source(case.experiment, folder))
        for case in expand(plan, [place for place, _ in names], document)
    ]
    session, engine = Session(), engine_of(dry=args.dry_run) if plan.images else None
    finder = Finder(
        engine=engine, session=session, folder=folder, timeout=plan.timeout, gpu=args.gpu, dry=args.dry_run,
        docker=plan.docker,
    )  # fmt: skip
    check_files(plan, document, folder, engine)
    stop, records = plan.stop_at_out_of_memory, Records(path=args.matrix.absolute().parent / FOLDER / "results.jsonl")
    with interruptible():
        if engine and not args.dry_run:
            clean_up(engine)
        with step("preparing the images and hosts"):
            places = {place.name: _find(finder, place, what) for place, what in names}
        experiments = begin(cases, places, {} if args.force else records.results())
        if args.dry_run:
            _show_commands(experiments, args.format)
            return
        results = PlanRun(records=records, session=session, engine=engine, limit=plan.timeout, stop=stop).run(
            experiments
        )
    write_csv(records.path.with_suffix(".csv"), records.all())
    if any(each.record and each.record.monitor for each in results):
        write_monitor(records.path.with_name("monitor.csv"), records.all())
    if args.report:
        _write_page(records.path.with_name(f"{path.stem}.html"), path.name, results)
    console.show_result(args.format, {"experiments": list(map(_entry, results))}, _HEAD, map(_row, results))
    _judge(results, args.gpu, stop=stop)


def _find(finder: Finder, place_name: PlaceName, what: str | PlanHost) -> Place | Problem:
    """Find a place; return the problem of a place that cannot be used, so that the others are still measured."""
    try:
        return finder.place(place_name, what)
    except BenchmarkError as error:
        return problem_of(error)


def _show_commands(experiments: Sequence[PendingCase], form: str) -> None:
    """Print commands for a shell. An experiment that is not run is a comment with the reason."""
    entries = [(each, each.place.command(each.case.experiment) if each.place else "") for each in experiments]
    if form == "json":
        rows = [{**_names(each.case), "command": command, **_state(each.result)} for each, command in entries]
        console.show_json({"experiments": rows})
        return
    for each, command in entries:
        state = _state(each.result)
        note = f": {state['state']} {state['reason']}".rstrip() if state["state"] else ""
        print(f"# {each.case.experiment.name}, {each.case.place.name}{note}")
        if command:
            print("\n".join(f"# {line}" for line in command.splitlines()) if each.result else command)


def _state(result: CaseResult | None) -> dict[str, str]:
    return {"state": result.state, "reason": result.reason} if result else {"state": "", "reason": ""}


def _names(case: PlanCase) -> dict[str, object]:
    return {**case.experiment.model_dump(exclude={"settings", "source"}), "place": case.place.name}


def _write_page(path: Path, plan: str, results: Sequence[CaseResult]) -> None:
    text = datetime.now(UTC).isoformat(timespec="seconds")
    write_text(path, render_page(summarise(results), plan=plan, date=text))
    console.say(f"the page: {path}")


def _entry(result: CaseResult) -> dict[str, object]:
    record = (
        result.record.model_dump(include={"where", "started", "seconds", "result", "monitor"}) if result.record else {}
    )
    return {**_names(result.case), "state": result.state, "reason": result.reason, **record}


def _row(result: CaseResult) -> tuple[str, ...]:
    head, record = (result.case.experiment.name, result.case.place.name), result.record
    if record is None or record.result is None:
        return *head, f"{result.state}: {result.reason}", "", "", ""
    time = record.result.time
    return *head, result.state, figure(record.result.throughput), milliseconds(time.median), milliseconds(time.p95)


def _judge(results: Sequence[CaseResult], gpu: str, *, stop: bool) -> None:
    bad = unfinished(results, stop=stop)
    bad += [each for each in results if each.state == "not-run" and not each.record and gpu == "require"]
    if bad:
        reasons = [
            (f"{each.case.experiment.name}, {each.case.place.name}", f"{each.state} {each.reason}") for each in bad
        ]
        raise BenchmarkError(
            with_reasons(f"{len(bad)} of {len(results)} experiments have no result:", reasons),
            hint="Correct it, then run again: what was measured is kept.",
        )
    if all(each.state in ("not-run", "excluded") for each in results):
        console.say("no experiment could be run: the table says why", style="yellow")


def _schema(args: Arguments) -> None:
    print(plan_schema(), end="")


_ACTIONS: Mapping[str, tuple[Callable[..., int | None], int]] = {"compare": (compare, 2), "schema": (_schema, 0)}
