"""Properties of a JobSet, and of the names and privileges of pods in all targets of Kubernetes."""

from typing import Any

import yaml

from tests.unit.jobs.cases import CASES, LEAST, job_of, task_of, text_of
from tests.unit.jobs.pods import pods_of
from tests.unit.jobs.targets.test_kubernetes import POWERFUL, unrestricted
from torchbake.jobs.expressible import OfKubernetes, unsupported_keys
from torchbake.jobs.targets import TARGETS, jobset, kubernetes

OF_KUBERNETES = [name for name, target in TARGETS.items() if isinstance(target, OfKubernetes)]


def job_spec(manifest: str) -> Any:
    """Return the spec of the Job, without its pods."""
    *_, actual = yaml.safe_load_all(manifest)
    if actual["kind"] == "JobSet":
        (replicated,) = actual["spec"]["replicatedJobs"]
        actual = replicated["template"]
    return {key: value for key, value in actual["spec"].items() if key != "template"}


def test_its_job_ends_and_restarts_as_a_job_of_kubernetes_does() -> None:
    for case in {*CASES} - {"standalone", "one-node"}:
        task = task_of(text_of(case))
        assert job_spec(jobset.render(task)) == job_spec(kubernetes.render(task)), case


def test_pods_have_names_before_they_are_ready() -> None:
    (value,) = yaml.safe_load_all(jobset.render(task_of(text_of("ddp"))))
    assert value["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}


def test_the_targets_of_kubernetes_kind_are_known() -> None:
    assert OF_KUBERNETES == ["kubernetes", "kubernetes-1.20", "jobset", "leaderworkerset", "pytorchjob", "trainjob"]


def test_pods_pass_pod_security_restricted() -> None:
    for target in OF_KUBERNETES:
        for case in {*CASES} - POWERFUL:
            matches = pods_of(TARGETS[target].render(task_of(text_of(case))))
            assert matches, (target, case)
            assert [problem for pod in matches for problem in unrestricted(pod)] == [], (target, case)


def test_exit_codes_are_those_of_the_pods_own_container() -> None:
    """Kubernetes ignores rules for a container that does not exist."""
    for target in ("kubernetes", "jobset", "trainjob"):
        manifest = TARGETS[target].render(task_of(text_of("ddp")))
        (pod,) = pods_of(manifest)
        (container,) = pod["containers"]
        assert manifest.count("containerName:") == manifest.count(f"containerName: {container['name']}\n") == 1, target


def test_a_name_that_no_service_can_have_is_refused() -> None:
    digit = job_of(LEAST.replace("mnist", "3d-unet") + "nodes: 2\n")
    for target in OF_KUBERNETES:
        assert [place for place, _ in unsupported_keys(digit, TARGETS[target])] == [("name",)], target


def test_a_name_too_long_for_a_jobsets_pods_is_refused() -> None:
    """kubernetes-sigs/jobset: pkg/webhooks/jobset_webhook.go adds five letters to the longest name."""
    for nodes, end in ((1, "-node-0-0-abcde"), (11, "-node-0-10-abcde")):
        fits, too_long = (LEAST.replace("mnist", "m" * (63 - len(end) + more)) + f"nodes: {nodes}\n" for more in (0, 1))
        for target in ("jobset", "trainjob"):
            assert unsupported_keys(job_of(fits), TARGETS[target]) == []
            assert unsupported_keys(job_of(too_long), TARGETS[target])


def uids(manifest: str) -> set[str]:
    keys = ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy")
    return {key for pod in pods_of(manifest) for key in keys if key in pod["securityContext"]}


def test_an_account_of_the_cluster_names_no_uid() -> None:
    for target in (*OF_KUBERNETES, "helm"):
        assert unsupported_keys(job_of(LEAST + "account: cluster"), TARGETS[target]) == []
        text = TARGETS[target].render(task_of(LEAST + "account: cluster"))
        assert "1001" not in text, target
        if target != "helm":
            assert uids(text) == set()
            assert [problem for pod in pods_of(text) for problem in unrestricted(pod)] == []
            assert len(uids(TARGETS[target].render(task_of(LEAST)))) == 4


def test_a_queue_is_of_the_object_that_kueue_admits_alone() -> None:
    for target in ("kubernetes", "jobset", "leaderworkerset", "pytorchjob", "trainjob"):
        *rest, admitted = yaml.safe_load_all(TARGETS[target].render(task_of(LEAST + "queue: team-a\nnodes: 2\n")))
        assert admitted["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name") == "team-a"
        assert "queue-name" not in str([*rest, admitted])


def test_a_command_asks_no_probe_and_gets_no_variable_of_run() -> None:
    """A foreign image gets no /tmp, and its manifest sets no user."""
    for target in OF_KUBERNETES:
        manifest = TARGETS[target].render(task_of(text_of("torchrun")))
        assert 'Pod Security "restricted" would refuse this' in manifest
        for pod in pods_of(manifest):
            (container,) = pod["containers"]
            mounted, volumes = ({each["name"] for each in part} for part in (container["volumeMounts"], pod["volumes"]))
            assert mounted == volumes, target
            assert "/tmp" not in {mount["mountPath"] for mount in container["volumeMounts"]}
            assert "readinessProbe" not in container
            assert container["workingDir"] == "/job"
            names = {each["name"] for each in container["env"]}
            assert all(name.startswith("PET_") or name == "NVIDIA_VISIBLE_DEVICES" for name in names), names


def test_operators_of_kubeflow_know_their_managers() -> None:
    for target, own in (
        ("pytorchjob", "kubeflow.org/training-operator"),
        ("trainjob", "trainer.kubeflow.org/trainjob-controller"),
    ):
        for manager in ("kueue.x-k8s.io/multikueue", own):
            assert unsupported_keys(job_of(LEAST + f"managedBy: {manager}"), TARGETS[target]) == []
        ((place, _),) = unsupported_keys(job_of(LEAST + "managedBy: example.com/mine"), TARGETS[target])
        assert place == ("managedBy",)
