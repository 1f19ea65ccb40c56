"""Steps of the check that a tag has a complete image: the first failure stops dependent checks."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.validate.test_judge import PROMISE, SPEC, failures, outcomes, revision, served, shelf
from torchbake.checks.verdict import Outcome
from torchbake.core.problem import Problem, unknown
from torchbake.matrix.spec import AMD64
from torchbake.validate.facts import Piece, ServedTag, Shelf
from torchbake.validate.judge import judge
from torchbake.validate.judge_image import SILENT, served_whole

NO_ANSWER, NO_JSON = Problem(reason="it does not answer"), Problem(reason="no JSON")
STEPS = ["registry.answers", "registry.exists", "registry.manifest", "registry.blobs", "registry.platform"]


def test_silence_is_told_as_silence_and_hides_no_other_tag() -> None:
    value = shelf(revision(0), points={"cuda12": ServedTag(tag="cuda12", answer_problem=NO_ANSWER)})
    assert failures(value) == {"cuda12": {"answers": "it does not answer"}}
    rest = outcomes(judge(PROMISE, value, {})["cuda12"], Outcome.NOT_RUN)
    assert rest == dict.fromkeys(
        ("exists", "manifest", "blobs", "platform", "rolling", "labels", "signature", "pull", "versions"),
        "the registry did not answer",
    )


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"digest": None, "image": None}, "exists", f"it should point at {SPEC.id}-r0 (r0)"),
        ({"image": None, "manifest_problem": Problem(reason="it is not a JSON object")}, "manifest", "not a JSON"),
    ],
)
def test_a_tag_that_serves_no_image(change: Mapping[str, object], check: str, words: str) -> None:
    value = shelf(revision(0), points={"2.10": replace(served("2.10"), **change)})  # type: ignore[arg-type]
    (failed,) = failures(value).values()
    assert failed.keys() == {check}
    assert words in failed[check]


def changed(**changes: object) -> Shelf:
    one = served("2.10")
    assert one.image
    return shelf(revision(0), points={"2.10": replace(one, image=replace(one.image, **changes))})  # type: ignore[arg-type]


def test_blobs_that_are_not_there_or_not_whole() -> None:
    pieces = tuple(Piece(digest=f"sha256:{size}", size=3, actual_size=size) for size in (None, 2, 3))
    reason = failures(changed(pieces=pieces))["2.10"]["blobs"]
    assert reason.splitlines() == ["2 of 3 blobs: sha256:None is not there", "sha256:2 has 2 bytes, not 3"]


def test_another_platform() -> None:
    assert failures(changed(platforms=("linux/arm64",))) == {
        "2.10": {"platform": "it is for linux/arm64, not for linux/amd64"}
    }


def test_a_config_that_cannot_be_read_fails_once() -> None:
    value = changed(config_problem=Problem(reason="it is something else"), labels={}, platforms=())
    assert failures(value) == {"2.10": {"blobs": "it is something else"}}
    assert "its config cannot be read" in outcomes(judge(PROMISE, value, {})["2.10"], Outcome.NOT_RUN)["labels"]


@pytest.mark.parametrize(
    ("answer", "failed", "stop"),
    [
        (served("a"), None, ""),
        (ServedTag(tag="a", answer_problem=NO_ANSWER), SILENT, "the registry did not answer"),
        (ServedTag(tag="a"), "registry.exists", "there is no such tag"),
        (
            ServedTag(tag="a", digest="sha256:r0", manifest_problem=NO_JSON),
            "registry.manifest",
            "its manifest is damaged",
        ),
    ],
    ids=["whole", "silent", "missing", "damaged"],
)
def test_the_first_step_that_fails_stops_those_after_it(answer: ServedTag, failed: str | None, stop: str) -> None:
    checks, why = served_whole(answer, Problem(reason="a is not there"), AMD64)
    assert [check.id for check in checks] == STEPS
    assert why == (unknown(stop) if stop else None)
    at = STEPS.index(failed) if failed else len(STEPS)
    expected = [Outcome.PASSED] * at + ([Outcome.FAILED] + [Outcome.NOT_RUN] * (len(STEPS) - at - 1) if failed else [])
    assert [check.outcome for check in checks] == expected
