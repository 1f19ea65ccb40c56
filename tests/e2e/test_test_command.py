"""The command `test` on a real engine and with real processes; the checks are small ones that behave as told."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import docker
import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, Completed, small_project, torchbake
from tests.e2e.waiting import until

pytestmark = pytest.mark.checks

Project = Callable[..., Path]
Start = Callable[..., "subprocess.Popen[str]"]

REPOSITORY = "torchbake-test/tested"
REF = f"{REPOSITORY}/{INIT}:1.0.0"
CPU_ROW = "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
INIT_ROW = "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n"

# The real `test` command with other checks, without the list of required checks, and with less time to wait.
COMMAND = """\
import sys
from pathlib import Path
from torchbake import cli
from torchbake.checks import pytest_run
from torchbake.commands import test
test.CHECKS = Path(sys.argv[1])
test.missing_checks = lambda verdict, spec: ()
pytest_run._PATIENCE = 2
sys.exit(cli.main(["test", *sys.argv[2:]]))
"""

CONFTEST = """\
import json
from pathlib import Path

RESULTS = []

def pytest_addoption(parser):
    for name in ("image", "digest", "row", "derived", "gpu", "nodes", "nproc", "results", "matrix"):
        parser.addoption(f"--{name}")
    for name in ("only", "skip"):
        parser.addoption(f"--{name}", action="append")

def pytest_runtest_logreport(report):
    if report.when != "call":
        return
    reason = report.longrepr[2].removeprefix("Skipped: ") if report.skipped else ""
    reason = report.longrepr.reprcrash.message if report.failed else reason
    name = report.nodeid.partition("::test_")[2]
    outcome = "not-run" if report.skipped else report.outcome
    RESULTS.append({"id": f"fake.{name}", "outcome": outcome, "reason": reason, "seconds": report.duration})

def pytest_sessionfinish(session):
    Path(session.config.getoption("--results")).write_text(json.dumps(RESULTS))
"""

GOOD = "def test_good(): pass"
NOT_RUN = "import pytest\ndef test_open(): pytest.skip('no GPU')"
BAD = "def test_bad(): raise ValueError('setuid: /bin/su')"
SLOW_FOR = """\
import time, pytest
@pytest.fixture(autouse=True, scope="session")
def container(request):
    yield
    open({mark!r}, "w").close()
def test_slow(request):
    if "slow" in request.config.getoption("--image"):
        open({mark!r} + ".begun", "w").close()
        time.sleep(60)
