"""`chart`: package the Helm chart with a release's images, push it to a registry, or validate it there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchbake.charts.judge import IMAGES, problems
from torchbake.charts.package import ChartPackage, Place, package
from torchbake.charts.push import push, tag_of
from torchbake.commands import _options as opt
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import load_image, repository_of
from torchbake.commands._signing import Signing, keyless_option, signer_of, trust_of
from torchbake.commands._subcommands import Subcommand, image_words
from torchbake.core.files import replacing
from torchbake.core.paths import TOOLKIT
from torchbake.errors import PublishError, UsageError, ValidateError
from torchbake.matrix.spec import Spec
from torchbake.oci.reference import Reference, Repository, parse_registry
from torchbake.registry.cosign import Verifier
from torchbake.release.repository_view import Holdings
from torchbake.release.verification import Verification
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = (
    "package cpu runtime --registry ghcr.io/acme",
    "push cpu runtime --registry ghcr.io/acme --key cosign.key --require-signature",
    "validate cpu runtime --registry ghcr.io/acme --key cosign.pub --require-signature",
)
_INIT = "volume-permissions"
_IMAGE = image_words("the image that the chart gets, one alone: cpu runtime")
SUBCOMMANDS = {
    "package": Subcommand(summary="write the chart with released images into a file", words=(_IMAGE,)),
    "push": Subcommand(summary="push the chart to the registry of its images, and sign it", words=(_IMAGE,)),
    "validate": Subcommand(
        summary="check that the registry serves the chart and its images as pushed", words=(_IMAGE,)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Arguments(Signing):
    words: tuple[str, ...] = opt.argument(
        "package, push, validate; and the image that the chart gets, one alone: cpu runtime", nargs="*",
        action=opt.Words, metavar="WORD",
    )  # fmt: skip
    registry: str = opt.registry(required=True)
    chart: Path = opt.option("a changed copy of charts/pytorch", default=TOOLKIT / "charts/pytorch", metavar="FOLDER")
    chart_version: str = opt.option("of the package (default: the chart's, and + the image's tag)", metavar="VERSION")
    output: Path = opt.option(
        "package: where it goes (default: here)", default=Path(), metavar="FOLDER", of=("package",)
    )
    keyless: bool = keyless_option(of=("push",))


def run(args: Arguments) -> int:
    action, *selectors = args.words or ("",)
    if action not in _ACTIONS:
        raise UsageError(f"What is to be done: {', '.join(_ACTIONS)}?", hint=f"As in: {Command('chart', EXAMPLES[0])}")
    opt.refuse_unused(args, "chart", action)
    with step(f"{action} of the chart at {args.registry}"):
        _ACTIONS[action](args, tuple(selectors))
    return 0


def _package(args: Arguments, selectors: tuple[str, ...]) -> None:
    chart = _make_package(args, selectors, trust_of(args))
    path = args.output / chart.file
    with replacing(path) as temporary:
        temporary.write_bytes(chart.data)
    print(path)


def _push(args: Arguments, selectors: tuple[str, ...]) -> None:
    signer = signer_of(args)
    chart = _make_package(args, selectors, signer)
    repository = _repository(args, chart)
    manifest, state = push(registry_of(repository, plain_http=args.plain_http), chart, signer)
    console.say(f"{state}: helm install NAME oci://{repository} --version {chart.version}")
    if signer.skip_reason:
        console.say(f"It is not signed: {signer.skip_reason}", style="yellow")
    print(f"{repository}:{tag_of(chart.version)}@{manifest.digest}")


def _validate(args: Arguments, selectors: tuple[str, ...]) -> None:
    """Validate the chart of the newest release, or of `--chart-version`."""
    verifier = trust_of(args)
    try:
        images = _images(args, selectors, verifier)
    except PublishError as error:  # here the registry is wrong, and no release failed
        raise ValidateError(error.message, hint=error.hint) from None
    chart = package(args.chart, images, args.chart_version)
    repository = _repository(args, chart)
    reach = partial(registry_of, plain_http=args.plain_http)
    wrong = problems(reach(repository), chart.version, reach, verifier)
    if verifier.skip_reason:
        console.say(f"Signatures are not verified: {verifier.skip_reason}", style="yellow")
    if wrong:
        raise ValidateError(
            f"{repository}:{tag_of(chart.version)}: " + "; ".join(wrong) + ".",
            hint=f"Do not install it: {Command('help', 'chart#a-chart-that-is-not-as-it-was-pushed')}",
        )
    print(f"{repository}:{tag_of(chart.version)} is as it was pushed, and its images are served as it names them.")


_ACTIONS: Mapping[str, Callable[[Arguments, tuple[str, ...]], None]] = {
    "package": _package,
    "push": _push,
    "validate": _validate,
}


def _repository(args: Arguments, chart: ChartPackage) -> Repository:
    """Return the repository of the chart, next to those of the images. Its last part must be the name of the chart."""
    return parse_registry(args.registry) / "charts" / chart.name


def _make_package(args: Arguments, selectors: tuple[str, ...], verifier: Verifier) -> ChartPackage:
    return package(args.chart, _images(args, selectors, verifier), args.chart_version)


def _images(args: Arguments, selectors: tuple[str, ...], verifier: Verifier) -> Mapping[Place, Reference]:
    """Find the newest releases of the image and of volume-permissions, by their places in the values."""
    project, image = load_image(args.matrix, selectors, "A chart", "Name one.")
    init = next((spec for spec in project.expansion.specs if spec.template == _INIT), None)
    if init is None:
        raise PublishError(
            f"The matrix has no {_INIT}, which the chart names.",
            hint=f"Add it below `init`: {Command('help', 'matrix#init')}",
        )
    return dict(zip(IMAGES, [_release_reference(args, spec, verifier) for spec in (image, init)], strict=True))


def _release_reference(args: Arguments, spec: Spec, verifier: Verifier) -> Reference:
    """Find the newest release of an image. Its record must verify, and its signatures if they are asked for."""
    repository = repository_of(args.registry, spec)
    registry = registry_of(repository, plain_http=args.plain_http)
    standing = Holdings(registry).standing(spec.own_tag, ())
    if standing.newest_tag is None or standing.newest is None:
        raise PublishError(
            f"{repository} has no release of {spec.id}.", hint=f"Release it: {Command('publish', spec.id)}"
        )
    Verification(registry=registry, verifier=verifier).record(standing.newest_tag, standing.newest)
    return Reference(repository=repository, tag=str(standing.newest_tag), digest=standing.newest.digest)
