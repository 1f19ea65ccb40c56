"""The images that we build pass all their checks, by the command that users type; the second time from verdicts."""

from typing import Any

import pytest

from tests.e2e.conftest import verdicts_of

pytestmark = pytest.mark.checks


def test_they_pass_and_what_did_not_run_says_why(
    judged: dict[str, dict[str, Any]], built: dict[str, dict[str, Any]]
) -> None:
    assert set(judged) == set(built)
    for name, image in judged.items():
        assert image["outcome"] == "passed"
        outcomes = {check["id"]: check["outcome"] for check in image["checks"]}
        not_run = {check["id"]: check["reason"] for check in image["checks"] if check["outcome"] == "not-run"}
        print(f"\n{name}: {len(outcomes)} checks in {image['seconds']} s; not run: {not_run or 'none'}")
        assert list(outcomes.values()).count("passed") > 20
        assert all(not_run.values())
    again = verdicts_of(*built)
    assert all(image["reused"] for image in again.values())
    assert [image["checks"] for image in again.values()] == [image["checks"] for image in judged.values()]
