"""Compose and stack files match the Compose specification, and an error names its place in the file."""

import sys

import pytest

from tests.unit.jobs.cases import CASES, task_of, text_of
from torchbake.errors import InstallError, JobError
from torchbake.jobs.json_schema import check_compose
from torchbake.jobs.targets import compose, swarm


@pytest.mark.parametrize("case", CASES)
def test_the_specification_takes_it(case: str) -> None:
    for target in (compose, swarm):
        assert check_compose(target.render(task_of(text_of(case)))) == "the Compose specification"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("endpoint_mode:", "endpointmode:", r"services\.node-0\.deploy: the Compose .*'endpointmode'"),
        ("replicas: 1", "replicas: [1]", r"services\.node-0\.deploy\.replicas: the Compose specification does not"),
    ],
)
def test_a_mistake_is_reported_with_its_place(right: str, wrong: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        check_compose(swarm.render(task_of(text_of("standalone"))).replace(right, wrong))


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "check_jsonschema.builtin_schemas", None)
    with pytest.raises(InstallError) as caught:
        check_compose("services: {}")
    assert "torchbake[jobs]" in (caught.value.hint or "")
