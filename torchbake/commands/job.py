"""`job`: check a job.yaml, write it for a launcher, or run it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchbake.commands import _options as opt
from torchbake.commands._job_code import leaves_this_machine, name_code_of, note_of_engine, push_code_of
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import repository_of
from torchbake.commands._subcommands import Subcommand, SubcommandWord
from torchbake.core.paths import layout_of
from torchbake.core.signals import interruptible
from torchbake.core.suggest import nearest
from torchbake.engine.client import connect
from torchbake.errors import JobError, UsageError
from torchbake.jobs import foreign
from torchbake.jobs.code_image import CodePush
from torchbake.jobs.expressible import OfKubernetes, Target, impossible, sayable, unsupported_keys
from torchbake.jobs.kustomize import write_base
from torchbake.jobs.load import job_problems, load_job
from torchbake.jobs.lookup import in_engine, in_registry
from torchbake.jobs.model import Job
from torchbake.jobs.pin import ON_THE_ENGINE, Places, pin_task
from torchbake.jobs.prepare import Refer, prepare
from torchbake.jobs.running import RUNNABLE, kept_by_running, preview, run_job
from torchbake.jobs.target_schema import check_for
from torchbake.jobs.targets import TARGETS, docker, slurm, target_of
from torchbake.jobs.task import Task
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.schema import editor_schema
from torchbake.matrix.spec import Spec
from torchbake.matrix.yaml_source import Document
from torchbake.store.layout import Layout
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "run job.yaml",
    "run job.yaml --target kubernetes --registry ghcr.io/acme",
    "run job.yaml --target slurm --registry ghcr.io/acme --code .",
    "show docker job.yaml | sh",
    "show kubernetes job.yaml | kubectl apply --server-side -f -",
    "show kubernetes job.yaml --kustomize base",
    "check job.yaml",
    "targets",
    "schema > job.schema.json",
)
_FILE = SubcommandWord(name="FILE", help="the job.yaml")
SUBCOMMANDS = {
    "run": Subcommand(summary="run a job on this machine's engine, or on the launcher of --target", words=(_FILE,)),
    "show": Subcommand(
        summary="write a job as a launcher takes it",
        words=(SubcommandWord(name="TARGET", help="the launcher", choices=tuple(TARGETS)), _FILE),
    ),
    "check": Subcommand(summary="check a job, and show which launchers can express it", words=(_FILE,)),
    "targets": Subcommand(summary="show the launchers, and the keys that each cannot express"),
    "schema": Subcommand(summary="write the JSON schema of job.yaml, for editors"),
}


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    request: tuple[str, ...] = opt.argument(
        f"run FILE, show TARGET FILE, check FILE, targets, or schema; targets: {', '.join(TARGETS)}", nargs="*",
        metavar="WORD",
    )  # fmt: skip
    registry: str | None = opt.registry("where the matrix's images are: ghcr.io/acme", configured=leaves_this_machine)
    plain_http: bool = opt.plain_http()
    pin: bool = opt.option(
        "keep the tags by which images are named (default: pin immutable tag and digest)", "--no-pin",
        action="store_false", default=True,
    )  # fmt: skip
    target: str = opt.option(
        f"run: the launcher; docker is the engine of this machine (default: {RUNNABLE[0]})", choices=RUNNABLE,
        default=RUNNABLE[0], of=("run",),
    )  # fmt: skip
    code: Path | None = opt.option(
        "run, show, check: this folder becomes a layer of the image, in place of the job's `files`",
        of=("run", "show", "check"), metavar="DIR",
    )  # fmt: skip
    code_to: str = opt.option(
        "run, show: push the image with that layer to this repository of the same registry", of=("run", "show"),
        metavar="REPOSITORY",
    )  # fmt: skip
    push: bool = opt.option("show: push the image with the layer of `files.layer` or --code", of=("show",))
    dry_run: bool = opt.option("run: show what would be submitted; run nothing", of=("run",))
    lenient: bool = opt.option("warn about keys that the target cannot express, and go on")
    check: bool = opt.option("show: check it against the target's own schema, offline", of=("show",))
    kustomize: Path | None = opt.option("show: write a kustomize base, not to stdout", of=("show",), metavar="FOLDER")
    format: opt.Format = opt.result_format(text="targets, check: of the result", of=("targets", "check"))


def run(args: Arguments) -> int:
    action, *words = args.request or ("",)
    if action not in _ACTIONS:
        raise UsageError(_unknown("action", action, _ACTIONS), hint="Write: job show TARGET FILE")
    names, act = _ACTIONS[action]
    if len(words) != len(names):
        what = " and ".join(names) or "nothing more"
        raise UsageError(f"`job {action}` takes {what}.", hint=f"Write: {' '.join(['job', action, *names])}")
    opt.refuse_unused(args, "job", action)
    return act(args, *words) or 0


def _run(args: Arguments, file: str) -> int:
    """Run a job; return its exit code."""
    task, target = _task(args, _target(args.target), file, kept_by_running(args.target))
    task = _with_code(args, task, target, push=not args.dry_run, how="a run without --dry-run pushes it")
    if args.dry_run:
        if task.code:
            note_of_engine(task, task.code)
        manifest, commands = preview(task, target)
        print(manifest, end="")
        for command in commands:
            console.say(f"would run: {command}", style="dim")
        return 0
    with interruptible():
        code = run_job(task, target, Layout(folder=layout_of(args.matrix.absolute().parent)))
    console.say(f"{task.job.name} ended with {code}", style="yellow" if code else None)
    return code


def _show(args: Arguments, name: str, file: str) -> None:
    """Print the manifest, and nothing else, on stdout."""
    if args.kustomize and not isinstance(_target(name), OfKubernetes):
        raise UsageError(f"--kustomize is for objects of Kubernetes, and {name} writes none.", hint="Leave it out.")
    task, target = _task(args, _target(name), file)
    task = _with_code(args, task, target, push=args.push, how="add --push")
    manifest = target.render(task)
    if args.check:
        console.say(f"The manifest fits the schema of: {check_for(target.NAME, manifest)}.")
    if args.kustomize:
        text = ", ".join(str(path) for path in write_base(args.kustomize, manifest))
        console.say(f"Wrote {text}.")
        return
    print(manifest, end="")


def _task(args: Arguments, target: Target, file: str, keys: frozenset[str] = frozenset()) -> tuple[Task, Target]:
    """Prepare a job for a target, with pinned images; its file may choose a variant of the target.

    ``keys`` are the keys that the target need not express. Raises JobError.
    """
    job, document = load_job(Path(file), args.code)
    target = target_of(target, job)
    never, unsayable = impossible(job, target), unsupported_keys(job, target, keys)
    if never or (unsayable and not args.lenient):
        error = job_problems(document, [*never, *unsayable])
        raise error if never else JobError(error.message, hint="Leave it out, or make it a warning: --lenient")
    if unsayable:
        console.say(job_problems(document, unsayable).message, style="yellow")
    task = prepare(job, document, target, _project(args.matrix), _refer(args.registry))
    if not _names_image(task, target):
        task = replace(task, code=None)
    elif args.pin:
        task = pin_task(task, document, _places(args, target, here=not (task.code and _pulls_code(args, target))))
    wrong = list(foreign.problems(task))
    if wrong:
        raise job_problems(document, wrong)
    for note in foreign.notes(task):
        console.say(note, style="dim")
    return task, target


def _names_image(task: Task, target: Target) -> bool:
    """Return whether a manifest depends on the image, whose name it may take apart.

    For bare hosts, only a comment names what Python must have.
    """
    other = replace(task, image="registry.example.com/other/image:1")
    one, two = (target.render(each).splitlines() for each in (task, other))
    return [line for line in one if line[:1] != "#"] != [line for line in two if line[:1] != "#"]


def _pulls_code(args: Arguments, target: Target) -> bool:
    """Return whether the nodes pull the code from a registry. For a run here, the engine gets it without one."""
    if args.request[0] == "run" and target.NAME in ON_THE_ENGINE:
        return bool(args.registry or args.code_to)
    return True


def _with_code(args: Arguments, task: Task, target: Target, *, push: bool, how: str) -> Task:
    """Put the code of the job on its image in the registry, or without ``push`` only name the result."""
    if task.code is None or not _pulls_code(args, target):
        return task
    pushing = CodePush(
        registry_of=lambda repository: registry_of(repository, plain_http=args.plain_http),
        today=datetime.now(UTC).date(),
        to=args.code_to,
        split=target.NAME == slurm.NAME and task.job.slurm.runtime == "apptainer",  # which mounts the code
    )
    return push_code_of(task, task.code, pushing) if push else name_code_of(task, task.code, pushing, how)


def _places(args: Arguments, target: Target, *, here: bool) -> Places:
    return Places(
        registry=in_registry(lambda repository: registry_of(repository, plain_http=args.plain_http)),
        engine=in_engine(connect),
        here=here and target.NAME in ON_THE_ENGINE,
        released=args.registry is not None,
        tell=lambda text: console.say(text, style="yellow"),
    )


def _check(args: Arguments, file: str) -> None:
    """Check a file against every target."""
    job, document = load_job(Path(file), args.code)
    project, refer = _project(args.matrix), _refer(args.registry)
    for note in foreign.notes(prepare(job, document, TARGETS[docker.NAME], project, refer)):
        console.say(note, style="dim")
    problems = {
        name: _against(job, document, target_of(target, job), project, refer) for name, target in TARGETS.items()
    }
    if args.format == "json":
        console.show_json({"targets": [{"name": name, "problem": why or None} for name, why in problems.items()]})
        return
    for name, why in problems.items():
        print(f"{name}: {why or 'can express all of it'}")


def _against(job: Job, document: Document, target: Target, project: Project | None, refer: Refer) -> str:
    """Return the problem of a job with one target. Raises JobError for a problem with all of them."""
    try:
        prepare(job, document, target, project, refer)
    except JobError as error:
        if not target.CARRIES_FILES:
            raise
        return error.message
    problems = [*impossible(job, target), *unsupported_keys(job, target)]
    return job_problems(document, problems).message if problems else ""


def _targets(args: Arguments) -> None:
    if args.format == "json":
        console.show_json({"targets": [_entry(target) for target in TARGETS.values()]})
        return
    rows = [(name, target.ABOUT, str(target.MOST_NODES)) for name, target in TARGETS.items()]
    console.show_table(("target", "what it writes", "nodes at most"), rows)
    print()
    reasons = list[tuple[str, str, str]]()
    for name, target in TARGETS.items():
        reasons += [(name, no.key, no.why + (f" ({no.only})" if no.only else "")) for no in target.CANNOT]
        reasons += [(name, need.key, f"must be set: {need.why}") for need in target.NEEDS]
    console.show_table(("target", "key", "why it cannot be expressed, or must be set"), reasons)


def _entry(target: Target) -> dict[str, Any]:
    return {
        "name": target.NAME,
        "about": target.ABOUT,
        "most_nodes": target.MOST_NODES,
        "can": sayable(target),
        "cannot": [{"key": no.key, "why": no.why, "only": no.only or None} for no in target.CANNOT],
        "needs": [{"key": need.key, "why": need.why} for need in target.NEEDS],
    }


def _schema(args: Arguments) -> None:
    print(editor_schema(Job), end="")


_ACTIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., int | None]]] = {
    "run": (("FILE",), _run),
    "show": (("TARGET", "FILE"), _show),
    "check": (("FILE",), _check),
    "targets": ((), _targets),
    "schema": ((), _schema),
}


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise UsageError(_unknown("target", name, TARGETS), hint=f"List them: {Command('job', 'targets')}")
    return TARGETS[name]


def _unknown(what: str, word: str, choices: Mapping[str, object]) -> str:
    near = nearest(word, choices, count=1)
    intended = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(choices)}."
    return f"There is no {what} {word!r}; {intended}" if word else f"Which {what}? There are: {', '.join(choices)}."


def _project(matrix: Path) -> Project | None:
    """Load the matrix, if there is one: a job whose image is a reference needs none."""
    return load_project(matrix) if matrix.exists() else None


def _refer(registry: str | None) -> Refer:
    """Return a function that names an image of the matrix by its own tag, in the registry if one is given."""

    def refer(spec: Spec) -> str:
        where = str(repository_of(registry, spec)) if registry else spec.repository
        return f"{where}:{spec.own_tag}"

    return refer
