"""`init`: write the files of a new repository of images."""

import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchbake.commands import _options as opt
from torchbake.commands._project_choice import choice_of_project
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.core.version import requirement, tag, version
from torchbake.errors import MatrixError, UsageError
from torchbake.matrix.distributions import DISTRIBUTIONS
from torchbake.matrix.expand import expand
from torchbake.matrix.model import Matrix, validate_matrix
from torchbake.matrix.pipelines import LOGINS, PIPELINES, choice, pipeline, pipeline_choice
from torchbake.matrix.project import load_project
from torchbake.matrix.schema import editor_schema
from torchbake.matrix.spec import pytorch_of
from torchbake.matrix.starter import Choice, ImageNames, ProjectRow, newest_torch, project_starter, starter
from torchbake.matrix.tags import tags_of
from torchbake.matrix.yaml_source import parse_document
from torchbake.oci.reference import parse_registry
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = (
    "my-images",
    "my-images --cuda 12.8 --registry ghcr.io/acme",
    "--cpu --cuda 12.8 --torch 2.10.0 --ci github",
    "--ci github --login ecr --registry 123456789012.dkr.ecr.eu-central-1.amazonaws.com/acme",
    "--ci github --runner self-hosted,linux,x64 --login basic",
    "--dry-run",
    "--from trainer",
    "--from . --extra cu128 --group serve --dry-run",
    "--from requirements/gpu.txt --base debian12 --repository ghcr.io/acme/trainer",
)
_PROJECT = "a project's image"
_OF_KEYS = {"repository": "--repository", "registry": "--registry", "rows": "--torch"}  # options by keys of a matrix
_TEMPLATES = TOOLKIT / "templates/init"
_LF = re.compile(r"^\*\s(?:.*\s)?eol=lf\b", re.MULTILINE)  # git's rule that every text file has LF


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    folder: Path = opt.argument("where (default: here)", nargs="?", type=Path, default=Path(), metavar="DIR")
    cpu: bool = opt.option("an image for the CPU (default where no --cuda is given)")
    cuda: tuple[str, ...] = opt.option("one for CUDA 12.8; repeat for more", metavar="VERSION")
    torch: str = opt.option("default: the newest that is known here for each", metavar="VERSION")
    repository: str = opt.option("of the images, such as acme/pytorch (default: DIR/pytorch)", metavar="NAME")
    registry: str = opt.option(
        "of the releases, which no command needs again: ghcr.io/acme", metavar="HOST[:PORT][/NAMESPACE]"
    )
    ci: str = opt.option(
        "also the pipelines of that CI; github calls torchbake's, github-full has them all", choices=PIPELINES
    )
    login: str = opt.option(
        "how jobs log in to the registry; ecr and gar by OpenID Connect (default: ghcr for ghcr.io, else basic)",
        choices=LOGINS,
    )
    runner: str = opt.option(
        "the runner of all jobs; with self-hosted among its labels its own Python is taken", metavar="LABEL[,LABEL]"
    )
    dry_run: bool = opt.option("show what would be written; write nothing")
    project: Path | None = opt.option(
        "an image of this project, in or below DIR, or of this lock: uv.lock, pylock.toml, requirements.txt, "
        "pyproject.toml (the first that there is)",
        "--from",
        metavar="PATH",
        group=_PROJECT,
    )
    extra: tuple[str, ...] = opt.option("with an extra of the project; repeat for more", metavar="NAME", group=_PROJECT)
    group: tuple[str, ...] = opt.option("with a dependency group; repeat for more", metavar="NAME", group=_PROJECT)
    base: str = opt.option(
        "the distribution (default: by the project's Python)",
        choices=[base.name for base in DISTRIBUTIONS],
        group=_PROJECT,
    )


