"""Every manifest matches the schemas of Kubernetes and of operators, and an error names its place."""

import json
import sys
from functools import cache
from typing import Any

import pytest
import yaml

from tests.unit.jobs.cases import ALL_CASES, CASES, task_of, text_of, written_by_libyaml
from tests.unit.jobs.schemas import check_manifest
from torchbake.errors import InstallError, JobError
from torchbake.jobs.kubernetes_schema import OLDEST
from torchbake.jobs.targets import TARGETS


@cache
def manifest_of(target: str, case: str) -> str:
    with written_by_libyaml():
        return TARGETS[target].render(task_of(text_of(case)))


ELASTIC = "1.31"  # the first with success policies on by default


def test_the_newest_kubernetes_and_older_ones_take_a_job() -> None:
    for case in CASES:
        assert check_manifest(manifest_of("kubernetes", case)) >= "Kubernetes 1.37", case
        version = ELASTIC if case == "elastic" else "1.28"
        assert check_manifest(manifest_of("kubernetes", case), version) == f"Kubernetes {version}", case


def test_one_job_a_node_has_only_keys_of_kubernetes_1_20() -> None:
    for case in CASES:
        manifest = manifest_of("kubernetes-1.20", case)
        assert check_manifest(manifest, OLDEST) == "Kubernetes 1.25.0", case  # the package has no older one
        check_manifest(manifest)
        specs = [each["spec"] for each in yaml.safe_load_all(manifest) if each["kind"] == "Job"]
        assert specs, case
        assert {key for spec in specs for key in spec} <= {"backoffLimit", "activeDeadlineSeconds", "template"}, case


def handed_on(manifest: str) -> list[Any]:
    """Return the objects for Kubernetes, with the Jobs and pods that an operator creates."""
    objects = list[Any]()
    for each in yaml.safe_load_all(manifest):
        spec = each.get("spec", {})
        if each["kind"] == "PyTorchJob":
            templates = [replica["template"] for replica in spec["pytorchReplicaSpecs"].values()]
            objects += [{"apiVersion": "v1", "kind": "Pod", **template} for template in templates]
        elif each["kind"] in ("JobSet", "TrainingRuntime"):
            jobset = spec["template"]["spec"] if each["kind"] == "TrainingRuntime" else spec
            objects += [
                {"apiVersion": "batch/v1", "kind": "Job", **job["template"]} for job in jobset["replicatedJobs"]
            ]
        elif each["kind"] != "TrainJob":
            objects.append(each)
    return [each | {"metadata": {"name": "any"} | each["metadata"]} for each in objects]


def test_kubernetes_takes_the_objects_that_an_operator_makes() -> None:
    for target in ("pytorchjob", "jobset", "trainjob"):
        for case in CASES:
            objects = handed_on(manifest_of(target, case))
            assert {each["kind"] for each in objects} & {"Pod", "Job"}, (target, case)
            text = "\n---\n".join(map(json.dumps, objects))
            for version in ("", ELASTIC if case == "elastic" else "1.28"):
                check_manifest(text, version)


def test_commands_and_operators_fields_are_taken_too() -> None:
    for case in set(ALL_CASES) - set(CASES):
        for target in ("kubernetes", "kubernetes-1.20", "jobset", "pytorchjob", "trainjob"):
            assert check_manifest(manifest_of(target, case)), (case, target)


def test_a_leaderworkerset_and_its_pods_fit_their_schemas() -> None:
    for case in ALL_CASES:
        takers = check_manifest(manifest_of("leaderworkerset", case))
        assert {"LeaderWorkerSet v1", "Kubernetes"} == {
            taker.rpartition(" 1.")[0] or taker for taker in takers.split(" and ")
        }, case
    manifest = manifest_of("leaderworkerset", "ddp")
    for old, new, message in (
        ("size: 4", "sise: 4", r"leaderWorkerTemplate: LeaderWorkerSet v1 does not take this: .*sise"),
        ("restartPolicy: RecreateGroupOnPodRestart", "restartPolicy: Never", r"restartPolicy: LeaderWorkerSet v1"),
        ("enableServiceLinks:", "enableServiceLink:", r"Pod mnist: spec: Kubernetes .*enableServiceLink'"),
    ):
        assert old in manifest
        with pytest.raises(JobError, match=message):
            check_manifest(manifest.replace(old, new))


