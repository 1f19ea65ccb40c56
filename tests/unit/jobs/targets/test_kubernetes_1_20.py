"""Properties of one Job for each node besides its contract: names, and pods that are never restarted."""

from typing import Any

import pytest
import yaml

from tests.unit.jobs.cases import LEAST, job_of, task_of, text_of
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import kubernetes_1_20 as target


def objects(text: str) -> list[Any]:
    return list(yaml.safe_load_all(target.render(task_of(text))))


def jobs(text: str) -> list[Any]:
    return [each for each in objects(text) if each["kind"] == "Job"]


def test_each_node_is_a_job_whose_pod_has_a_name_in_the_service() -> None:
    (service,) = [each for each in objects(text_of("ddp")) if each["kind"] == "Service"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    matches = jobs(text_of("ddp"))
    assert [job["metadata"]["name"] for job in matches] == ["mnist-0", "mnist-1", "mnist-2", "mnist-3"]
    for job in matches:
        pod = job["spec"]["template"]
        assert pod["spec"]["hostname"] == job["metadata"]["name"]
        assert pod["spec"]["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_the_service_finds_the_pods_also_by_a_label_of_the_users() -> None:
    matches = objects(LEAST + "nodes: 2\nlabels: {app.kubernetes.io/name: vision}")
    assert matches[0]["spec"]["selector"] == {"app.kubernetes.io/name": "vision"}


def test_one_node_is_a_plain_job() -> None:
    (job,) = objects(LEAST)
    assert job["metadata"]["name"] == "mnist"
    assert not {"hostname", "subdomain"} & set(job["spec"]["template"]["spec"])


def test_no_pod_restarts() -> None:
    assert {job["spec"]["backoffLimit"] for job in jobs(text_of("ddp"))} == {0}
    ((place, _),) = unsupported_keys(job_of(LEAST + "restarts: 2"), target)
    assert place == ("restarts",)
    assert unsupported_keys(job_of(LEAST + "elastic: 1:2\nrestarts: 2"), target) == []


@pytest.mark.parametrize(("more", "characters"), [("", 63), ("nodes: 10", 61), ("nodes: 11", 60)])
def test_a_name_too_long_for_a_pods_host_is_refused(more: str, characters: int) -> None:
    assert not unsupported_keys(job_of(LEAST.replace("mnist", "m" * characters) + more), target)
    if characters < 63:
        assert unsupported_keys(job_of(LEAST.replace("mnist", "m" * (characters + 1)) + more), target)
