"""`smoke`: run short training jobs in containers or on a Python of this host; `test` runs all checks of an image."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torchbake.build.plan import refs_of
from torchbake.checks.gpu import family_of, family_of_build, find_gpu
from torchbake.checks.reports import ImageResult, absent
from torchbake.checks.smoke_jobs import PAYLOADS, SmokeJob, SmokeOptions
from torchbake.checks.smoke_run import InContainers, OnHost, Session, SmokeRun, SmokeSubject, own_toolbox
from torchbake.checks.tables import show_each
from torchbake.checks.verdict import Outcome
from torchbake.commands import _options as opt
from torchbake.commands._selection import load_selection
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.engine.client import Engine, connect
from torchbake.engine.containers import ORDERS, Order
from torchbake.engine.gpu import MODES, GpuAccess, gpu_of_host
from torchbake.engine.image import EngineImage
from torchbake.engine.leftovers import remove_leftovers
from torchbake.engine.runner import RUN
from torchbake.errors import CheckError, UsageError
from torchbake.matrix.spec import pytorch_of
from torchbake.oci.labels import COMPILER, ID, versions_in
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = (
    "cpu    # the training jobs alone; `test` runs all checks of an image",
    "cpu --nodes 3 --nproc 2 --payload ddp",
    "cuda12 --gpu require --format json",
    "--image registry.example.com/team/pytorch:latest",
    "--host /usr/bin/python3",
)
# Print torch's version file without importing torch, which takes seconds and may fail.
_LOOK = """\
import importlib.util, pathlib
spec = importlib.util.find_spec("torch")
print(pathlib.Path(spec.origin).with_name("version.py").read_text() if spec and spec.origin else "")
"""


@dataclass(frozen=True, kw_only=True)
class SmokeCase:
    """An image to test, with the engine's image of its reference, if there is one."""

    name: str
    ref: str
    row: str
    image: EngineImage | None
    family: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    image: tuple[str, ...] = opt.option(
        "instead of a selector: any image in the engine; repeat for more", group="|", metavar="REF"
    )
    host: str | None = opt.option("instead of images: this Python of this machine", group="|", metavar="PYTHON")
    gpu: str = opt.option(
        "auto: what needs a GPU is not run where there is none; require: that is an error (default: auto)",
        choices=MODES, default="auto",
    )  # fmt: skip
    nodes: int | None = opt.option("containers of a distributed job (default: 2)", type=opt.positive, metavar="N")
    nproc: int = opt.option("processes in each of them (default: 2)", type=opt.positive, default=2, metavar="N")
    payload: tuple[str, ...] = opt.option(
        f"run only this payload; repeat for more: {', '.join(PAYLOADS)}", choices=PAYLOADS, metavar="NAME"
    )
    order: Order | Literal["both"] = opt.option("how nodes are started (default: both, in turn)", default="both")
    timeout: int = opt.timeout(300, "seconds for each payload")
    toolbox: Path | None = opt.option(
        "mount this folder in the place of an image's own payloads, to try changed ones without a build", metavar="DIR"
    )
    jobs: int = opt.jobs(by_cores=True)
    keep: bool = opt.option("keep containers and networks, to look at them")
    dry_run: bool = opt.option("show what would run; run nothing")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    options, session = _options(args), Session(keep=args.keep)
    with interruptible():
        missing: list[ImageResult] = []
        if args.host:
            with step(f"looking for torch in {args.host}"):
                engine, subjects = None, [_host(args.host, args, session)]
        else:
            engine = connect()
            cases = _cases(args, engine)
            missing = [absent(case.name, case.ref, case.row) for case in cases if case.image is None]
            with step("preparing the images"):
                subjects = _subjects(args, cases, engine, session)
        if args.dry_run:
            _show_plan(subjects, missing, options, args.format)
            return 0
        results = [*SmokeRun(options=options, session=session, engine=engine).run(subjects, jobs=args.jobs), *missing]
    show_each(results, args.format)
    if args.keep:
        label = json.dumps(f"label={RUN}={session.id}")
        console.say("kept. Remove it all by:", style="yellow")
        console.say(f"    docker rm -fv $(docker ps -aq --filter {label}); docker network prune -f --filter {label}")
    if bad := [(result.name, result.reason) for result in results if result.outcome is not Outcome.PASSED]:
        raise CheckError(
            with_reasons(f"{len(bad)} of {len(results)} did not pass:", bad), hint="Correct it, run again."
        )
    return 0


def _options(args: Arguments) -> SmokeOptions:
    if args.host and args.selectors:
        raise UsageError(f"--host names a Python; {args.selectors[0]!r} would name images.", hint="Run them in turn.")
    if args.image and args.selectors:
        raise UsageError(
            f"--image names the image; {args.selectors[0]!r} would name others.", hint="Run them one after the other."
        )
    if args.host and (args.nodes or 1) > 1:
        raise UsageError("A host is one node.", hint="Leave --nodes out; --nproc says how many processes.")
    return SmokeOptions(
        gpu=args.gpu,
        nodes=1 if args.host else args.nodes or 2,
        nproc=args.nproc,
        payloads=tuple(name for name in PAYLOADS if name in args.payload) or PAYLOADS,
        orders=ORDERS if args.order == "both" else (args.order,),
        timeout=args.timeout,
    )


