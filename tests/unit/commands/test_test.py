"""The command `test` without an engine: selection of images, verdicts that count again, and outdated verdicts."""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from tests.unit.conftest import SMALL, edited
from torchbake import cli
from torchbake.build.prepare import ImagePreparation
from torchbake.checks import gpu as gpu_rule
from torchbake.checks.pytest_run import CheckOptions, CheckTarget, Suite, SuiteEnd, checks_of
from torchbake.checks.reports import Reports
from torchbake.checks.statement import read_statement
from torchbake.checks.suite_digest import suite_digest, suite_files
from torchbake.checks.verdict import CheckResult, Outcome, Verdict, dump_results
from torchbake.commands import test as command
from torchbake.commands._cases import ImageCase, find_cases
from torchbake.core.paths import TOOLKIT
from torchbake.engine.address import DEFAULT
from torchbake.engine.capability import Capabilities
from torchbake.engine.gpu import GpuAccess
from torchbake.engine.image import EngineImage
from torchbake.matrix import project
from torchbake.matrix.project import Project, load_project, run_folder
from torchbake.matrix.spec import ImageSpec

CPU = "2.13.0-cpu-runtime-debian12"
CUDA = "2.10.0-cuda12.8-cudnn9-runtime-debian12"
DEVEL = "2.13.0-cpu-devel-debian12"
REF = f"acme/pytorch:{CPU}"
DIGEST = f"sha256:{'1' * 64}"
Streams = pytest.CaptureFixture[str]


class FakeEngine:
    """An engine with the given tags, and their digests."""

    capabilities = Capabilities(address=DEFAULT, version="26.1.5", store="containerd", driver="overlayfs")

    containerd_store = False

    def __init__(self, *tags: str) -> None:
        self._image = EngineImage(digest=DIGEST, tags=tags, labels={}, size_bytes=1)

    def images(self) -> dict[str, EngineImage]:
        return dict.fromkeys(self._image.tags, self._image)

    def tagged_images(self, references: Iterable[str]) -> dict[str, EngineImage]:
        images = self.images()
        return {tag: images[tag] for tag in references if tag in images}

    def find(self, digests: Iterable[str]) -> str | None:
        return DIGEST if self._image.tags and set(digests) & {DIGEST, DIGEST[:19]} else None

    def layers(self, digest: str) -> tuple[str, ...]:
        return ()


@pytest.fixture
def small(tmp_path: Path) -> Project:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    return load_project(tmp_path / "matrix.yaml")


@pytest.fixture(autouse=True)
def holds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that fills the engine, which is empty at first."""

    def hold(*tags: str) -> None:
        monkeypatch.setattr(command, "connect", lambda: FakeEngine(*tags))

    hold()
    return hold


@pytest.fixture(autouse=True)
def lacking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set which of today's checks verdicts lack; none at first. Another process would list the checks."""

    def lack(*names: str) -> None:
        monkeypatch.setattr(command, "missing_checks", lambda verdict, spec: names)

    lack()
    return lack


@pytest.fixture
def keep_verdict(small: Project, holds: Callable[..., None]) -> Callable[..., Verdict]:
    """Hold the CPU image, and keep a verdict of it as a run would have."""

    def keep(
        *checks: CheckResult, options: CheckOptions | None = None, row: str = CPU, found: str = "", **changes: Any
    ) -> Verdict:
        holds(f"acme/pytorch:{row}")
        options = options or CheckOptions()
        spec = next(spec for spec in small.expansion.specs if spec.id == row)
        digest = suite_digest(small, spec, options.decisive(found))
        same = {"image": f"acme/pytorch:{row}", "id": row, "digest": DIGEST, "suite": digest}
        product = verdict(*checks, **same | changes)
        Reports(folder=small.root / "reports").keep(row, product, {}, partial=options.partial)
        return product

    return keep


def run(project: Project, *words: str) -> int:
    return cli.main(["test", *words, "--matrix", str(project.root / "matrix.yaml")])


def steps(project: Project, capsys: Streams, *words: str) -> dict[str, str]:
    """Return the step of each image in a dry run."""
    capsys.readouterr()
    assert run(project, *words, "--dry-run", "--format", "json") == 0
    plan = json.loads(capsys.readouterr().out)["images"]
    assert {image["platform"] for image in plan} == {"linux/amd64"}
    return {image["name"]: image["step"] for image in plan}


