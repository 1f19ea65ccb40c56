"""The output of kubectl about a Job and its pods is read as the state of the job, and as the script's exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.jobs.cases import task_of, text_of
from torchbake.jobs.expressible import Target
from torchbake.jobs.launchers.kubernetes import KubernetesLauncher
from torchbake.jobs.targets import TARGETS, kubernetes

OLD = TARGETS["kubernetes-1.20"]


def launcher(case: str = "ddp", target: Target = kubernetes) -> KubernetesLauncher:
    task = task_of(text_of(case))
    return KubernetesLauncher(task, Path("/tmp/x/mnist"), target.render(task))


def job(end: str = "", reason: str = "", name: str = "mnist") -> dict[str, Any]:
    conditions = [{"type": end, "status": "True", "reason": reason}] if end else []
    return {"kind": "Job", "metadata": {"name": name}, "status": {"conditions": conditions}}


def pod(
    index: int, *states: dict[str, Any], of: str = "mnist", init: dict[str, Any] | None = None, text: str = "T0"
) -> dict[str, Any]:
    metadata = {
        "name": f"{of}-{index}-x1y2z", "labels": {"job-name": of}, "creationTimestamp": text,
        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
    }  # fmt: skip
    status: dict[str, Any] = {"containerStatuses": [{"name": "pytorch", "state": state} for state in states]}
    if init:
        status["initContainerStatuses"] = [{"name": "volume-permissions", "state": init}]
    return {"kind": "Pod", "metadata": metadata, "status": status}


def going(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "T9"}}


def end_of(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": "why"}}


RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def output(*items: dict[str, Any]) -> str:
    return json.dumps({"items": items})


def test_it_ends_as_the_cluster_says_with_the_code_of_the_script() -> None:
    for items, code in (
        ((), None),
        ((job(), pod(0, RUNNING)), None),
        ((job(), pod(0, end_of(3)), pod(1, RUNNING)), None),  # the cluster has not judged it yet
        ((job("SuccessCriteriaMet"), pod(0, end_of(0))), None),
        ((job("Complete"), pod(0, end_of(0))), 0),
        ((job("Failed"), pod(0, end_of(143)), pod(1, end_of(7)), pod(2, end_of(9))), 7),
        ((job("Failed"), pod(0, end_of(137))), 137),
        ((job("Failed"), pod(0, waiting("PodInitializing"), init=end_of(4))), 4),
        ((job("Failed", "DeadlineExceeded"), pod(0, end_of(143))), 124),
        ((job("Failed"),), 1),
        ((job("Failed"), pod(0, end_of(5), of="other")), 1),  # of another job with the same label
        ((job("Complete", name="other"), pod(0, RUNNING)), None),
        ((job("Failed"), pod(0, RUNNING), pod(1, end_of(7))), None),  # it may know better
        ((job("Failed"), going(pod(0, RUNNING)), pod(1, end_of(7))), 7),
        (
            (job("Failed"), pod(0, end_of(5), text="T2"), pod(0, end_of(89), text="T3"), pod(0, end_of(4), text="T1")),
            89,
        ),
    ):
        assert launcher().read(0, output(*items)).code == code, (items, code)


def of_nodes(*nodes: tuple[str, dict[str, Any]]) -> str:
    """Jobs of a pod each, the last first: how each ended, and its container's state."""
    names = [f"mnist-{number}" for number in range(len(nodes))]
    pods = [pod(0, state, of=name) for name, (_, state) in zip(names, nodes, strict=True)]
    for each in pods:
        del each["metadata"]["annotations"]
    jobs = [job(end, name=name) for name, (end, _) in zip(names, nodes, strict=True)]
    return output(*reversed([*jobs, *pods]))


FINAL, FAILED = ("Complete", end_of(0)), "Failed"


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ((FINAL, FINAL, FINAL, FINAL), 0),
        ((FINAL, FINAL, FINAL, ("", RUNNING)), None),
        ((("", RUNNING), FINAL, FINAL, (FAILED, end_of(7))), None),
        (((FAILED, end_of(9)), (FAILED, end_of(7)), (FAILED, end_of(7)), (FAILED, end_of(7))), 9),
        (((FAILED, end_of(137)), (FAILED, end_of(84)), (FAILED, end_of(84)), (FAILED, end_of(84))), 84),
        ((("", waiting("ImagePullBackOff")), *[(FAILED, end_of(83))] * 3), 83),
    ],
)
def test_jobs_of_a_pod_each_end_together(nodes: tuple[tuple[str, dict[str, Any]], ...], code: int | None) -> None:
    assert launcher("ddp", OLD).read(0, of_nodes(*nodes)).code == code


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ((("", RUNNING), (FAILED, end_of(7)), ("", RUNNING)), None),
        ((FINAL, (FAILED, end_of(7)), ("", RUNNING)), 0),
        (((FAILED, end_of(9)), (FAILED, end_of(7)), ("", RUNNING)), 9),
    ],
)
def test_an_elastic_job_of_them_ends_as_its_node_0_ends(
    nodes: tuple[tuple[str, dict[str, Any]], ...], code: int | None
) -> None:
    assert launcher("elastic", OLD).read(0, of_nodes(*nodes)).code == code


def test_each_pod_that_has_begun_is_followed_by_its_name() -> None:
    items = (
        job(),
        pod(0, RUNNING),
        pod(1, waiting("ContainerCreating")),
        pod(2, end_of(0)),
        pod(0, RUNNING, of="other"),
    )
    status = launcher().read(0, output(*items))
    assert [(stream.name, stream.running) for stream in status.streams] == [
        ("mnist-0-x1y2z/pytorch", True),
        ("mnist-2-x1y2z/pytorch", False),
    ]
    assert all("--prefix" in stream.command for stream in status.streams)
    assert "--prefix" not in launcher("standalone").read(0, output(job(), pod(0, RUNNING))).streams[0].command
    failed = launcher().read(0, output(job(), pod(0, waiting("PodInitializing"), init=end_of(4))))
    assert [stream.name for stream in failed.streams] == ["mnist-0-x1y2z/volume-permissions"]


def test_reasons_of_a_waiting_pod_are_shown_but_not_normal_ones() -> None:
    items = (job(), pod(0, waiting("ImagePullBackOff")), pod(1, waiting("ContainerCreating")))
    assert list(launcher().read(0, output(*items)).notes) == ["mnist-0-x1y2z: ImagePullBackOff: why"]
    nowhere = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    unplaced = {"kind": "Pod", "metadata": {"name": "p", "labels": {"job-name": "mnist"}},
                "status": {"conditions": [nowhere]}}  # fmt: skip
    assert list(launcher().read(0, output(job(), unplaced)).notes) == ["p: Unschedulable: no node"]


def test_all_goes_but_claims() -> None:
    (delete,) = launcher("everything").cancel()
    assert {"configmap/mnist-files", "service/mnist", "job/mnist"} < set(delete)
    assert not [word for word in delete if "persistentvolumeclaim" in word]


def test_a_job_of_the_name_is_not_taken_over() -> None:
    (check,) = launcher().checks()
    assert "job/mnist" in check.command
    assert check.refuse("") == ""
    assert check.refuse("job.batch/mnist\n").endswith("kubectl delete job/mnist")


def test_the_jobs_own_label_is_looked_for() -> None:
    assert "app.kubernetes.io/name=mnist" in launcher().looks()[0]
