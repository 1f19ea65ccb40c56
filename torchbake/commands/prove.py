"""`prove`: build, test and release every image of the matrix, and write the page of the results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.text import Text

from torchbake.build.project_files import own_inputs
from torchbake.commands import _options as opt
from torchbake.commands._destinations import Destination
from torchbake.commands._selection import load_selection
from torchbake.core.files import write_text
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.engine.capability import Need, require
from torchbake.engine.client import connect
from torchbake.engine.gpu import MODES
from torchbake.errors import CheckError, UsageError
from torchbake.lock.image_lock import lock_text
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.proof.record import (
    Digests,
    Proof,
    ProofState,
    files_digest,
    format_proofs,
    lock_digest,
    page,
    parse_proofs,
    state_of,
)
from torchbake.proof.run import ProofRun
from torchbake.render.build_context import own_sources
from torchbake.render.dockerfile import dockerfile_path
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "--registry 127.0.0.1:5000/team",
    "cuda12 '!devel' --registry ghcr.io/acme --keep-free 60",
    "--check",
    "--dry-run",
)
_HINT = f"Run: {Command('prove', '--registry HOST/NAMESPACE')}"
PAGE, PROOFS = Path("docs/images.md"), Path("images/proofs.json")
_STYLES = {
    ProofState.PASSED: "green",
    ProofState.FAILED: "bold red",
    ProofState.EARLIER: "yellow",
    ProofState.STALE: "bold yellow",
    ProofState.MISSING: "cyan",
}


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    registry: tuple[Destination, ...] = opt.registries(
        "released in each", configured=lambda args: not (args.check or args.dry_run)
    )
    plain_http: bool = opt.plain_http()
    check: bool = opt.option("fail unless every image has passed as it is; build nothing")
    dry_run: bool = opt.option("show what would be done; build nothing")
    force: bool = opt.option("also images that passed and have not changed")
    gpu: str = opt.option("as `test` takes it (default: auto)", choices=MODES, default="auto")
    keep_free: int = opt.option(
        "with less room, finished images and the build cache leave the engine (default: 40)", type=opt.positive,
        default=40, metavar="GB",
    )  # fmt: skip
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors or ["all"])
    proofs = _read(project)
    states = _states(project, selection.specs, proofs)
    if args.check or args.dry_run:
        _show(states, proofs, args.format)
        return _conclude(project, states, proofs) if args.check else 0
    if not args.registry:
        raise UsageError("Where should they be released?", hint="Name a registry: --registry 127.0.0.1:5000/team")
    engine = connect()
    require(engine.capabilities, Need.CONTENT)
    try:
        with interruptible():
            due = [spec for spec in selection.specs if args.force or states[spec.id] is not ProofState.PASSED]
            run = ProofRun(
                project=project,
                engine=engine,
                where=(*_options_of(args.registry), *(["--plain-http"] if args.plain_http else [])),
                gpu=args.gpu,
                room=args.keep_free * 10**9,
                say=_say,
            )
            _prove(run, due, proofs)
    finally:
        _write(project, proofs)
    states = _states(project, selection.specs, proofs)
    _show(states, proofs, args.format)
    return _conclude(project, states, proofs)


def _options_of(destinations: Sequence[Destination]) -> list[str]:
    """Return the options that were typed; `publish` takes the registries of the environment and the matrix itself."""
    return [f"--registry={text}" for text in dict.fromkeys(each.typed for each in destinations) if text]


def _prove(run: ProofRun, due: Sequence[Spec], proofs: dict[str, Proof]) -> None:
    for number, spec in enumerate(due, 1):
        _say(f"{number} of {len(due)}: {spec.id}")
        proofs[spec.id] = run.prove(spec, partial(_digests, run.project))
        # In the state folder: a changed file next to the matrix would make the commit of the next image `-dirty`.
        write_text(run.project.state / PROOFS.name, format_proofs(proofs.values()))


def _say(message: str) -> None:
    console.say(message, style="bold")


def _read(project: Project) -> dict[str, Proof]:
    """Read the committed records, and newer records of a run that was killed."""
    proofs: dict[str, Proof] = {}
    for path in (project.root / PROOFS, project.state / PROOFS.name):
        if path.is_file():
            for name, proof in parse_proofs(path.read_bytes(), str(path)).items():
                if name not in proofs or proofs[name].tested < proof.tested:
                    proofs[name] = proof
    return proofs


def _write(project: Project, proofs: dict[str, Proof]) -> None:
    """Write the records of the images that the matrix still has, and their page."""
    known_proofs = {spec.id: proofs[spec.id] for spec in project.expansion.specs if spec.id in proofs}
    write_text(project.root / PROOFS, format_proofs(known_proofs.values()))
    write_text(project.root / PAGE, page(project.expansion.specs, known_proofs))
    (project.state / PROOFS.name).unlink(missing_ok=True)


def _digests(project: Project, spec: Spec) -> Digests:
    dockerfile, lock = _text(dockerfile_path(project.root, spec)), lock_text(project.root, spec)
    own = own_inputs(project.root, own_sources(dockerfile))
    return Digests(files=files_digest(spec, dockerfile=dockerfile, lock_text=lock, own=own), lock=lock_digest(lock))


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace") if path.exists() else ""


def _states(project: Project, specs: Sequence[Spec], proofs: Mapping[str, Proof]) -> dict[str, ProofState]:
    return {spec.id: state_of(proofs.get(spec.id), _digests(project, spec)) for spec in specs}


def _show(states: Mapping[str, ProofState], proofs: Mapping[str, Proof], form: str) -> None:
    known_proofs = {name: proofs[name].model_dump(mode="json") for name in states if name in proofs}
    entries = [{"id": name, "state": state, **known_proofs.get(name, {})} for name, state in states.items()]
    rows = [
        (Text(name, style="bold"), Text(state, style=_STYLES[state]), proofs[name].problem if name in proofs else "")
        for name, state in states.items()
    ]
    console.show_result(form, {"images": entries}, ("image", "state", "reason"), rows)


def _conclude(project: Project, states: Mapping[str, ProofState], proofs: Mapping[str, Proof]) -> int:
    """Raise CheckError unless every image has passed in today's state, and the page is up to date."""
    bad = [(name, state) for name, state in states.items() if state is not ProofState.PASSED]
    if bad:
        problems = {name: proofs[name].problem for name, _ in bad if name in proofs}
        reasons = [(name, ": ".join(filter(None, (str(state), problems.get(name))))) for name, state in bad]
        sentence = f"{len(bad)} of {len(states)} images have not passed as they are:"
        raise CheckError(with_reasons(sentence, reasons, most=len(reasons)), hint=_HINT)
    if _text(project.root / PAGE) != page(project.expansion.specs, proofs):
        raise CheckError(f"{PAGE} is not what {PROOFS} says.", hint=_HINT)
    return 0
