"""What the tests on an old Kubernetes change of a manifest, and what they refuse to lose."""

from typing import Any

import pytest
import yaml

from tests.clusters.lowering import INDEX, lowered


def indexed(**spec: Any) -> str:
    pod = {"subdomain": "a", "initContainers": [{"name": "i"}], "containers": [{"name": "c", "env": [{"name": "A"}]}]}
    whole = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 4, **spec}
    job = {"kind": "Job", "metadata": {"name": "a"}, "spec": {**whole, "template": {"metadata": {}, "spec": pod}}}
    return yaml.safe_dump_all([{"kind": "Service", "metadata": {"name": "a"}}, job])


def test_an_indexed_job_becomes_a_job_for_each_index() -> None:
    service, *jobs = yaml.safe_load_all(lowered(indexed(podFailurePolicy={"rules": []})))
    assert service["kind"] == "Service"
    assert [job["metadata"]["name"] for job in jobs] == ["a-0", "a-1"]
    for index, job in enumerate(jobs):
        template = job["spec"]["template"]
        assert template["metadata"]["labels"] == {INDEX: str(index), "job-name": "a"}
        assert template["spec"]["hostname"] == f"a-{index}"
        for container in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
            assert container["env"][0] == {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
        assert job["spec"].keys() == {"backoffLimit", "manualSelector", "selector", "template"}


def test_what_would_be_lost_is_refused() -> None:
    with pytest.raises(ValueError, match="successPolicy"):
        lowered(indexed(successPolicy={}))
    with pytest.raises(ValueError, match="at one time"):
        lowered(indexed(parallelism=1))
