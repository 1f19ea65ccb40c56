"""Reports: the files of a verdict as they were reviewed, and what must hold of every one."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checks.test_verdict import FAILED, NOT_RUN, PASSED, check, verdict
from tests.unit.conftest import check_golden
from torchbake.checks.reports import (
    Reports,
    Tested,
    as_json,
    file_name,
    junit,
    markdown,
    show_checks,
    show_run,
    summary,
)
from torchbake.checks.verdict import CheckResult

GOLDEN = Path(__file__).parents[1] / "golden"
LABELS = {
    "org.opencontainers.image.title": "PyTorch 2.13.0 cpu runtime",
    "org.torchbake.id": "2.13.0-cpu-runtime-debian12",
    "org.torchbake.inputs": "sha256:cc",
    "org.torchbake.python": "3.11",
    "org.torchbake.torch": "2.13.0+cpu",
}
CHECKS = (
    check("metadata.labels", seconds=0.02),
    check("users.root", FAILED, "uid 0 | can write <here>\nsee `/opt/venv`:\n```\ndrwxrwxrwx\n```", seconds=0.4),
    check("python.torch", FAILED, "torch.__version__ is 2.13.0, not 2.12.0", seconds=1.5),
    check("process.start-up", seconds=2.25, figures={"seconds": 0.31, "budget": 1}),
    check("smoke.nccl", NOT_RUN, "no GPU in the engine"),
    check("smoke.compile", NOT_RUN, "no compiler"),
    check("smoke.tensor[cuda]", NOT_RUN, "no GPU in the engine"),
)
BAD = verdict(*CHECKS, digest=f"sha256:{'ab' * 32}", suite=f"sha256:{'cd' * 32}")
GOOD = verdict(check("files.setuid", seconds=0.2), digest=f"sha256:{'12' * 32}")
NAME = BAD.id
Streams = pytest.CaptureFixture[str]


def run_of(folder: Path) -> list[Tested]:
    page = folder / NAME / "abababababab.md"
    return [
        Tested(name=NAME, ref=BAD.image, verdict=BAD, report=page, warning="out of date: its inputs changed"),
        Tested(name="volume-permissions", ref="acme/volume-permissions:1", verdict=GOOD, reused=True, report=page),
        Tested(name="2.9.1-cpu", ref="acme/pytorch:2.9.1-cpu", problem="not in the engine"),
    ]


def cases(text: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text.encode()).iter("testcase"))


def test_the_page_of_a_verdict() -> None:
    check_golden(GOLDEN / "verdict.md", markdown(BAD, LABELS))


def test_the_page_of_a_partial_verdict_says_so() -> None:
    assert "of a part of the checks" in markdown(GOOD, LABELS, partial=True)
    assert "of a part of the checks" not in markdown(GOOD, LABELS)


def test_the_junit_file_of_a_verdict() -> None:
    check_golden(GOLDEN / "verdict.xml", junit(NAME, BAD))


def test_the_summary_of_a_run(tmp_path: Path) -> None:
    check_golden(GOLDEN / "summary.md", summary(run_of(tmp_path), tmp_path))


@given(st.text(), st.text())
def test_any_text_makes_a_junit_file_that_can_be_read(name: str, reason: str) -> None:
    checks = (check(name, FAILED, reason, figures={"said": reason}), check(name, NOT_RUN, reason), check(name))
    failed, not_run, passed = cases(junit(name, verdict(*checks, id=name)))
    assert [element.tag for element in failed] == ["failure", "system-out"]
    assert [element.tag for element in not_run] == ["skipped"]
    assert not list(passed)


@given(st.text(alphabet=st.sampled_from("ab|`<_*\n[\\ ")))
def test_any_text_stays_within_its_row(reason: str) -> None:
    rows = markdown(verdict(check(outcome=NOT_RUN, reason=reason), check()), {}).partition("## Not run\n\n")[2]
    line = rows.partition("\n\n")[0].splitlines()[2]
    bare = line.replace("\\\\", "").replace("\\|", "")
    assert bare.count("|") == 3
    assert len(rows.partition("\n\n")[0].splitlines()) == 3


def test_colours_are_left_out_of_a_report() -> None:
    colourful = verdict(check(outcome=FAILED, reason="\x1b[31mred\x1b[0m\n\x1b[1mbold"))
    assert cases(junit(NAME, colourful))[0][0].text == "red\nbold"
    assert "\x1b" not in markdown(colourful, {})


def test_a_verdict_is_kept_in_three_files_and_found_again(tmp_path: Path) -> None:
    reports = Reports(folder=tmp_path)
    page = reports.keep(NAME, BAD, LABELS, partial=False)
    assert sorted(path.name for path in (tmp_path / NAME).iterdir()) == [
        f"abababababab.{suffix}" for suffix in ("json", "md", "xml")
    ]
    assert page.read_text() == markdown(BAD, LABELS)
    assert reports.find(NAME, BAD.digest) == BAD
    assert reports.find(NAME, GOOD.digest) is None


def test_a_partial_verdict_is_never_found_and_hides_no_whole_one(tmp_path: Path) -> None:
    reports = Reports(folder=tmp_path)
    reports.keep(NAME, GOOD, {}, partial=True)
    assert reports.find(NAME, GOOD.digest) is None
    whole = GOOD.model_copy(update={"seconds": 9.0})
    reports.keep(NAME, whole, {}, partial=False)
    reports.keep(NAME, GOOD, {}, partial=True)
    assert reports.find(NAME, GOOD.digest) == whole


@pytest.mark.parametrize("text", ["", "{", "[]", '{"image": "x"}', '{"checks": [{"id": "a", "outcome": "fine"}]}'])
def test_a_verdict_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    reports = Reports(folder=tmp_path)
    path = reports.path(NAME, GOOD.digest)
    path.parent.mkdir()
    path.write_text(text)
    assert reports.find(NAME, GOOD.digest) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (NAME, NAME),
        ("registry.example.com:5000/team/pytorch:latest", "registry.example.com_5000_team_pytorch_latest"),
        ("acme/pytorch@sha256:abc", "acme_pytorch_sha256_abc"),
        ("../../etc", "_.._etc"),
        ("..", "_"),
    ],
)
def test_a_reference_as_a_file_name(name: str, expected: str) -> None:
    assert file_name(name) == expected


@given(st.text(min_size=1))
def test_no_name_leaves_the_folder_of_reports(name: str) -> None:
    path = Reports(folder=Path("/reports")).path(name, GOOD.digest)
    assert path.parent.parent == Path("/reports")
    assert ".." not in path.parts


def test_the_latest_run_is_summed_up_in_two_files(tmp_path: Path) -> None:
    tested = run_of(tmp_path)
    page = Reports(folder=tmp_path).summarise(tested)
    assert page.read_text() == summary(tested, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == as_json(tested)


def test_a_run_for_programs_has_every_image_also_one_that_is_not_there(tmp_path: Path) -> None:
    bad, good, missing = as_json(run_of(tmp_path))["images"]
    assert bad["outcome"] == "failed"
    assert bad["counts"] == {"passed": 2, "failed": 2, "not-run": 3, "waived": 0}
    assert bad["checks"][1]["reason"] == CHECKS[1].reason
    assert (good["outcome"], good["reused"]) == ("passed", True)
    assert (missing["outcome"], missing["problem"], missing["checks"]) == ("failed", "not in the engine", [])


def test_the_table_of_a_run_has_each_failure_and_each_reason_once(tmp_path: Path, capsys: Streams) -> None:
    show_run(run_of(tmp_path))
    text = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert f"{NAME} failed 2 2 3 0 4.5 s out of date: its inputs changed" in rows
    assert "volume-permissions passed 1 0 0 0 4.5 s unchanged since 2026-11-21 07:48 UTC" in rows
    assert "2.9.1-cpu failed not in the engine" in rows
    assert f"python.torch {NAME} torch.__version__ is 2.13.0, not 2.12.0" in rows
    assert "smoke.nccl, smoke.tensor[cuda] no GPU in the engine" in rows
    assert text.count("no GPU in the engine") == 1


def shown(capsys: Streams, *checks: CheckResult) -> str:
    capsys.readouterr()
    show_checks(checks)
    return capsys.readouterr().out


def test_a_table_of_checks_ends_with_what_is_wrong(capsys: Streams) -> None:
    lines = shown(
        capsys, check("a.bad", FAILED, "it leaks"), check("a.good"), check("a.open", NOT_RUN, "no GPU")
    ).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["a.good", "a.open", "a.bad"]
    assert "it leaks" in lines[3]
    assert lines[-1].split(maxsplit=1) == ["a.open", "no GPU"]


def test_a_table_of_checks_that_all_ran_has_no_foot(capsys: Streams) -> None:
    assert "not run" not in shown(capsys, check("a.good", PASSED))