def _cases(args: Arguments, engine: Engine) -> list[SmokeCase]:
    if args.image:
        return [_case(engine, ref) for ref in dict.fromkeys(args.image)]
    project, selection = load_selection(args.matrix, args.selectors)
    specs = pytorch_of(selection.specs)
    if not specs:
        raise UsageError("An init image has no torch to test.", hint=f"Check it: {Command('test')}")
    refs = refs_of(specs, project.tags)
    images = engine.tagged_images(refs.values())
    return [
        SmokeCase(name=spec.id, ref=refs[spec.id], row=spec.id, image=images.get(refs[spec.id]), family=spec.family)
        for spec in specs
    ]


def _case(engine: Engine, ref: str) -> SmokeCase:
    """Find an image by a reference, also an image that is not of the matrix."""
    digest = engine.find([ref])
    if digest is None:
        return SmokeCase(name=ref, ref=ref, row="", image=None)
    config = engine.config(digest)
    labels = config.get("Labels") or {}
    image = EngineImage(digest=digest, tags=(ref,), labels=labels, size_bytes=0)
    return SmokeCase(name=ref, ref=ref, row=labels.get(ID, ""), image=image, family=family_of(None, config))


def _subjects(args: Arguments, cases: Sequence[SmokeCase], engine: Engine, session: Session) -> list[SmokeSubject]:
    if args.toolbox and not (args.toolbox / "smoke").is_file():
        raise UsageError(f"{args.toolbox} has no `smoke` in it.", hint="The project's own is entrypoints/pytorch.")
    if not args.dry_run:
        removed = remove_leftovers(engine)
        if removed:
            console.say(
                f"removed {removed} containers, networks and volumes that a killed run had left", style="yellow"
            )
    return [_in_containers(args, case, case.image, engine, session) for case in cases if case.image]


def _in_containers(
    args: Arguments, case: SmokeCase, image: EngineImage, engine: Engine, session: Session
) -> SmokeSubject:
    """Prepare an image. Raises CheckError before any payload is started if a GPU is required and missing."""
    gpu = find_gpu(engine, image.digest, case.family, args.gpu, session, dry=args.dry_run)
    if case.family == "cuda":
        _require_gpu(args, gpu)
    place = InContainers(
        engine=engine, image=image.digest, family=case.family, gpu=gpu, session=session,
        mounted=args.toolbox or own_toolbox(engine, image.labels),
    )  # fmt: skip
    return SmokeSubject(
        name=case.name, ref=case.ref, row=case.row, digest=image.digest, family=case.family,
        expected=versions_in(image.labels), gpu=gpu, place=place, compiler=COMPILER in image.labels,
    )  # fmt: skip


def _require_gpu(args: Arguments, gpu: GpuAccess) -> None:
    problem = gpu.problem(args.gpu)
    if args.gpu == "require" and problem:
        raise CheckError(f"{problem.reason[0].upper()}{problem.reason[1:]}.", hint=f"Read: {Command('help', 'gpu')}")


def _host(host: str, args: Arguments, session: Session) -> SmokeSubject:
    text = shutil.which(host)
    if text is None:
        raise UsageError(f"--host {host} is not a program.", hint="Name a Python: /usr/bin/python3")
    python = Path(text).absolute()
    process = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, check=False)
    if process.returncode or not process.stdout.strip():
        reason = (process.stderr.strip().splitlines() or ["there is no such module"])[-1]
        raise CheckError(f"{python} has no torch: {reason}", hint=f"Install it: {python} -m pip install torch")
    family = family_of_build(process.stdout)
    gpu = gpu_of_host()
    if family == "cpu":
        gpu = replace(gpu, how="none", reason=f"its torch is a CPU build ({gpu.reason})")
    _require_gpu(args, gpu)
    place = OnHost(
        python=python, gpu_off=args.gpu == "off", session=session, folder=(args.toolbox or OWN_TOOLBOX).absolute()
    )
    return SmokeSubject(
        name=str(python), ref="this machine", row="", digest="", family=family, expected={}, gpu=gpu, place=place
    )


def _show_plan(
    subjects: Sequence[SmokeSubject], missing: Sequence[ImageResult], options: SmokeOptions, form: str
) -> None:
    rows: list[dict[str, str]] = [
        {"name": subject.name, "check": name, "step": _step(job)}
        for subject in subjects
        for job in subject.jobs(options)
        for name in job.check_ids
    ]
    rows += [{"name": result.name, "check": "", "step": result.remark} for result in missing]
    console.show_result(form, {"checks": rows}, ("image", "check", "step"), [tuple(row.values()) for row in rows])


def _step(job: SmokeJob) -> str:
    if job.problem:
        return f"not run: {job.problem.reason}"
    return "run" if job.layout is None else f"run on {job.layout.nodes} {'nodes' if job.layout.nodes > 1 else 'node'}"
