"""Reports: saved and reused verdicts, and the summary of a run."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from tests.unit.conftest import check_golden
from torchbake.checks.markdown import markdown
from torchbake.checks.reports import ImageResult, Reports, as_json, file_name, summary
from torchbake.core.problem import Problem

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
NOT_THERE = Problem(reason="not in the engine", remedy="Build it: nox -s build -- 2.9.1-cpu")


def run_of(folder: Path) -> list[ImageResult]:
    page = folder / NAME / "abababababab.md"
    return [
        ImageResult(name=NAME, ref=BAD.image, verdict=BAD, report=page, warning="out of date: its inputs changed"),
        ImageResult(
            name="volume-permissions",
            ref="acme/volume-permissions:1",
            verdict=GOOD,
            reused=True,
            report=page,
            platform="linux/arm64",
        ),
        ImageResult(name="2.9.1-cpu", ref="acme/pytorch:2.9.1-cpu", problem=NOT_THERE),
    ]


def test_the_summary_of_a_run(tmp_path: Path) -> None:
    check_golden(GOLDEN / "summary.md", summary(run_of(tmp_path), tmp_path))


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
    results = run_of(tmp_path)
    page = Reports(folder=tmp_path).summarise(results)
    assert page.read_text() == summary(results, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == as_json(results)


def test_a_partial_run_leaves_the_summary_of_a_full_one(tmp_path: Path) -> None:
    reports, (bad, *others) = Reports(folder=tmp_path), run_of(tmp_path)
    whole = reports.summarise([bad, *others]).read_text()
    assert reports.summarise([bad], partial=True).read_text() == summary([bad], tmp_path)
    assert (tmp_path / "summary.md").read_text() == whole
    assert json.loads((tmp_path / "summary.partial.json").read_text()) == as_json([bad])


def test_the_reason_of_a_result_names_its_failed_checks(tmp_path: Path) -> None:
    bad, _, missing = run_of(tmp_path)
    failed = [each for each in bad.checks if each.outcome is FAILED]
    assert all(f"{each.id}: {each.summary}" in bad.reason for each in failed)
    assert missing.reason == NOT_THERE.sentence


def test_the_json_of_a_run_has_missing_images_too(tmp_path: Path) -> None:
    bad, good, missing = as_json(run_of(tmp_path))["images"]
    assert bad["outcome"] == "failed"
    assert bad["counts"] == {"passed": 2, "failed": 2, "not-run": 3, "waived": 0}
    assert bad["checks"][1]["reason"] == CHECKS[1].reason
    assert (good["outcome"], good["reused"]) == ("passed", True)
    assert (missing["outcome"], missing["problem"], missing["checks"]) == ("failed", "not in the engine", [])
    assert missing["remedy"] == NOT_THERE.remedy
    assert (good["platform"], missing["platform"]) == ("linux/arm64", None)
