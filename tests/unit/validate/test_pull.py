"""Checks of images that are not pulled."""

from typing import Any, cast

import pytest

from torchbake.checks.smoke_run import Session
from torchbake.checks.verdict import Outcome
from torchbake.oci.reference import Repository
from torchbake.validate.judge import NOTHING_EXPECTED
from torchbake.validate.pull import EngineInspection, InspectionRequest


@pytest.mark.parametrize("suite", [False, True])
def test_a_selected_suite_that_did_not_run_is_reported(suite: bool) -> None:
    question = InspectionRequest(
        repository=Repository(host="h", path="a/b"), digest="sha256:1", labels={}, expected={}, problem=NOTHING_EXPECTED
    )
    nobody = cast(Any, None)
    looker = EngineInspection(engine=nobody, session=Session(), suite=cast(Any, object()) if suite else None)
    matches = {check.id: check.outcome for check in looker.look_into(question, lambda _: None)}
    names = ["registry.pull", "registry.versions", *(["registry.suite"] if suite else [])]
    assert matches == dict.fromkeys(names, Outcome.NOT_RUN)
