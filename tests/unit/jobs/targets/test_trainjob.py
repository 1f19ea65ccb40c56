"""Properties of a TrainJob besides its contract."""

from typing import Any

import pytest
import yaml

from tests.unit.jobs.cases import CASES, LEAST, job_of, task_of, text_of
from tests.unit.jobs.pods import pods_of, variables_of
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import trainjob

# Variables of Trainer, which a manifest must not set too.
TRAINERS = {"NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "ELASTIC"}


def objects(text: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(trainjob.render(task_of(text)))}


def test_variables_that_trainer_sets_or_refuses_are_not_written() -> None:
    for case in CASES:
        (pod,) = pods_of(trainjob.render(task_of(text_of(case))))
        names = set(variables_of(pod))
        assert "MODE" in names, case
        assert TRAINERS.isdisjoint(names), case
        assert not [name for name in names if name.startswith("PET_")], case


def test_the_runtime_is_of_the_jobs_namespace_and_counts_nothing() -> None:
    matches = objects(text_of("ddp"))
    assert matches["TrainJob"]["spec"]["trainer"] == {"numNodes": 4, "numProcPerNode": 2}
    (node,) = matches["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
    assert not {"completions", "parallelism"} & set(node["template"]["spec"])


def test_each_gpu_has_a_process_where_it_is_auto() -> None:
    text = LEAST.replace("8Gi}", "8Gi, gpu: 4}") + "processes: auto\n"
    assert unsupported_keys(job_of(text), trainjob) == []
    assert objects(text)["TrainJob"]["spec"]["trainer"]["numProcPerNode"] == 4


@pytest.mark.parametrize(
    ("more", "key"), [("elastic: 1:2", "elastic"), ("processes: auto", "processes"), ("port: 5000", "port")]
)
def test_what_trainer_decides_by_itself_is_refused(more: str, key: str) -> None:
    ((place, _),) = unsupported_keys(job_of(LEAST + more), trainjob)
    assert place == (key,)
    assert unsupported_keys(job_of(LEAST + "processes: 2\nport: 29500"), trainjob) == []


def test_on_a_runtime_of_the_cluster_the_job_brings_the_rest() -> None:
    matches = objects(text_of("runtime"))
    assert set(matches) == {"ConfigMap", "TrainJob"}
    spec = matches["TrainJob"]["spec"]
    assert spec["runtimeRef"] == {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    assert spec["activeDeadlineSeconds"] == 86400
    assert (spec["trainer"]["args"], spec["trainer"]["numNodes"]) == (["run", "train.py"], 2)
    assert spec["trainer"]["resourcesPerNode"]["limits"] == {"cpu": "4", "memory": "8Gi"}
    (patched,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = patched["template"]["spec"]["template"]
    pod = template["spec"]
    assert template["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "torchbake"
    assert {"securityContext", "terminationGracePeriodSeconds"} <= set(pod)
    assert "securityContext" in pod["containers"][0]
    (container,) = pod["containers"]
    assert (patched["name"], container["name"]) == ("node", "node")
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp", "/dev/shm", "/job", "/data"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["nodeSelector"] == {"zone": "a"}


def test_an_existing_runtime_is_patched_with_each_key_of_the_pod() -> None:
    more = "pullSecrets: [a]\nserviceAccount: b\ntolerations: [{key: c, operator: Exists}]\n"
    more += "affinity: {nodeAffinity: {d: []}}\n"
    spec = objects(text_of("runtime") + more)["TrainJob"]["spec"]
    (patched,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = patched["template"]["spec"]["template"]["spec"]
    assert (pod["imagePullSecrets"], pod["serviceAccountName"]) == ([{"name": "a"}], "b")
    assert (pod["tolerations"], pod["affinity"]) == ([{"key": "c", "operator": "Exists"}], {"nodeAffinity": {"d": []}})


def test_what_a_runtime_of_the_cluster_decides_is_refused() -> None:
    there = LEAST + "trainjob: {runtimeRef: {name: torch-distributed}}\n"
    for line in ("workdir: /a", "restarts: 1", "priority: a", "gang: {}"):
        ((place, _),) = unsupported_keys(job_of(there + line), trainjob)
        assert place == (line.partition(":")[0],)
        assert unsupported_keys(job_of(LEAST + line), trainjob) == []


def test_a_gang_names_one_scheduler() -> None:
    for line, policy in (
        ("gang: {}", {"coscheduling": {}}),
        ("gang: {scheduleTimeoutSeconds: 5}", {"coscheduling": {"scheduleTimeoutSeconds": 5}}),
        ("gang: {scheduler: volcano}", {"volcano": {}}),
    ):
        assert objects(LEAST + line)["TrainingRuntime"]["spec"]["podGroupPolicy"] == policy
    both = unsupported_keys(job_of(LEAST + "gang: {scheduler: volcano, scheduleTimeoutSeconds: 5}"), trainjob)
    assert [place for place, _ in both] == [("gang", "scheduleTimeoutSeconds")]
