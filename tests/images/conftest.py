"""Checks of one image: `pytest tests/images --image REF`. Options, what is gathered, and the file of results."""

import fnmatch
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import DockerException

from tests.images.checks import Check
from tests.images.containers import Containers, NotRunnableError
from tests.images.entries import Tree, merge
from tests.images.facts import GATHERERS, Facts
from tests.images.layers import Layer
from tests.images.originals import Originals
from tests.images.subject import NO_ROW, NoSubjectError, Row, Subject, find_subject
from torchbake.checks.verdict import CheckResult, Outcome, dump_results
from torchbake.core.digest import short_digest
from torchbake.core.paths import TOOLKIT, cache_folder
from torchbake.engine.client import Engine
from torchbake.engine.gpu import MODES
from torchbake.engine.leftovers import remove_leftovers
from torchbake.engine.sdk import sdk_client
from torchbake.errors import EngineError, TorchbakeError

_FIGURES = pytest.StashKey[dict[str, Any]]()
_SUBJECT = pytest.StashKey[Subject]()
_CLIENT = pytest.StashKey[docker.DockerClient]()
_RESULTS = pytest.StashKey[dict[str, CheckResult]]()
REPORT = pytest.StashKey[CheckResult]()  # what a check was told, where another program judged
_CONNECTIONS = 1000  # for many threads: beyond its 25 the SDK closes the oldest connection, also while it is in use
_LONGEST = 600  # characters of a reason


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("image checks")
    group.addoption("--image", metavar="REF", help="the image to check, which the engine must have")
    group.addoption("--digest", metavar="DIGEST", help="what that must be in the engine: a tag may have moved")
    group.addoption("--row", metavar="ID", help="its row in the matrix (default: what its label says)")
    group.addoption("--no-row", action="store_true", help="it is of another matrix: compare it with no row")
    group.addoption("--derived", metavar="REF", help="the image of ours that it is FROM: what it adds is its own")
    group.addoption("--matrix", metavar="FILE", type=Path, default=TOOLKIT / "matrix.yaml", help="the matrix")
    group.addoption("--gpu", choices=MODES, default="auto", help="checks that need a GPU")
    group.addoption("--nodes", type=int, metavar="N", help="containers of a distributed job")
    group.addoption("--nproc", type=int, metavar="N", help="processes in each of them")
    group.addoption("--only", action="append", default=[], metavar="GLOB", help="checks by id; repeat for more")
    group.addoption("--skip", action="append", default=[], metavar="GLOB", help="leave checks out; repeat for more")
    group.addoption("--results", type=Path, metavar="FILE", help="write a JSON list of results")
    group.addoption(
        "--layers-cache", type=Path, metavar="DIR", default=cache_folder() / "layers",
        help="where layers that were read are remembered",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "check(check): the image check that a test is; every test here has one")
    here = Path(__file__).parent
    paths_asked = [
        Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args
    ]
    if not config.option.image and any(path.is_relative_to(here) for path in paths_asked):
        raise pytest.UsageError("tests/images checks one image: say which by --image REF (or run: nox -s test -- cpu)")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """A run of all tests of the repository leaves these alone: they are about an image, and none is named."""
    return None if getattr(config.option, "image", None) else True


def pytest_sessionstart(session: pytest.Session) -> None:
    """Find the image before anything is collected: its kind decides which checks there are."""
    config = session.config
    if not getattr(config.option, "image", None):
        return
    try:
        client = sdk_client(120, num_pools=_CONNECTIONS)
        option = config.option
        subject = find_subject(
            client, option.image, option.row, option.matrix, origin=option.derived, digest=option.digest,
            no_row=option.no_row,
        )  # fmt: skip
    except (DockerException, EngineError) as error:
        pytest.exit(f"no container engine answers: {error}. Start it, or run: nox -s setup", returncode=4)
    except NoSubjectError as error:
        pytest.exit(str(error), returncode=4)
    config.stash[_CLIENT], config.stash[_SUBJECT], config.stash[_RESULTS] = client, subject, {}


