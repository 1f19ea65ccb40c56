"""Waivers: what may fail and why, from the command line and the matrix to verdicts, reports and releases."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.checks.test_verdict import FAILED, NOT_RUN, PASSED, check, verdict
from tests.unit.conftest import SMALL, edited, expand_text
from torchbake.build.plan import ref_of
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.junit import junit
from torchbake.checks.markdown import markdown
from torchbake.checks.pytest_run import SUITE_CHECK, CheckOptions, CheckTarget, Suite, SuiteEnd
from torchbake.checks.reports import ImageResult, Reports, as_json, summary
from torchbake.checks.suite_digest import promise_digest, suite_digest
from torchbake.checks.tables import show_checks, show_run
from torchbake.checks.verdict import Outcome, Verdict, outcome_of, tally
from torchbake.checks.waivers import idle, parse_waivers, waive
from torchbake.commands._candidates import candidate_of
from torchbake.engine.image import EngineImage
from torchbake.errors import MatrixError, UsageError
from torchbake.matrix.project import load_project
from torchbake.release.transport import ReadyImage
from torchbake.report.catalogue import checked_of

CPU = "2.13.0-cpu-runtime-debian12"
INIT = "volume-permissions"
SIZE = check("process.size", FAILED, "1050.0 MB of at most 900.0 MB")
WHY = {"process.size": "the model is in the image"}
ROW = "    flavor: [runtime, devel]\n"


def waived() -> Verdict:
    return verdict(check(), *waive([SIZE], WHY))


def test_a_waived_check_has_the_waivers_reason_and_the_problem() -> None:
    (actual,) = waive([SIZE], WHY)
    assert actual.outcome is Outcome.WAIVED
    assert actual.summary == "the model is in the image"
    assert "1050.0 MB of at most 900.0 MB" in actual.reason


@pytest.mark.parametrize("outcome", [PASSED, NOT_RUN])
def test_what_did_not_fail_stays_what_it_is(outcome: Outcome) -> None:
    one = check("process.size", outcome, "no budget")
    assert waive([one, check("process.layers", FAILED, "so")], WHY) == (one, check("process.layers", FAILED, "so"))


def test_it_is_counted_apart_and_is_no_pass() -> None:
    assert tally(waived().checks) == "1 passed, 1 waived"
    assert waived().outcome is PASSED
    assert outcome_of(waive([SIZE], WHY)) is NOT_RUN  # nothing has passed
    assert outcome_of([*waive([SIZE], WHY), check(outcome=FAILED)]) is FAILED


def test_a_waiver_that_waives_nothing_is_told() -> None:
    warnings = list(idle([check("process.size"), check("smoke.nccl", NOT_RUN)], {**WHY, "smoke.nccl": "x", "a.b": "y"}))
    assert warnings == [
        "the waiver of process.size waives nothing: it passed",
        "the waiver of a.b waives nothing: there is no check of that name",
    ]
    assert list(idle(waived().checks, WHY)) == []


def test_what_the_command_line_says() -> None:
    assert parse_waivers(["process.size= it = big ", "smoke.ddp[gloo,2x2]=slow"]) == {
        "process.size": "it = big",
        "smoke.ddp[gloo,2x2]": "slow",
    }


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("process.size", "has no reason"),
        ("process.size=", "has no reason"),
        ("=because", "names no check"),
        ("suite=it broke off", "names no check"),
    ],
)
def test_a_waiver_without_a_reason_or_a_check_is_refused(word: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"--waive '{word}' {problem}"):
        parse_waivers([word])


def test_that_the_checks_broke_off_is_never_waived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(tmp_path, CheckOptions(), cwd=tmp_path)
    monkeypatch.setattr(suite, "_run", lambda *_: SuiteEnd(code=3, tail=("it broke",)))
    target = CheckTarget(name="x", ref="x", row="", digest="sha256:1", suite="", waivers=WHY)
    actual = suite.judge(target, tmp_path / "x.log", lambda _: None)
    assert [one.id for one in actual.of(FAILED)] == [SUITE_CHECK]


def of(text: str, name: str = CPU) -> dict[str, str]:
    return dict(next(spec.waivers for spec in expand_text(text).specs if spec.id == name))


def test_rows_images_flavors_and_init_images_can_have_waivers() -> None:
    text = edited("  runtime: {}\n", "  runtime: {waive: {process.size: it is so, files.waste: it is big}}\n")
    assert of(text) == {"process.size": "it is so", "files.waste": "it is big"}
    more = text + f"images:\n  {CPU}:\n    waive: {{process.size: it is so here}}\n"
    assert of(more) == {"process.size": "it is so here", "files.waste": "it is big"}
    assert of(SMALL) == {}


@pytest.mark.parametrize("waiver", ["{process.size: why}", "{size: because of that}", "{process.size: }"])
def test_a_waiver_of_the_matrix_needs_a_check_and_a_reason(waiver: str) -> None:
    with pytest.raises(MatrixError, match=r"matrix\.yaml:\d+"):
        expand_text(edited("  runtime: {}\n", f"  runtime: {{waive: {waiver}}}\n"))


def test_other_waivers_are_another_suite(tmp_path: Path) -> None:
    """A verdict that was made with a waiver is no answer without it, nor the other way round."""

    def digest(text: str, **options: Any) -> str:
        (tmp_path / "matrix.yaml").write_text(text)
        project = load_project(tmp_path / "matrix.yaml")
        spec = next(spec for spec in project.expansion.specs if spec.id == CPU)
        return suite_digest(project, spec, CheckOptions(**options).decisive())

    row = edited("  runtime: {}\n", "  runtime: {waive: {process.size: it is so}}\n")
    matches = {
        digest(SMALL),
        digest(row),
        digest(SMALL, waivers=WHY),
        digest(SMALL, waivers={"process.size": "why not"}),
    }
    assert len(matches) == 4


def test_another_waiver_of_the_matrix_is_another_promise(tmp_path: Path) -> None:
    def promise(text: str) -> str:
        (tmp_path / "matrix.yaml").write_text(text)
        project = load_project(tmp_path / "matrix.yaml")
        return promise_digest(project, next(spec for spec in project.expansion.specs if spec.id == CPU))

    row = edited("  runtime: {}\n", "  runtime: {waive: {process.size: it is so}}\n")
    assert promise(SMALL) != promise(row)


def test_a_release_takes_what_was_waived_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbake.commands._candidates.missing_checks", lambda verdict, spec: ())
    (tmp_path / "matrix.yaml").write_text(SMALL)
    project = load_project(tmp_path / "matrix.yaml")
    spec = next(spec for spec in project.expansion.specs if spec.id == INIT)
    image = EngineImage(digest="sha256:" + "1" * 64, tags=(), labels={}, size_bytes=1)
    images = {ref_of(spec, project.tags[INIT]): image}
    fields = {
        "digest": image.digest,
        "promise": promise_digest(project, spec),
        "suite": suite_digest(project, spec, ()),
    }
    Reports(folder=tmp_path / "reports").keep(INIT, waived().model_copy(update=fields), {}, partial=False)
    candidate = candidate_of(
        ImagePreparation.to_ask(project, print), spec, images, {}, prepare=lambda image: ReadyImage(digest=image)
    )
    assert candidate.waived == WHY
    assert candidate.verdict
    assert candidate.verdict.counts["waived"] == 1


def test_every_report_shows_it_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = ImageResult(name=CPU, ref="x", verdict=waived(), report=tmp_path / "x.md")
    case = ElementTree.fromstring(junit(CPU, waived())).find(".//testcase[@name='process.size']/skipped")
    assert case is not None
    assert case.get("message") == "waived: the model is in the image"
    page = markdown(waived(), {})
    assert "## Waived" in page
    assert "1050.0 MB of at most 900.0 MB" in page
    assert "process.size" not in page.partition("## Passed")[2]
    assert "## Waived" in summary([result], tmp_path)
    (entry,) = as_json([result])["images"]
    assert entry["counts"] == {"passed": 1, "failed": 0, "not-run": 0, "waived": 1}
    assert [finding.reason for finding in checked_of(waived()).waived] == ["the model is in the image"]
    show_run([result])
    assert "the model is in the image" in capsys.readouterr().out
    show_checks(waived().checks)
    assert "the model is in the image" in capsys.readouterr().out
    assert json.loads(waived().model_dump_json())["checks"][1]["outcome"] == "waived"