def run(args: Arguments) -> int:
    folder = args.folder.absolute()
    _check_options(args)
    for name, text in _files(args, folder).items():
        _write(folder / name, text, dry_run=args.dry_run)
    if not args.dry_run:
        if folder != Path.cwd():
            console.say(f"next: cd {args.folder}")
        console.say(f"next: {Command('setup')}")
        console.say(f"next: {Command('lock build' if args.project else 'build', 'all')}")
        if settings := _ci_settings(args):
            console.say(f"next: set in the CI: {settings}")
        if args.ci == "github" and (release := tag(version())):
            console.say(f"next: pin the called workflows by the commit of {release}: {Command('help', 'ci')}")
        console.say("This writes images/, the exact versions and the Dockerfiles: commit it with the rest.")
    return 0


def _ci_settings(args: Arguments) -> str:
    """Return the variables that the pipelines need from the CI's settings; empty without a CI, or if it has all."""
    if not args.ci:
        return ""
    login = args.login or ("ghcr" if args.registry.partition("/")[0] == "ghcr.io" else "")
    own = args.ci == "gitlab" and not (args.login or args.registry)  # GitLab has a registry for each project
    registry = "" if own else f"REGISTRY={args.registry}" if args.registry else "REGISTRY"
    return ", ".join(filter(None, (registry, LOGINS[login][1] if login else "")))


def _check_options(args: Arguments) -> None:
    """Raise UsageError for options that contradict each other."""
    if args.project:
        wrong = [name for name in ("cpu", "cuda", "torch") if getattr(args, name)]
        if wrong:
            raise UsageError(f"--{wrong[0]} and --from: the project's lock names its torch.", hint="Leave one out.")
    else:
        wrong = [name for name in ("extra", "group", "base") if getattr(args, name)]
        if wrong:
            raise UsageError(f"--{wrong[0]} is for a project's image.", hint="Name the project: --from PATH")


def _project_matrix(args: Arguments, folder: Path, project: Path) -> str:
    """Return the text of the matrix for a project's image, and say what was chosen and why."""
    with step(f"reading {project}"):
        choice = choice_of_project(folder, project, extras=args.extra, groups=args.group, base=args.base)
    for reason in choice.reasons:
        console.say(reason)
    name = choice.row.project.package or (folder / choice.row.project.folder).resolve().name
    text = _matrix(_names(args, f"{_plain(folder.resolve().name)}/{_plain(name)}"), choice.row)
    path = folder / "matrix.yaml"
    if path.exists() and path.read_bytes() != text.encode():
        if not args.dry_run:
            words = shlex.join((*map(str, (args.folder, "--from", project)), "--dry-run"))
            raise UsageError(f"{path} is there already.", hint=f"Show the row to add to it: {Command('init', words)}")
        console.say(f"{path} of this project alone:", style="bold")
        if path.suffix != ".json":  # the schema has a thousand lines, for editors alone
            console.err.print(text, markup=False)
    return text


def _names(args: Arguments, default: str) -> ImageNames:
    """Return the names of the images. If the registry has a namespace, the default repository is in it.

    Raises UsageError.
    """
    if args.registry:
        try:
            namespace = parse_registry(args.registry).path
        except UsageError as error:
            raise UsageError(f"--registry: {error.message}", hint=error.hint) from None
        default = f"{namespace}/{default.rpartition('/')[2]}" if namespace else default
    return ImageNames(repository=args.repository or default, registry=args.registry)