def check_of(item: pytest.Item) -> Check:
    """The check that a test is. Raises UsageError where the test does not say."""
    mark = item.get_closest_marker("check")
    if mark is None:
        raise pytest.UsageError(f"{item.nodeid} has no @check(…)")
    value: Check = mark.args[0]
    return value


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the checks of other kinds of images, and the checks that `--only` excludes."""
    subject = config.stash.get(_SUBJECT, None)
    if subject is None:
        return
    here = Path(__file__).parent
    stay: list[pytest.Item] = []
    go: list[pytest.Item] = []
    for item in items:
        (go if here in item.path.parents and not _wanted(check_of(item), subject, config) else stay).append(item)
    items[:] = stay
    config.hook.pytest_deselected(items=go)


def _wanted(check: Check, subject: Subject, config: pytest.Config) -> bool:
    applies = subject.kind in check.kinds and (subject.kind == "init" or subject.family in check.families)
    only, skip = config.option.only, config.option.skip
    is_asked = not only or any(_matches(check.id, glob) for glob in only)
    return applies and is_asked and not any(_matches(check.id, glob) for glob in skip)


def _matches(name: str, glob: str) -> bool:
    """An id with brackets is also meant as it stands, though to a glob they are a choice of letters."""
    return name == glob or fnmatch.fnmatchcase(name, glob)


def subject_of(config: pytest.Config) -> Subject:
    return config.stash[_SUBJECT]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    results = item.config.stash.get(_RESULTS, None)
    if results is not None and (report.when == "call" or not report.passed):
        check = check_of(item)
        before = results.get(check.id)
        told = item.stash.get(REPORT, None) if report.when == "call" else None
        result = told or CheckResult(
            id=check.id,
            outcome=_outcome(report),
            reason=_reason(report, call),
            seconds=round(report.duration, 3),
            figures=item.stash.get(_FIGURES, {}),
        )
        if before is None or before.outcome is not Outcome.FAILED:
            results[check.id] = result
        _write(item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    with _not_run():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with _not_run():
        yield


@contextmanager
def _not_run() -> Iterator[None]:
    """A check of an image that this engine cannot run is not run; a check of its files is."""
    try:
        yield
    except NotRunnableError as error:
        pytest.skip(str(error))


def _outcome(report: pytest.TestReport) -> Outcome:
    return Outcome.NOT_RUN if report.skipped else Outcome.PASSED if report.passed else Outcome.FAILED


def _reason(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """Return an assertion's message without the expression that pytest adds, or the exception as text."""
    if call.excinfo is None:
        return ""
    if report.skipped:
        return str(getattr(call.excinfo.value, "msg", call.excinfo.value))
    text = str(call.excinfo.value).strip() or call.excinfo.typename
    if not call.excinfo.errisinstance((AssertionError, pytest.fail.Exception)):
        text = f"{call.excinfo.typename}: {text}"
    return text.partition("\nassert ")[0][:_LONGEST]


def _write(config: pytest.Config) -> None:
    """Also after each check, so that a run that is ended leaves what it found."""
    path: Path | None = config.option.results
    if path:
        beside = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(dump_results(config.stash[_RESULTS].values()), encoding="utf-8")
        beside.replace(path)


@pytest.fixture(scope="session")
def client(pytestconfig: pytest.Config) -> docker.DockerClient:
    return pytestconfig.stash[_CLIENT]


@pytest.fixture(scope="session")
def subject(pytestconfig: pytest.Config) -> Subject:
    """The image under test."""
    return pytestconfig.stash[_SUBJECT]


@pytest.fixture(scope="session")
def row(subject: Subject) -> Row:
    """Return the image's row in the matrix; a check that needs a row is skipped for an image without one."""
    if subject.row is None:
        pytest.skip(NO_ROW)
    return subject.row


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return a mapping for the figures that a check measures; they are kept with its result."""
    measured: dict[str, Any] = {}
    request.node.stash[_FIGURES] = measured
    return measured


@pytest.fixture(scope="session")
def containers(client: docker.DockerClient, subject: Subject) -> Iterator[Containers]:
    engine = Engine(client)
    remove_leftovers(engine)
    item = Containers(engine, subject.digest, ("--version",) if subject.kind == "init" else ("true",))
    yield item
    item.remove_all()


@pytest.fixture(scope="session")
def facts(
    request: pytest.FixtureRequest, subject: Subject, client: docker.DockerClient, containers: Containers
) -> Iterator[Facts]:
    """Start to gather all facts that the collected checks use."""
    gathered = Facts(subject, client, containers, request.config.option.layers_cache)
    fixtures = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    gathered.start(name for name in GATHERERS if name in fixtures)
    yield gathered
    with suppress(KeyboardInterrupt):
        gathered.close()


def _gathered(name: str) -> Any:
    @pytest.fixture(scope="session", name=name)
    def gathered(facts: Facts) -> Any:
        return facts.get(name)

    return gathered


layers, tree, processes, endings, packages, linking, imports, ways, stopped, zombies = map(
    _gathered,
    ("layers", "tree", "processes", "endings", "packages", "linking", "imports", "ways", "stopped", "zombies"),
)
traces, triton, nvidia, trust = map(_gathered, ("traces", "triton", "nvidia", "trust"))
contents, constraints, environments = map(_gathered, ("contents", "constraints", "environments"))


@pytest.fixture(scope="session")
def merged(layers: list[Layer]) -> Tree:
    """The tree that the layers make together, and the files that later layers hide."""
    return merge(layer.entries for layer in layers)


@pytest.fixture(scope="session")
def originals(row: Row, facts: Facts) -> Originals:
    """The hashes of NVIDIA's files in the locked wheels. If they cannot be had, the check is not run."""
    try:
        matches: Originals = facts.get("originals")
    except TorchbakeError as error:
        pytest.skip(f"the wheels of the lock cannot be compared: {error.message} {error.hint}".strip())
    return matches


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _RESULTS in session.config.stash:
        _write(session.config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    subject = config.stash.get(_SUBJECT, None)
    if subject is None:
        return []
    derived = f", FROM {subject.origin}" if subject.origin else ""
    return [f"image: {subject.ref} ({short_digest(subject.digest)}), row: {subject.id or 'none'}{derived}"]
