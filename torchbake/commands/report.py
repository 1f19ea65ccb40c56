"""`report`: write a page about all images of the matrix."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from torchbake.build.prepare import ImagePreparation
from torchbake.commands import _options as opt
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import load_selection, repository_of
from torchbake.commands._verdicts import check_folder, read_verdicts
from torchbake.core.files import write_text
from torchbake.engine.client import connect
from torchbake.errors import EngineError, RegistryError
from torchbake.report.catalogue import make_catalogue
from torchbake.report.collect import ReportSources
from torchbake.report.html import render_page
from torchbake.report.model import Catalogue
from torchbake.ui import console
from torchbake.ui.steps import step

EXAMPLES = (
    "",
    "cuda12 --output cuda12.html",
    "--registry ghcr.io/acme",
    "--verdicts verdicts",
    "--format json | jq -r '.images[] | select(.presence == \"absent\").id'",
)
PAGE = Path("reports/index.html")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    registry: str | None = opt.registry("also report what is released there, if it is not '': ghcr.io/acme")
    plain_http: bool = opt.plain_http()
    verdicts: Path | None = opt.option(
        "also verdicts of other machines: the files of `test --write-verdict DIR`, in DIR and below; not verified",
        metavar="DIR",
    )
    output: Path | None = opt.option(f"default: {PAGE} beside the matrix; JSON goes to stdout", metavar="FILE")
    format: Literal["html", "json"] = opt.result_format("html")


def run(args: Arguments) -> int:
    selectors = args.selectors or ("all",)
    project, selection = load_selection(args.matrix, selectors)
    if args.verdicts:
        check_folder(args.verdicts)
    shards = [file.verdict for file in read_verdicts(args.verdicts)] if args.verdicts else []
    preparation = ImagePreparation.to_ask(project, console.say)
    engine, problem = None, ""
    try:
        engine = connect()
    except EngineError as error:
        problem = error.message
        console.say(f"{problem} The report is made without it.", style="yellow")
    sources = ReportSources(project=project, preparation=preparation, engine=engine, problem=problem, shards=shards)
    registries = {}
    if args.registry:
        where = {spec.repository: repository_of(args.registry, spec) for spec in selection.specs}
        registries = {name: registry_of(place, plain_http=args.plain_http) for name, place in where.items()}
    try:
        with step("reading the images"):
            facts = sources.read(selection.specs, args.registry or "", registries)
    except RegistryError as error:
        raise RegistryError(
            error.message, hint=f"{error.hint or 'Try again'}; or leave the releases out: --registry ''"
        ) from None
    catalogue = make_catalogue(
        selection.specs,
        project.tags,
        facts,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        matrix=args.matrix.name,
        selection="" if selectors == ("all",) else " ".join(selectors),
    )
    _write(catalogue, args.format, args.output, project.root / PAGE)
    return 0


def _write(catalogue: Catalogue, form: str, output: Path | None, page: Path) -> None:
    """Raises OSError, and RenderError."""
    if form == "json" and output is None:
        print(catalogue.model_dump_json(indent=2))
        return
    path = output or page
    write_text(path, catalogue.model_dump_json(indent=2) + "\n" if form == "json" else render_page(catalogue))
    console.say(f"{len(catalogue.images)} images: {path}")