def _plain(name: str) -> str:
    """Return a name as a part of a repository."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "images"


def _files(args: Arguments, folder: Path) -> dict[str, str]:
    """Return the files of a new repository by name. Raises UsageError for options that make no valid matrix."""
    own_version = version()
    files = {
        "matrix.yaml": _project_matrix(args, folder, args.project)
        if args.project
        else _matrix(_names(args, f"{_plain(folder.name)}/pytorch"), _choices(args)),
        "matrix.schema.json": editor_schema(Matrix),
        "noxfile.py": _noxfile((_TEMPLATES / "noxfile.py").read_text(encoding="utf-8"), own_version),
        ".gitattributes": (_TEMPLATES / "gitattributes").read_text(encoding="utf-8"),
        ".gitignore": (_TEMPLATES / "gitignore").read_text(encoding="utf-8"),
    }
    ci = choice(args.ci, tag(own_version))
    called = tag(own_version) if ci == "github" else ""
    settings = pipeline_choice(args.ci, args.login, args.runner, args.registry)
    for name, source in PIPELINES.get(ci, {}).items():
        text = (TOOLKIT / source).read_text(encoding="utf-8")
        files[name] = pipeline(text, requirement(own_version, "nox"), called, settings)
    return files


def _matrix(names: ImageNames, rows: Sequence[Choice] | ProjectRow) -> str:
    """Return the text of the matrix, which is parsed again to find mistakes. Raises UsageError."""
    model = (TOOLKIT / "matrix.yaml").read_text(encoding="utf-8")
    text = project_starter(model, names, rows) if isinstance(rows, ProjectRow) else starter(model, names, rows)
    try:
        document = parse_document(text, Path("matrix.yaml"))
        matrix = validate_matrix(document)
        tags_of(expand(matrix, document).specs, matrix.tags, document)
    except MatrixError as error:
        raise _of_option(error, of_project=isinstance(rows, ProjectRow)) from None
    return text


def _of_option(error: MatrixError, *, of_project: bool) -> UsageError:
    """Return the error of the new matrix as an error of the option that the wrong value comes from."""
    problem = error.message.partition(": ")[2] or error.message
    key, _, text = problem.partition(": ")
    option = _OF_KEYS.get(key.partition(".")[0], "")
    if not option or (of_project and option == "--torch"):
        subject = "The project makes" if of_project else "These options make"
        return UsageError(f"{subject} no valid matrix: {problem}", hint=error.hint)
    return UsageError(f"{option}: {text}", hint=f"Correct the option: {Command('init', '--help')}")


def _noxfile(text: str, version: str) -> str:
    """Require the version of a release. Any other version of torchbake must be installed by hand, where nox is."""
    expected = requirement(version)
    return text.replace('["nox"]', f'["nox", "{expected.replace("==", ">=")}"]') if "==" in expected else text


def _write(path: Path, text: str, *, dry_run: bool) -> None:
    """Write a file, unless there is one already."""
    if path.exists() or path.is_symlink():
        console.say(f"{path}: is there already, left alone", style="yellow")
        _tell_lacking(path, text)
    elif dry_run:
        console.say(f"{path}: would be written", style="bold")
        if path.suffix != ".json":  # the schema has a thousand lines, for editors alone
            console.err.print(text, markup=False)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        console.say(f"{path}: written")


def _tell_lacking(path: Path, text: str) -> None:
    """Name the lines that an existing file for git lacks: gigabytes of state, or files with CRLF would be committed."""
    if path.name not in (".gitignore", ".gitattributes") or not path.is_file():
        return
    there = path.read_text(encoding="utf-8", errors="replace")
    if path.name == ".gitignore":
        missing = [line for line in text.split() if line not in there.split()]
        if missing:
            console.say(f"next: add to {path}: {' '.join(missing)}")
    elif not _LF.search(there):
        rule = next(line for line in text.splitlines() if _LF.match(line))
        console.say(f"next: add as the first line of {path}: {rule}")


def _choices(args: Arguments) -> list[Choice]:
    """Return the rows that the options name, each with its torch. Raises UsageError."""
    if args.torch:
        try:
            Version(args.torch)
        except InvalidVersion:
            raise UsageError(f"{args.torch!r} is not a version.", hint="Write it as --torch 2.10.0") from None
    wrong = next((version for version in args.cuda if not re.fullmatch(r"\d+\.\d+", version)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} is not a version of CUDA.", hint="Write it as --cuda 12.8")
    names = ["cpu"] if args.cpu or not args.cuda else []
    names += [f"cuda{version}" for version in args.cuda]
    versions = defaultdict[str, set[str]](set)  # of torch in the toolkit's own matrix, by accelerator
    for spec in pytorch_of(load_project(TOOLKIT / "matrix.yaml").expansion.specs):
        versions[str(spec.accelerator)].add(spec.torch)
    return [Choice(accelerator=name, torch=args.torch or newest_torch(versions, name)) for name in dict.fromkeys(names)]
