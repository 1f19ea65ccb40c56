"""The images that we build pass all their checks, by the command that users type; the second time from verdicts."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import CPU, CUDA, INIT, torchbake

pytestmark = pytest.mark.checks


def judged(*words: str) -> dict[str, dict[str, Any]]:
    """Each image's result of `test`, by id."""
    done = torchbake("test", CPU, CUDA, INIT, "--format", "json", *words)
    images = {image["name"]: image for image in json.loads(done.stdout)["images"]}
    wrong = [
        f"{name}: {check['id']}: {check['reason']}"
        for name, image in images.items()
        for check in image["checks"]
        if check["outcome"] == "failed"
    ]
    assert done.returncode == 0, "\n".join(wrong) + done.stderr[-2000:]
    return images


def test_they_pass_and_what_did_not_run_says_why(built: dict[str, dict[str, Any]]) -> None:
    images = judged("--force", "--jobs", "1")
    assert set(images) == {CPU, CUDA, INIT}
    for name, image in images.items():
        assert image["outcome"] == "passed"
        outcomes = {check["id"]: check["outcome"] for check in image["checks"]}
        not_run = {check["id"]: check["reason"] for check in image["checks"] if check["outcome"] == "not-run"}
        print(f"\n{name}: {len(outcomes)} checks in {image['seconds']} s; not run: {not_run or 'none'}")
        assert list(outcomes.values()).count("passed") > 20
        assert all(not_run.values())
    again = judged()
    assert all(image["reused"] for image in again.values())
    assert [image["checks"] for image in again.values()] == [image["checks"] for image in images.values()]