def test_a_key_that_it_does_not_know_is_told_with_its_place() -> None:
    wrong = manifest_of("kubernetes", "standalone").replace("backoffLimit: 3", "backofLimit: 3")
    with pytest.raises(JobError, match=r"Job mnist: spec: Kubernetes 1[.0-9]+ does not take this: .*backofLimit"):
        check_manifest(wrong)


def test_a_value_of_another_type_is_told_with_its_place() -> None:
    wrong = manifest_of("kubernetes", "ddp").replace("completions: 4", "completions: four")
    with pytest.raises(JobError, match=r"Job mnist: spec\.completions: "):
        check_manifest(wrong)


OPERATORS = {
    "jobset": "kubeflow-trainer-api 2.",
    "trainjob": "kubeflow-trainer-api 2.",
    "pytorchjob": "kubeflow-training 1.9",
}


def test_objects_of_operators_are_checked_by_their_models() -> None:
    for case in CASES:
        for target, package in OPERATORS.items():
            takers = check_manifest(manifest_of(target, case)).split(" and ")
            assert takers[-1].startswith(package), (target, case)
            others = ["Kubernetes"] if case in ("standalone", "everything") else []  # these have a ConfigMap
            assert [taker.split()[0] for taker in takers[:-1]] == others, (target, case)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "restartPolicy:",
            "restartpolicy:",
            r"PyTorchJob mnist: spec\..*\.Master\.restartpolicy: .* does not know this",
        ),
        ("replicas: 3", "replicas: three", r"PyTorchJob mnist: kubeflow-training does not take this: .*three"),
        ("replicas: 3", "replicas: '3'", r"PyTorchJob mnist: spec\.pytorchReplicaSpecs\.Worker\.replicas: "),
        ("runPolicy:", "runpolicy:", r"PyTorchJob mnist: kubeflow-training does not take this: .*run_policy"),
    ],
)
def test_what_the_training_operator_does_not_know_is_told(old: str, new: str, message: str) -> None:
    manifest = manifest_of("pytorchjob", "ddp")
    assert old in manifest
    with pytest.raises(JobError, match=message):
        check_manifest(manifest.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "replicas: 1",
            "replicsa: 1",
            r"JobSet mnist: spec\.replicatedJobs\.0\.replicsa: kubeflow-.* does not know this",
        ),
        ("replicas: 1", "replicas: one", r"JobSet mnist: .*replicas: kubeflow-.* does not take this: .*integer"),
        ("backoffLimit: 12", "backofLimit: 12", r"JobSet mnist: .*\.spec\.backofLimit: .* does not know this"),
    ],
)
def test_what_an_operator_does_not_know_is_told_with_its_place(old: str, new: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        check_manifest(manifest_of("jobset", "ddp").replace(old, new))


def test_a_kind_without_a_schema_is_an_error_and_no_pass() -> None:
    with pytest.raises(JobError, match="MPIJob"):
        check_manifest("apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: a}\n")


@pytest.mark.parametrize(
    ("package", "target"),
    [
        ("kubernetes_validate", "kubernetes"),
        ("kubeflow_trainer_api.models", "trainjob"),
        ("kubeflow.training.api_client", "pytorchjob"),
    ],
)
def test_without_the_package_it_says_how_to_get_it(package: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InstallError) as caught:
        check_manifest(manifest_of(target, "ddp"))
    assert "torchbake[jobs]" in caught.value.sentence