def test_an_image_missing_in_the_engine_fails_with_a_next_step(small: Project, capsys: Streams) -> None:
    assert run(small, CPU) == 13
    streams = capsys.readouterr()
    assert f"nox -s build -- {CPU}" in streams.out
    assert "1 of 1 images did not pass" in streams.err
    assert str(small.root / "reports/summary.md") in streams.err


def test_no_selector_and_no_image_is_the_list_of_what_there_is(small: Project, capsys: Streams) -> None:
    assert run(small) == 2
    assert CPU in capsys.readouterr().err


def test_an_image_and_a_selector_are_two_questions(small: Project, capsys: Streams) -> None:
    assert run(small, "cpu", "--image", "acme/other") == 2
    assert "'cpu'" in capsys.readouterr().err


def test_a_passed_verdict_is_the_answer(small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams) -> None:
    keep_verdict(check(), check("smoke.compile", NOT_RUN, "no compiler"))
    assert run(small, CPU, "--format", "json") == 0
    image = json.loads(capsys.readouterr().out)["images"][0]
    assert (image["outcome"], image["reused"], image["ref"]) == ("passed", True, REF)
    assert image["counts"] == {"passed": 1, "failed": 0, "not-run": 1, "waived": 0}
    assert Path(image["report"]).exists()


def test_it_is_shown_with_when_it_was_made_and_what_did_not_run(
    small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams
) -> None:
    keep_verdict(check(), check("smoke.compile", NOT_RUN, "no compiler"))
    assert run(small, CPU) == 0
    text = capsys.readouterr().out
    assert "unchanged since 2026-11-21 07:48 UTC" in text
    assert "smoke.compile" in text
    assert "no compiler" in text


def test_the_summary_of_the_latest_run_is_written(small: Project, keep_verdict: Callable[..., Verdict]) -> None:
    keep_verdict(check())
    run(small, CPU, DEVEL)
    text = (small.root / "reports/summary.md").read_text()
    assert "1 of 2 images passed" in text
    images = json.loads((small.root / "reports/summary.json").read_text())["images"]
    assert [(image["name"], image["outcome"]) for image in images] == [(CPU, "passed"), (DEVEL, "failed")]