"""


def checks_in(folder: Path, *bodies: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    for number, body in enumerate(bodies):
        (folder / f"test_{number}.py").write_text(textwrap.dedent(body))
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, bases: Path) -> None:
    """The image of `matrix` in the engine."""
    folder = tmp_path_factory.mktemp("built")
    path = small_project(folder, bases, CPU_ROW + INIT_ROW, repository=f"{REPOSITORY}/pytorch")
    process = torchbake("build", INIT, "--matrix", str(path))
    assert process.returncode == 0, process.stderr


@pytest.fixture
def matrix(project: Project, image: None) -> Path:
    """A matrix of two images, of which the engine holds one."""
    return project(CPU_ROW + INIT_ROW, repository=f"{REPOSITORY}/pytorch")


@pytest.fixture
def start(matrix: Path, tmp_path: Path) -> Start:
    """Start the command with checks of these bodies."""

    def begin(bodies: tuple[str, ...], *words: str, **environment: str) -> "subprocess.Popen[str]":
        checks = checks_in(tmp_path / "checks", *bodies)
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(checks), *words, "--matrix", str(matrix)],
            cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return begin


@pytest.fixture
def tested(start: Start) -> Callable[..., Completed]:
    """Run the command with checks of these bodies."""

    def run(bodies: tuple[str, ...], *words: str, **environment: str) -> Completed:
        process = start(bodies, *words, **environment)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def slow(engine: docker.DockerClient, matrix: Path) -> Iterator[str]:
    """Another name of the image, which the checks take their time for."""
    engine.images.get(REF).tag(f"{REPOSITORY}/slow", "1")
    yield f"{REPOSITORY}/slow:1"
    engine.images.remove(f"{REPOSITORY}/slow:1", noprune=True)


def image_of(process: Completed) -> dict[str, Any]:
    assert process.stdout, process.stderr
    images: list[dict[str, Any]] = json.loads(process.stdout)["images"]
    assert len(images) == 1
    return images[0]


def test_an_image_passes_and_its_verdict_answers_the_second_time(
    tested: Callable[..., Completed], matrix: Path, engine: docker.DockerClient
) -> None:
    first = tested((GOOD, NOT_RUN), INIT, "--format", "json")
    assert first.returncode == 0, first.stderr
    image = image_of(first)
    assert (image["outcome"], image["ref"], image["reused"]) == ("passed", REF, False)
    assert image["counts"] == {"passed": 1, "failed": 0, "not-run": 1, "waived": 0}
    assert image["digest"] == engine.images.get(REF).id
    second = tested((GOOD, NOT_RUN), INIT, "--format", "json")
    assert image_of(second)["reused"] is True
    assert image_of(second)["checks"] == image["checks"]
    assert "testing" not in second.stderr
    assert image_of(tested((GOOD,), INIT, "--force", "--format", "json"))["reused"] is False
    reports = sorted(path.suffix for path in (matrix.parent / "reports" / INIT).iterdir())
    assert reports == [".json", ".md", ".xml"]


def test_what_did_not_run_is_shown_apart_and_its_reason_once(tested: Callable[..., Completed]) -> None:
    process = tested((GOOD, NOT_RUN, "import pytest\ndef test_too(): pytest.skip('no GPU')"), INIT)
    assert process.returncode == 0
    assert process.stdout.count("no GPU") == 1
    assert "fake.open, fake.too" in process.stdout
    assert f"✓ {INIT}: passed" in process.stderr


def test_a_tag_that_became_another_image_meanwhile_is_not_judged(engine: docker.DockerClient, matrix: Path) -> None:
    words = ["-m", "pytest", "tests/images", "--image", REF, "--matrix", str(matrix), "-p", "no:cacheprovider"]
    was = f"sha256:{'0' * 64}"
    process = subprocess.run(
        [sys.executable, *words, "--digest", was], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 4
    assert (
        f"{REF} was {was}, and is {engine.images.get(REF).id} by now. Test it again." in process.stdout + process.stderr
    )


def test_a_failed_check_fails_the_image_and_is_tested_again(tested: Callable[..., Completed], matrix: Path) -> None:
    for _ in range(2):
        process = tested((GOOD, BAD), INIT, "--format", "json")
        assert process.returncode == 13
        assert image_of(process)["reused"] is False
    failed = [check for check in image_of(process)["checks"] if check["outcome"] == "failed"]
    assert [check["id"] for check in failed] == ["fake.bad"]
    assert "fake.bad: ValueError: setuid: /bin/su" in process.stderr
    junit = next((matrix.parent / "reports" / INIT).glob("*.xml"))
    assert len(list(ElementTree.parse(junit).iter("failure"))) == 1


def test_a_part_of_the_checks_is_no_verdict(tested: Callable[..., Completed], matrix: Path) -> None:
    assert tested((GOOD,), INIT, "--only", "fake.*").returncode == 0
    assert [path.name.count(".partial.") for path in (matrix.parent / "reports" / INIT).iterdir()] == [1, 1, 1]
    assert image_of(tested((GOOD,), INIT, "--format", "json"))["reused"] is False


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("import no_such_module", "no_such_module"),
        ("import os\ndef test_dies(): os._exit(7)", "ended with 7"),
        pytest.param("import os\ndef test_dies(): os.kill(os.getpid(), 11)", "SIGSEGV", marks=pytest.mark.long),
        ("import pytest\ndef test_stops(): pytest.exit('the engine is gone', returncode=3)", "the engine is gone"),
    ],
    ids=["import", "exit", "crash", "given up"],
)
def test_checks_that_break_are_a_failed_verdict_with_the_cause(
    tested: Callable[..., Completed], body: str, word: str
) -> None:
    process = tested((GOOD, body), INIT, "--format", "json")
    assert process.returncode == 13
    failed = [check for check in image_of(process)["checks"] if check["outcome"] == "failed"]
    assert [check["id"] for check in failed] == ["suite"]
    assert word in failed[0]["reason"]
    log = next(line.partition("log: ")[2] for line in process.stderr.splitlines() if "the whole log" in line)
    assert Path(log).exists()


def test_hanging_checks_end_at_their_timeout_with_their_results(
    tested: Callable[..., Completed], tmp_path: Path, slow: str
) -> None:
    mark = tmp_path / "torn-down"
    started = time.monotonic()
    process = tested((GOOD, SLOW_FOR.format(mark=str(mark))), "--image", slow, "--timeout", "8", "--format", "json")
    assert time.monotonic() - started < 60
    assert process.returncode == 13
    matches = {check["id"]: check for check in image_of(process)["checks"]}
    assert matches["fake.good"]["outcome"] == "passed"
    assert "did not end within 8 s" in matches["suite"]["reason"]
    assert mark.exists()


def test_checks_that_will_not_end_are_killed_with_their_children(
    tested: Callable[..., Completed], tmp_path: Path
) -> None:
    deaf = """\
        import pathlib, signal, subprocess, time
        def test_deaf():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "60"])
            pathlib.Path({mark!r}).write_text(str(child.pid))
            time.sleep(60)
        """
    mark = tmp_path / "child"
    process = tested((deaf.format(mark=str(mark)),), INIT, "--timeout", "10", "--format", "json")
    assert process.returncode == 13
    assert "did not end within 10 s" in image_of(process)["checks"][0]["reason"]
    until(lambda: not _runs(int(mark.read_text())))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupted_run_keeps_its_finished_verdicts(
    start: Start, matrix: Path, tmp_path: Path, slow: str, number: int
) -> None:
    mark = tmp_path / "torn-down"
    process = start((SLOW_FOR.format(mark=str(mark)),), "--image", REF, "--image", slow, "--jobs", "2")
    assert process.stderr
    for line in process.stderr:
        if f"✓ {REF}" in line:
            break
    mark.unlink(missing_ok=True)  # that was the other image's
    until(lambda: Path(f"{mark}.begun").exists())
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert mark.exists(), "the checks were killed before they could remove what they had made"
    reports = sorted(path.name for path in (matrix.parent / "reports").iterdir())
    assert reports == [f"{REPOSITORY}/{INIT}:1.0.0".replace("/", "_").replace(":", "_")]
    assert not _name_of(str(tmp_path / "checks"))


def test_images_are_tested_side_by_side(tested: Callable[..., Completed], tmp_path: Path, slow: str) -> None:
    body = """\
        import pathlib, time
        def test_meets(request):
            here = pathlib.Path({here!r})
            (here / str("slow" in request.config.getoption("--image"))).touch()
            until = time.monotonic() + 60
            while len(list(here.iterdir())) < 2:
                assert time.monotonic() < until, "the other image is not tested meanwhile"
                time.sleep(0.05)
        """
    (tmp_path / "here").mkdir()
    process = tested((body.format(here=str(tmp_path / "here")),), "--image", REF, "--image", slow, "--jobs", "2")
    assert process.returncode == 0, process.stderr


def test_a_missing_image_fails_and_the_others_are_tested(
    tested: Callable[..., Completed],
) -> None:
    process = tested((GOOD,), "all", "--format", "json")
    assert process.returncode == 13
    images = {image["name"]: image for image in json.loads(process.stdout)["images"]}
    assert images[INIT]["outcome"] == "passed"
    missing = images["2.13.0-cpu-runtime-debian12"]
    assert missing["outcome"] == "failed"
    assert "nox -s build -- 2.13.0-cpu-runtime-debian12" in missing["remedy"]


def test_an_image_that_is_out_of_date_is_tested_and_said_so(tested: Callable[..., Completed], matrix: Path) -> None:
    matrix.write_text(matrix.read_text() + "source: https://example.com/changed\n")
    process = tested((GOOD,), INIT, "--format", "json")
    assert process.returncode == 0
    assert "its inputs changed" in image_of(process)["warning"]
    assert f"nox -s build -- {INIT}" in process.stderr


def test_an_image_of_another_matrix_is_compared_with_no_lock(
    project: Project, built: dict[str, dict[str, Any]]
) -> None:
    """Both matrices have an image of this id."""
    path = project(CPU_ROW, repository="torchbake-test/other")
    words = ("--image", built[CPU]["ref"], "--matrix", str(path), "--only", "python.*", "--format", "json")
    process = torchbake("test", *words, "--force")
    assert process.returncode == 0, process.stderr
    outcomes = {check["id"]: check["outcome"] for check in image_of(process)["checks"]}
    assert (outcomes["python.locked"], outcomes["python.imports"]) == ("not-run", "passed")
    assert f"its labels name {CPU} of https://github.com/torchbake/torchbake" in " ".join(process.stderr.split())


def test_options_meant_for_another_pytest_leave_no_check_out(tested: Callable[..., Completed]) -> None:
    process = tested((GOOD, BAD), INIT, "--format", "json", PYTEST_ADDOPTS="-k good")
    assert process.returncode == 13
    assert len(image_of(process)["checks"]) == 2


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _name_of(word: str) -> list[str]:
    """Processes that name ``word`` on their command line."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if word in line]
