"""`reproduce`: build an image twice without a cache, and compare the builds byte for byte."""

from dataclasses import asdict, dataclass
from functools import partial

from rich.text import Text

from torchbake.build.backend import backend_of
from torchbake.build.bakefile import BuildJob, BuildOptions
from torchbake.build.base_image import BaseImage, find_base, make_base
from torchbake.build.base_look import check_version
from torchbake.build.commit import commit_time, revision
from torchbake.build.native import bases_for
from torchbake.build.prepare import ImagePreparation
from torchbake.build.reproduce import Reproduction, ReproductionResult
from torchbake.commands import _options as opt
from torchbake.commands._build_options import WithExecutor
from torchbake.commands._selection import load_selection
from torchbake.core.digest import short_digest
from torchbake.core.paths import builder_folder
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.debian.lockfile import find_debian_lock
from torchbake.engine.client import Engine, connect
from torchbake.errors import ReproduceError, UsageError
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.matrix.project import Project, run_folder
from torchbake.matrix.spec import BaseSpec, Spec
from torchbake.projects.package_sources import read_package_sources
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.progress_board import board

EXAMPLES = (
    "cpu",
    "volume-permissions --format json",
    "cpu --builder default --builder kube",
    "volume-permissions --no-engine",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors, WithExecutor):
    builder: tuple[str, ...] = opt.option(
        "a buildx builder; given twice, the second build is on another one", metavar="NAME"
    )
    no_engine: bool = opt.option("ask no container engine: build by buildah, and compare the images in the store")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    if len(args.builder) > 2:
        raise UsageError("There are two builds: --builder is given twice at most.")
    project, selection = load_selection(args.matrix, args.selectors)
    engine = None if args.no_engine else connect()
    reproduction = _reproduction(args, project, engine)
    # One after the other: parallel builds of one image would share their steps.
    with interruptible(), board(len(selection.specs), doing="reproducing") as progress:
        results = [reproduction.of(_job(project, spec, reproduction), progress) for spec in selection.specs]
    _show(results, args.format)
    if bad := [(result.id, _reason(result)) for result in results if not result.good]:
        raise ReproduceError(
            with_reasons(f"{len(bad)} of {len(results)} are not the same twice:", bad),
            hint=f"Read what can differ, and why: {Command('help', 'reproducible')}",
        )
    return 0


def _reproduction(args: Arguments, project: Project, engine: Engine | None) -> Reproduction:
    backends = [backend_of(project, engine, args.executor, builder, {}) for builder in args.builder or (None,)]
    return Reproduction(
        preparation=ImagePreparation(
            project=project,
            pip=read_package_sources(project),
            locked=True,
            dry_run=False,
            say=console.say,
            wheel_folder=builder_folder(),
        ),
        options=BuildOptions(
            output="", created=commit_time(project.root), revision=revision(project.root), proxies=proxy_variables()
        ),
        apt=read_apt_config(),
        backends=(backends[0], backends[-1]),
        logs=run_folder(project.state),
    )


def _job(project: Project, spec: Spec, reproduction: Reproduction) -> BuildJob:
    """Return the job of an image, after the bases for its build are made."""
    bases = bases_for(spec)
    for backend in reproduction.backends:
        for base in bases:
            backend.check_platform(base.platform)
    return reproduction.preparation.job(spec, *[_base(project, base, reproduction) for base in bases])


def _base(project: Project, spec: BaseSpec, reproduction: Reproduction) -> BaseImage:
    lock = find_debian_lock(project.root, spec)
    known_base = find_base(spec, project.state, lock)
    base = known_base or make_base(
        spec, project.state, reproduction.apt, source="auto", say=console.say,
        start=partial(reproduction.backends[0].start, cached=False), lock=lock,
    )  # fmt: skip
    check_version(spec, base.python)
    return base


def _reason(image: ReproductionResult) -> str:
    """Return why an image was not built twice, or its first difference."""
    differences = image.comparison.differences if image.comparison else ()
    return image.problem or next((f"{each.where}: {each.what}" for each in differences), "")


def _show(results: list[ReproductionResult], form: str) -> None:
    if form == "json":
        console.show_json({"images": [asdict(each) | {"reproducible": each.good} for each in results]})
        return
    console.show_table(("id", "result", "equal layers", "time", "digest"), [_row(each) for each in results])
    for each in results:
        for difference in each.comparison.differences if each.comparison else ():
            console.say(f"{each.id}: {difference.where}: {difference.what}")


def _row(image: ReproductionResult) -> tuple[Text | str, ...]:
    outcome = (
        Text("the same", style="green")
        if image.good
        else Text("failed" if image.problem else "differs", style="bold red")
    )
    if image.comparison is None:
        return Text(image.id, style="bold"), outcome, "", f"{image.seconds:.0f} s", ""
    digests = " and ".join(dict.fromkeys(map(short_digest, image.comparison.digests)))
    layers = f"{image.comparison.equal} of {image.comparison.layers}"
    return Text(image.id, style="bold"), outcome, layers, f"{image.seconds:.0f} s", digests
