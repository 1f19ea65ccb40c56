"""Every manifest is one that Kubernetes takes, by its own schemas, and what is not is told by its place."""

import sys

import pytest
import yaml

from tests.unit.jobs.cases import CASES, task_of, text_of
from torchbake.errors import InstallError, JobError
from torchbake.jobs.kubernetes_schema import check_manifest
from torchbake.jobs.targets import TARGETS

MANIFESTS = {case: TARGETS["kubernetes"].render(task_of(text_of(case))) for case in CASES}
ELASTIC = "1.31"  # the first with success policies on by default


@pytest.mark.parametrize("case", CASES)
def test_the_newest_kubernetes_takes_it(case: str) -> None:
    assert check_manifest(MANIFESTS[case]) >= "1.37"


@pytest.mark.parametrize("case", CASES)
def test_older_ones_take_it_too(case: str) -> None:
    version = ELASTIC if case == "elastic" else "1.28"
    assert check_manifest(MANIFESTS[case], version) == version


@pytest.mark.parametrize("case", CASES)
def test_the_pods_of_a_pytorchjob_are_pods_of_kubernetes(case: str) -> None:
    """The operator's own kinds have no schema here; what it hands to Kubernetes has one."""
    *others, job = yaml.safe_load_all(TARGETS["pytorchjob"].render(task_of(text_of(case))))
    replicas = job["spec"]["pytorchReplicaSpecs"].values()
    pods = [{"apiVersion": "v1", "kind": "Pod", **replica["template"]} for replica in replicas]
    named = [pod | {"metadata": pod["metadata"] | {"name": "pod"}} for pod in pods]
    assert named
    check_manifest(yaml.safe_dump_all([*others, *named]))


def test_a_key_that_it_does_not_know_is_told_with_its_place() -> None:
    wrong = MANIFESTS["standalone"].replace("backoffLimit: 3", "backofLimit: 3")
    with pytest.raises(JobError, match=r"Job mnist: spec: Kubernetes 1[.0-9]+ does not take this: .*backofLimit"):
        check_manifest(wrong)


def test_a_value_of_another_type_is_told_with_its_place() -> None:
    wrong = MANIFESTS["ddp"].replace("completions: 4", "completions: four")
    with pytest.raises(JobError, match=r"Job mnist: spec\.completions: "):
        check_manifest(wrong)


def test_a_kind_without_a_schema_is_an_error_and_no_pass() -> None:
    with pytest.raises(JobError, match="PyTorchJob"):
        check_manifest("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\n")


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_validate", None)
    with pytest.raises(InstallError) as caught:
        check_manifest(MANIFESTS["standalone"])
    assert "torchbake[jobs]" in caught.value.sentence