def test_what_makes_a_passed_verdict_no_answer(
    small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams
) -> None:
    for words, step in (
        ((), "reuse"),
        (("--gpu", "auto"), "reuse"),
        (("--timeout", "5"), "reuse"),
        (("--jobs", "7"), "reuse"),
        (("--force",), "test"),
        (("--gpu", "require"), "test"),
        (("--gpu", "off"), "test"),
        (("--nodes", "2"), "test"),
        (("--nproc", "2"), "test"),
        (("--only", "files.*"), "test"),
        (("--skip", "files.*"), "test"),
    ):
        keep_verdict(check())
        assert steps(small, capsys, CPU, *words) == {CPU: step}, (words, step)


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": f"sha256:{'2' * 64}"},
        {"suite": "sha256:another"},
        {"image": "acme/pytorch:cpu"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_verdict_of_something_else_is_no_answer(
    changes: dict[str, str], small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams
) -> None:
    keep_verdict(check(), **changes)
    assert steps(small, capsys, CPU) == {CPU: "test"}


@pytest.mark.parametrize("outcome", [FAILED, NOT_RUN])
def test_what_did_not_pass_is_tested_again(
    outcome: Outcome, small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams
) -> None:
    keep_verdict(check(outcome=outcome, reason="because"))
    assert steps(small, capsys, CPU) == {CPU: "test"}


def test_a_verdict_without_one_of_todays_checks_is_no_answer(
    small: Project, keep_verdict: Callable[..., Verdict], lacking: Callable[..., None], capsys: Streams
) -> None:
    keep_verdict(check())
    lacking("users.owners")
    assert steps(small, capsys, CPU) == {CPU: "test"}


def test_a_part_of_the_checks_is_marked_in_the_verdict(keep_verdict: Callable[..., Verdict]) -> None:
    for options, partial in (({}, False), ({"only": ("smoke.*", "a.*")}, True), ({"skip": ("a.*",)}, True)):
        item = CheckOptions(**options)
        assert keep_verdict(check(), options=item, how=item.decisive()).partial == item.partial == partial


def test_a_partial_verdict_is_no_answer(small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams) -> None:
    keep_verdict(check(), options=CheckOptions(only=("files.*",)))
    assert steps(small, capsys, CPU) == {CPU: "test"}


def test_a_verdict_with_nodes_answers_for_as_many_nodes(
    small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams
) -> None:
    keep_verdict(check(), options=CheckOptions(nodes=3, nproc=2))
    assert steps(small, capsys, CPU, "--nodes", "3", "--nproc", "2") == {CPU: "reuse"}
    assert steps(small, capsys, CPU, "--nodes", "2", "--nproc", "3") == {CPU: "test"}


@pytest.mark.parametrize(
    ("mode", "made_with", "there", "step"),
    [
        ("auto", "none", "none", "reuse"),
        ("auto", "none", "cdi", "test"),
        ("auto", "cdi", "none", "test"),
        ("auto", "cdi", "cdi", "reuse"),
        ("require", "cdi", "cdi", "reuse"),
        ("off", "", "cdi", "reuse"),
    ],
)
def test_a_verdict_without_gpu_does_not_answer_on_a_gpu_host(
    *,
    mode: str,
    made_with: str,
    there: Literal["none", "cdi"],
    step: str,
    small: Project,
    keep_verdict: Callable[..., Verdict],
    capsys: Streams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_rule, "look_for_gpu", lambda _: GpuAccess(how=there, reason="as the test says"))
    keep_verdict(check(), row=CUDA, found=made_with, gpu=mode)
    assert steps(small, capsys, CUDA, "--gpu", mode) == {CUDA: step}


def test_whether_there_is_a_gpu_says_nothing_of_a_cpu_image(
    small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_rule, "look_for_gpu", lambda _: GpuAccess(how="cdi", reason="as the test says"))
    keep_verdict(check())
    assert steps(small, capsys, CPU) == {CPU: "reuse"}


def test_the_plan_has_each_image_once_and_tests_nothing(
    small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams
) -> None:
    keep_verdict(check())
    assert steps(small, capsys, "cpu", "torch2.13") == {CPU: "reuse", DEVEL: "not there"}
    assert not (small.root / "reports/summary.json").exists()


def cases_of(project: Project, *references: str, holders: tuple[str, ...]) -> list[ImageCase]:
    return find_cases(project, (), references, FakeEngine(*holders))  # type: ignore[arg-type]


def test_a_reference_that_is_a_tag_of_the_matrix_has_that_row(small: Project) -> None:
    (case,) = cases_of(small, "acme/pytorch:latest", holders=("acme/pytorch:latest",))
    assert case.spec
    assert case.spec.id == "2.10.0-cuda12.8-cudnn9-runtime-debian12"
    assert case.image


def test_any_other_reference_has_none(small: Project) -> None:
    (case,) = cases_of(small, "somebody/else:1", holders=("somebody/else:1",))
    assert case.spec is None
    assert case.image


class Derived(FakeEngine):
    """It holds our image, and one whose labels are the same and whose layers begin with these."""

    _LAYERS: ClassVar = {"sha256:a": ("1", "2"), "sha256:b": ("1", "2", "3"), "sha256:c": ("1", "9", "3")}

    def __init__(self, mine: str = "sha256:b") -> None:
        self._mine = mine

    def images(self) -> dict[str, EngineImage]:
        holders = {REF: "sha256:a", "me/mine:1": self._mine}
        labels = {"org.torchbake.id": CPU, "org.opencontainers.image.source": "https://example.com/acme"}
        return {
            tag: EngineImage(digest=digest, tags=(tag,), labels=labels, size_bytes=1) for tag, digest in holders.items()
        }

    def layers(self, digest: str) -> tuple[str, ...]:
        return self._LAYERS[digest]


def derived_case(project: Project, engine: Derived) -> ImageCase:
    (case,) = find_cases(project, (), ["me/mine:1"], engine)  # type: ignore[arg-type]
    return case


def test_a_derived_image_is_judged_by_the_row_of_its_parent(small: Project) -> None:
    case = derived_case(small, Derived())
    assert case.spec is None
    assert case.judged_by
    assert case.judged_by.id == CPU
    assert case.remark == f"FROM {REF}: its additions are not compared with the lock"
    assert case.image
    tester = command.Tester(project=small, options=CheckOptions(), reports=Reports(folder=small.root), force=False)
    target = tester.target(case, case.image)
    assert (target.row, target.origin) == (CPU, REF)
    assert target.suite != suite_digest(small, case.judged_by, CheckOptions().decisive())
    assert target.suite == suite_digest(small, case.judged_by, target.how)
    assert f"--derived {REF}" in " ".join(words(target))


def test_our_labels_on_other_layers_are_reported_and_judged(small: Project) -> None:
    case = derived_case(small, Derived("sha256:c"))
    assert case.origin is None
    assert case.judged_by is None
    assert "docker pull" in case.remark


@pytest.mark.parametrize("ref", [DIGEST, DIGEST[:19]])
def test_a_digest_is_a_reference_too(small: Project, ref: str) -> None:
    (case,) = cases_of(small, ref, holders=("somebody/else:1",))
    assert case.image
    assert case.image.tags == ("somebody/else:1",)


def test_a_reference_is_tested_once_and_a_missing_one_reported(small: Project, capsys: Streams) -> None:
    assert run(small, "--image", "nothing/there:1", "--image", "nothing/there:1") == 13
    streams = capsys.readouterr()
    assert "docker pull nothing/there:1" in streams.out
    assert "1 of 1 images" in streams.err


def toolkit(folder: Path, **files: str) -> Path:
    """A toolkit of a few files."""
    defaults = {
        "tests/images/test_files.py": "def test(): ...",
        "entrypoints/pytorch/payloads/ddp.py": "ddp",
        "entrypoints/pytorch/launch/contract.py": "contract",
        "torchbake/smoke.py": "smoke",
        "pyproject.toml": "[project]",
    }
    for name, text in (defaults | files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def digest_with(small: Project, tmp_path: Path) -> Callable[..., str]:
    """Return a function that computes a suite digest for a toolkit of the given files, last changed at ``at``."""

    def digest(at: int = 1, **files: str) -> str:
        root = toolkit(tmp_path / f"toolkit{len(list(tmp_path.iterdir()))}", **files)
        for path in root.rglob("*"):
            os.utime(path, (at, at))
        return suite_digest(small, small.expansion.specs[0], (), toolkit=root)

    return digest


@pytest.mark.parametrize(
    "name",
    [
        "tests/images/test_files.py",
        "tests/images/data/sizes.json",
        "entrypoints/pytorch/payloads/ddp.py",
        "entrypoints/pytorch/launch/contract.py",
        "entrypoints/pytorch/run",
        "torchbake/smoke.py",
        "pyproject.toml",
    ],
)
def test_a_changed_or_new_file_of_the_suite_is_another_suite(name: str, digest_with: Callable[..., str]) -> None:
    assert digest_with(**{name: "changed"}) != digest_with()


def test_what_is_no_file_of_the_suite_does_not_count(digest_with: Callable[..., str]) -> None:
    assert digest_with(**{"README.md": "x", "tests/images/__pycache__/test_files.pyc": "x"}) == digest_with()


def test_a_file_that_moved_is_another_suite(digest_with: Callable[..., str]) -> None:
    assert digest_with(**{"tests/images/a.py": "x"}) != digest_with(**{"tests/images/b.py": "x"})


def test_the_times_of_files_do_not_count(digest_with: Callable[..., str]) -> None:
    assert digest_with(at=1) == digest_with(at=1_000_000)


def test_the_suite_of_the_repository_has_payloads_and_toolkit() -> None:
    names = {text.partition("\n")[0] for text in suite_files(TOOLKIT)}
    assert {"torchbake/checks/pytest_run.py", "entrypoints/pytorch/entrypoint", "pyproject.toml"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_a_row_that_promises_something_else_is_another_suite(small: Project) -> None:
    spec = next(spec for spec in small.expansion.specs if spec.id == CPU)
    assert isinstance(spec, ImageSpec)
    before = suite_digest(small, spec, ())
    assert suite_digest(small, replace(spec, line=99), ()) == before
    assert suite_digest(small, replace(spec, pip=("numpy", "einops")), ()) != before
    assert suite_digest(replace(small, tags={**small.tags, CPU: (CPU,)}), spec, ()) != before
    assert suite_digest(small, spec, ("nodes=3",)) != before
    lock = small.root / "images" / CPU / "requirements.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("torch==2.13.0+cpu")
    assert suite_digest(small, spec, ()) != before


def test_files_and_templates_of_a_project_are_promised_too(tmp_path: Path) -> None:
    line = "    accelerator: cpu\n"
    (tmp_path / "matrix.yaml").write_text(
        SMALL.replace(line, f"{line}    files: [{{source: job.py, target: /app/x}}]\n")
    )
    (tmp_path / "templates").mkdir()
    digests = set()
    for name in ("job.py", "templates/pytorch.Dockerfile.j2"):
        for text in ("one", "two"):
            (tmp_path / "job.py").touch()
            (tmp_path / name).write_text(text)
            project = load_project(tmp_path / "matrix.yaml")
            digests.add(suite_digest(project, project.expansion.specs[0], ()))
    assert len(digests) == 4


def test_another_row_of_the_matrix_changes_nothing_for_this_one(small: Project, tmp_path: Path) -> None:
    spec = next(spec for spec in small.expansion.specs if spec.id == CPU)
    before = suite_digest(small, spec, ())
    (tmp_path / "matrix.yaml").write_text(edited("torch: [2.10.0, 2.9.1]", "torch: [2.10.1, 2.9.1]"))
    changed = load_project(tmp_path / "matrix.yaml")
    spec = next(spec for spec in changed.expansion.specs if spec.id == CPU)
    assert suite_digest(changed, spec, ()) == before


TARGET = CheckTarget(name=CPU, ref=REF, row=CPU, digest=DIGEST, suite="sha256:bb")


def words(target: CheckTarget, **options: Any) -> list[str]:
    item = Suite(Path("/checks"), CheckOptions(**options), cwd=Path("/"), extra=("--matrix", "/m.yaml"))
    command = item.command(target, Path("/results.json"))
    assert command[1:4] == ["-m", "pytest", "/checks"]
    return command[4:]


def test_a_suite_is_told_what_to_check_and_how() -> None:
    output = " ".join(
        words(TARGET, gpu="require", nodes=3, nproc=2, only=("files.*", "users.*"), skip=("files.caches",))
    )
    for option in (
        f"--image {REF}", f"--row {CPU}", "--gpu require", "--results /results.json", "--matrix /m.yaml",
        "--nodes 3", "--nproc 2", "--only files.* --only users.*", "--skip files.caches",
    ):  # fmt: skip
        assert option in output


def test_a_suite_is_not_told_what_is_not_said() -> None:
    lines = words(replace(TARGET, row=""))
    assert not {"--row", "--derived", "--nodes", "--nproc", "--only", "--skip"} & set(lines)
    assert lines[lines.index("--gpu") :][:2] == ["--gpu", "auto"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


@pytest.mark.parametrize("code", [0, 1])
def test_a_suite_that_ended_well_is_taken_at_its_word(results: Path, code: int) -> None:
    checks = (check(), check("files.owner", FAILED, "root's"), check("smoke.nccl", NOT_RUN, "no GPU"))
    results.write_text(dump_results(checks))
    assert checks_of(SuiteEnd(code=code, tail=()), results, 900) == checks


def test_a_suite_that_did_not_end_is_a_failed_check(results: Path) -> None:
    for end, reason in (
        (SuiteEnd(code=0, tail=()), "left no results"),
        (SuiteEnd(code=1, tail=("python: No module named pytest",)), "left no results"),
        (
            SuiteEnd(code=2, tail=("E   ImportError: no torchbake", "!!! Interrupted: 1 error !!!")),
            "Interrupted: 1 error",
        ),
        (SuiteEnd(code=3, tail=("INTERNALERROR> boom",)), "3 (an error inside pytest): INTERNALERROR> boom"),
        (
            SuiteEnd(code=4, tail=("ERROR: no --row", "  rootdir: /x")),
            "4 (an invalid command line): ERROR: no --row",
        ),
        (
            SuiteEnd(
                code=4,
                tail=("ERROR: usage: pytest [options]", "main.py: error: no such option: --row", "  rootdir: /x"),
            ),
            "main.py: error: no such option: --row",
        ),
        (SuiteEnd(code=5, tail=("no tests ran in 0.01s",)), "5 (no check is selected): no tests ran"),
        (SuiteEnd(code=-9, tail=("test_x.py::test_a",)), "ended by SIGKILL: test_x.py::test_a"),
        (SuiteEnd(code=-11, tail=()), "ended by SIGSEGV: it said nothing"),
        (SuiteEnd(code=2, tail=("last words",), timed_out=True), "did not end within 900 s"),
    ):
        (alone,) = checks_of(end, results, 900)
        assert (alone.id, alone.outcome) == ("suite", FAILED), (end, reason)
        assert reason in alone.summary, (end, reason)
        assert all(line in alone.reason for line in end.tail), (end, reason)


def test_what_it_found_before_is_kept(results: Path) -> None:
    results.write_text(dump_results([check()]))
    checks = checks_of(SuiteEnd(code=2, tail=(), timed_out=True), results, 60)
    assert [one.id for one in checks] == ["files.setuid", "suite"]


def test_results_that_cannot_be_read_are_a_failure(results: Path) -> None:
    results.write_text('[{"id": "files.setuid", "outcome": "pas')
    (alone,) = checks_of(SuiteEnd(code=0, tail=()), results, 900)
    assert alone.outcome is FAILED
    assert "cannot be read" in alone.summary


def test_a_failure_that_no_check_has_is_one_all_the_same(results: Path) -> None:
    results.write_text(dump_results([check()]))
    assert [one.outcome for one in checks_of(SuiteEnd(code=1, tail=("ERROR at teardown",)), results, 900)][-1] is FAILED


def test_runs_of_one_second_have_folders_in_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        second_now = 58

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls(2026, 11, 21, 7, 50, cls.second_now, tzinfo=tz)

    monkeypatch.setattr(project, "datetime", Clock)
    with ThreadPoolExecutor(8) as pool:
        names = [folder.name for folder in pool.map(run_folder, [tmp_path] * 12)]
    Clock.second_now = 59
    later = run_folder(tmp_path)
    assert sorted(names) == ["2026-11-21T07-50-58", *(f"2026-11-21T07-50-58-{number:02}" for number in range(2, 13))]
    assert later.is_dir()
    assert later.name > max(names)


def test_a_verdict_is_written_to_a_folder_or_a_file(
    small: Project, keep_verdict: Callable[..., Verdict], capsys: Streams, tmp_path: Path
) -> None:
    product = keep_verdict(check())
    folder, file = tmp_path / "verdicts/gpu", tmp_path / "one.json"
    for target, path in ((folder, folder / f"{CPU}.json"), (file, file)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{path.name}.bundle").write_text("the signature of an older one")
        assert run(small, CPU, "--write-verdict", str(target)) == 0
        assert read_statement(path.read_bytes()) == product.model_copy(update={"config": DIGEST})
        assert not path.with_name(f"{path.name}.bundle").exists()
        assert "not signed" in capsys.readouterr().err
    assert run(small, CPU, DEVEL, "--write-verdict", str(folder)) == 13  # one is not in the engine
    assert [path.name for path in folder.iterdir()] == [f"{CPU}.json"]


def test_what_cannot_be_written_or_signed_is_refused_first(
    small: Project,
    keep_verdict: Callable[..., Verdict],
    capsys: Streams,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_verdict(check())
    file = tmp_path / "one.json"
    (tmp_path / "text").touch()
    monkeypatch.setenv("PATH", str(tmp_path))  # without cosign
    for words_, code, reason in (
        ((CPU, DEVEL, "--write-verdict", str(file)), 2, "one file, for the verdicts of 2 images"),
        ((CPU, "--write-verdict", str(tmp_path / "text")), 2, "does not end in .json"),
        ((CPU, "--key", "cosign.key"), 2, "--write-verdict"),
        ((CPU, "--write-verdict", str(file), "--key", "cosign.key", "--keyless"), 2, "two ways to sign"),
        ((CPU, "--write-verdict", str(file), "--key", "cosign.key"), 18, "cosign is not installed"),
    ):
        assert run(small, *words_) == code, words_
        assert reason in " ".join(capsys.readouterr().err.split()), words_
        assert not file.exists()


def test_an_image_of_another_matrix_is_told_from_a_broken_one(
    small: Project, holds: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    holds(REF)
    monkeypatch.setattr(ImagePreparation, "why_old", lambda *_: "its lock is another")
    matrix = small.document.path
    for words, there in ((("--image", REF), True), ((CPU,), False)):
        assert cli.main(["test", *words, "--gpu", "off", "--dry-run", "--matrix", str(matrix)]) == 0
        output = " ".join(capsys.readouterr().err.split())
        assert (f"compared with the lock of {matrix}; if another matrix made it" in output) == there, words
