"""A verdict as a file: what the public part says, and which files are refused."""

import json
from typing import Any

import pytest

from tests.unit.checks.test_verdict import FAILED, NOT_RUN, PASSED, check, verdict
from torchbake.checks.statement import PREDICATE, VERDICT, read_statement, statement_text
from torchbake.checks.verdict import Outcome, Verdict

DIGEST, CONFIG = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


def make(*outcomes: Outcome, **changes: Any) -> Verdict:
    checks = tuple(check(f"files.{number}", outcome) for number, outcome in enumerate(outcomes))
    return verdict(*checks, **{"digest": DIGEST, "config": CONFIG} | changes)


def test_a_verdict_reads_back_from_its_statement() -> None:
    for one in (
        make(PASSED, FAILED, NOT_RUN, how=("gpu=cdi", "only=files.*"), promise="sha256:cc"),
        make(PASSED, config=""),
        verdict(check(figures={"gpu": "H100", "ü": [1.5, None]})),
    ):
        assert read_statement(statement_text(one).encode()) == one
    odd = read_statement(statement_text(verdict(check(figures={"gbs": float("nan"), "all": (1, 2)}))).encode())
    assert odd.checks[0].figures == {"gbs": None, "all": [1, 2]}


def test_the_statement_names_image_suite_and_tests() -> None:
    one = make(PASSED, FAILED, NOT_RUN, Outcome.WAIVED, suite="sha256:aa")
    parsed = json.loads(statement_text(one))
    assert parsed["_type"] == "https://in-toto.io/Statement/v1"
    assert [each["digest"] for each in parsed["subject"]] == [{"sha256": "1" * 64}, {"sha256": "2" * 64}]
    assert parsed["predicateType"] == PREDICATE
    predicate = parsed["predicate"]
    assert predicate["configuration"] == [{"name": "suite", "digest": {"sha256": "aa"}}]
    tests = {key: value for key, value in predicate.items() if key.endswith("Tests")}
    assert tests == {"passedTests": ["files.0"], "failedTests": ["files.1"], "warnedTests": ["files.3"]}
    assert predicate[VERDICT]["checks"][2]["outcome"] == "not-run"


def test_an_engine_with_one_digest_gives_one_subject() -> None:
    for config in ("", DIGEST):
        assert len(json.loads(statement_text(make(PASSED, config=config)))["subject"]) == 1


def test_the_result_is_passed_only_if_nothing_is_wrong() -> None:
    for outcomes, result in {
        (PASSED, NOT_RUN): "PASSED",
        (PASSED, Outcome.WAIVED): "WARNED",
        (PASSED, Outcome.WAIVED, FAILED): "FAILED",
        (NOT_RUN,): "FAILED",
        (): "FAILED",
    }.items():
        one = make().model_copy(update={"checks": make(*outcomes).checks if outcomes else ()})
        assert json.loads(statement_text(one))["predicate"]["result"] == result, outcomes


def test_a_file_that_says_anything_else_is_refused() -> None:
    whole: dict[str, Any] = json.loads(statement_text(make(PASSED, FAILED)))
    predicate = whole["predicate"]

    def with_verdict(**changes: Any) -> dict[str, Any]:
        return whole | {"predicate": predicate | {VERDICT: predicate[VERDICT] | changes}}

    for text, reason in (
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no(t an)? in-toto statement"),
        (statement_text(make(PASSED))[:-20], "not JSON"),
        (json.dumps(whole | {"predicate": {}}), "not an in-toto statement"),
        (json.dumps(with_verdict(checks=[])), "contradict"),
        (json.dumps(with_verdict(checks=[{"id": "a.b", "outcome": "fine"}])), "not of this version"),
        (json.dumps(with_verdict(digest=CONFIG)), "contradict"),
        (json.dumps(whole | {"subject": []}), "contradict"),
        (json.dumps(whole | {"predicateType": "https://slsa.dev/provenance/v1"}), "contradict"),
        (json.dumps(whole | {"predicate": predicate | {"result": "PASSED"}}), "contradict"),
        (json.dumps(whole | {"predicate": predicate | {"failedTests": []}}), "contradict"),
    ):
        with pytest.raises(ValueError, match=reason) as refused:
            read_statement(text.encode())
        assert "\n" not in str(refused.value)
