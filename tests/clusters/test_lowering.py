"""Changes of manifests for an old Kubernetes and for podman, and fields that must not be dropped."""

from typing import Any

import pytest
import yaml

from tests.clusters.lowering import INDEX, lowered
from tests.clusters.pods import pods


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


def for_podman(pod: dict[str, Any], *more: dict[str, Any], **spec: Any) -> str:
    whole = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 9, **spec}
    job = {"kind": "Job", "metadata": {"name": "a"}, "spec": {**whole, "template": {"metadata": {}, "spec": pod}}}
    service = {"kind": "Service", "metadata": {"name": "b"}, "spec": {"clusterIP": "None"}}
    files = {"kind": "ConfigMap", "metadata": {"name": "f"}}
    return yaml.safe_dump_all([files, service, job, *more])


def pod_spec(**more: Any) -> dict[str, Any]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "files", "mountPath": "/job"}]
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "files", "configMap": {"name": "f"}}]
    container = {"name": "c", "env": [{"name": "A"}], "volumeMounts": mounts, "securityContext": {"a": 1}}
    return {"subdomain": "b", "containers": [container], "volumes": volumes, **more}


def test_an_indexed_job_becomes_a_pod_for_each_index() -> None:
    first, second = pods(for_podman(pod_spec(securityContext={"runAsUser": 1001}), podFailurePolicy={}))
    assert (first.name, first.alias) == ("a-0", "a-0.b")
    assert (second.name, second.alias, second.container) == ("a-1", "a-1.b", "a-1-c")
    files, pod = yaml.safe_load_all(second.text)
    assert files == {"kind": "ConfigMap", "metadata": {"name": "f"}}
    assert (pod["apiVersion"], pod["kind"], pod["metadata"]["name"]) == ("v1", "Pod", "a-1")
    assert pod["metadata"]["labels"] == {INDEX: "1", "job-name": "a"}
    spec, (container,) = pod["spec"], pod["spec"].pop("containers")
    mounts = [{"name": "tmp-1", "mountPath": "/tmp"}, {"name": "files", "mountPath": "/job"}]
    assert container == {
        "name": "c", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "1"}, {"name": "A"}], "volumeMounts": mounts,
        "securityContext": {"a": 1},
    }  # fmt: skip
    assert spec == {
        "hostname": "a-1", "subdomain": "b", "securityContext": {"runAsUser": 1001},
        "volumes": [{"name": "tmp-1", "emptyDir": {}}, {"name": "files", "configMap": {"name": "f"}}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        (for_podman(pod_spec(), completionMode="NonIndexed"), "Indexed"),
        (for_podman(pod_spec(), parallelism=1), "at one time"),
        (for_podman(pod_spec(), activeDeadlineSeconds=1), "activeDeadlineSeconds"),
        (for_podman(pod_spec(nodeSelector={})), "nodeSelector"),
        (for_podman(pod_spec(), {"kind": "NetworkPolicy", "metadata": {"name": "n"}}), "NetworkPolicy"),
        (for_podman(pod_spec(), {"kind": "Service", "metadata": {}, "spec": {"type": "NodePort"}}), "headless"),
    ],
)
def test_what_podman_would_lose_is_refused(manifest: str, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        pods(manifest)
