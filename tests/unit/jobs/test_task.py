"""The variables and values that all targets share."""

import pytest

from tests.unit.jobs.cases import LEAST, job_of, task_of, text_of
from torchbake.jobs.targets import TARGETS
from torchbake.jobs.task import claim_of, elastic, grace_of, in_container, master, shm_of, variables, workdir_of


@pytest.mark.parametrize(
    ("resources", "size"),
    [("{}", "2Gi"), ("{memory: 8Gi}", "4096Mi"), ("{memory: 8Gi, shm: 1Gi}", "1Gi"), ("{memory: 1Mi}", "1Mi")],
)
def test_shared_memory_is_half_of_the_memory_by_default(resources: str, size: str) -> None:
    assert shm_of(job_of(f"name: a\nimage: b\nscript: c\nresources: {resources}")) == size


def test_claims_without_a_name_are_told_apart() -> None:
    volumes = "volumes: [{size: 1Gi, mountPath: /a}, {claim: x, mountPath: /b}, {size: 1Gi, mountPath: /c}]"
    job = job_of(LEAST + volumes)
    assert [claim_of(job, volume) for volume in job.volumes] == ["mnist-data", "x", "mnist-data-2"]


def test_a_standalone_job_is_told_nothing_of_a_group() -> None:
    job = job_of(text_of("standalone"))
    assert variables(job) == {"MODE": "standalone", "STOP_GRACE": "30", "JOB_DIR": "/job"}
    assert master(job, "x") == {}


def test_nodes_of_an_elastic_command_meet_under_the_jobs_name() -> None:
    job = job_of(text_of("torchrun-elastic"))
    assert elastic(job) == {
        "NNODES": "2:3", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "mnist", "PET_MAX_RESTARTS": "3",
    }  # fmt: skip
    assert master(job, "node-0") == {"PET_RDZV_ENDPOINT": "node-0:49875"}


def test_a_node_that_is_alone_finds_itself() -> None:
    assert master(job_of(text_of("one-node")), "node-0") == {"MASTER_PORT": "49875"}
    alone = text_of("torchrun-elastic").replace("elastic: 2:3", "elastic: 1:1")
    assert master(job_of(alone), "node-0") == {"PET_RDZV_ENDPOINT": "127.0.0.1:49875"}


def test_a_launcher_waits_longer_than_the_script_may_save() -> None:
    assert grace_of(task_of(text_of("everything")).job) > 60


def test_a_job_without_gpus_sees_none() -> None:
    void = {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert void.items() <= in_container(job_of(LEAST)).items()
    assert "NVIDIA_VISIBLE_DEVICES" not in in_container(job_of(text_of("gpus")))
    own = in_container(job_of(LEAST + "env: {NVIDIA_VISIBLE_DEVICES: all}"))
    assert own["NVIDIA_VISIBLE_DEVICES"] == "all"


def test_every_target_with_containers_hides_gpus() -> None:
    for name, target in TARGETS.items():
        hidden = "NVIDIA_VISIBLE_DEVICES" in target.render(task_of(LEAST))
        assert hidden is (name not in ("torchrun", "openpai", "openpai-v1", "helm")), name
        assert "NVIDIA_VISIBLE_DEVICES" not in target.render(task_of(text_of("gpus"))), name


def test_a_program_starts_in_the_folder_that_the_job_names() -> None:
    command = LEAST.replace("script: train.py", "command: ls")
    for text, folder in (
        (LEAST, ""),
        (LEAST + "files: {folder: .}", ""),
        (command, ""),
        (command + "files: {configMap: a}", "/job"),
        (command + "files: {folder: .}\nworkdir: a/b", "/job/a/b"),
        (LEAST + "files: {folder: .}\nworkdir: a", "/job/a"),
        (LEAST + "files: {folder: .}\nworkdir: /data", "/data"),
    ):
        assert workdir_of(job_of(text)) == folder, text
