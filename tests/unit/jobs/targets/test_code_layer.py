"""`files.layer`: the code is in the image, so a manifest names the image alone and mounts nothing."""

import dataclasses

import pytest

from tests.unit.jobs.cases import LEAST, task_of, text_of
from tests.unit.jobs.launchers import LAUNCHERS, srun_of
from torchbake.errors import JobError
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import TARGETS
from torchbake.jobs.task import SplitImage, Task, workdir_of

# A host has no image, so it cannot have the layer either.
WITH_IMAGE = sorted({*TARGETS} - {"torchrun"})
IMAGE = f"registry.example.com/team/pytorch:code-0123456789ab@sha256:{'a' * 64}"


def layer_task(more: str = "") -> Task:
    return dataclasses.replace(task_of(LEAST + "files: {layer: src}\n" + more), image=IMAGE)


@pytest.mark.parametrize("target", WITH_IMAGE)
def test_each_node_finds_the_code_of_the_image(target: str) -> None:
    task = layer_task("nodes: 2\n")
    assert unsupported_keys(task.job, TARGETS[target]) == []
    envs = LAUNCHERS[target](TARGETS[target].render(task), task)
    assert [env["JOB_DIR"] for env in envs] == ["/job", "/job"]


@pytest.mark.parametrize("target", WITH_IMAGE)
def test_a_manifest_has_the_image_and_no_files(target: str) -> None:
    text = TARGETS[target].render(layer_task())
    assert IMAGE.rpartition("@")[2] in text
    without = TARGETS[target].render(dataclasses.replace(task_of(LEAST), image=IMAGE))
    # Against a job whose script is in the image, the only difference is the variable for `run`.
    more = "\n".join(sorted(set(text.splitlines()) - set(without.splitlines())))
    assert "src" not in more
    assert "mount" not in more.lower().replace("--no-mount", "")
    assert "ConfigMap" not in text
    assert "job-files" not in text


def test_apptainer_mounts_the_code_and_keeps_the_image_below() -> None:
    split = SplitImage(base=f"h/p:cpu@sha256:{'b' * 64}", code=f"h/p:code@sha256:{'c' * 64}")
    task = dataclasses.replace(layer_task("nodes: 2\n"), split=split)
    text = TARGETS["slurm"].render(task)
    assert [env["JOB_DIR"] for env in LAUNCHERS["slurm"](text, task)] == ["/job", "/job"]
    (mount,) = [word for word in srun_of(text) if word.startswith("type=bind")]
    assert mount.endswith(",destination=/job,image-src=/,ro")
    names = {f"docker://h/p@sha256:{letter * 64}" for letter in "bc"}
    assert {word for word in text.split() if word.startswith("docker://")} == names
    assert unsupported_keys(task.job, TARGETS["slurm"]) == []


def test_a_choice_of_files_is_of_the_layer_under_every_launcher() -> None:
    job = task_of(text_of("layer")).job
    for target in WITH_IMAGE:
        assert unsupported_keys(job, TARGETS[target]) == [], target


def test_bare_hosts_and_images_in_files_have_no_layer() -> None:
    for target, more in (("torchrun", ""), ("slurm", "slurm: {image: /a.sif}\n")):
        places = [place for place, _ in unsupported_keys(layer_task(more).job, TARGETS[target])]
        assert ("files", "layer") in places, target


def test_a_relative_working_folder_is_in_the_layer() -> None:
    assert workdir_of(layer_task("workdir: sub\n").job) == "/job/sub"
    command = LEAST.replace("script: train.py", "command: ls")
    assert workdir_of(task_of(command + "files: {layer: .}\n").job) == "/job"


@pytest.mark.parametrize("other", ["folder: .", "configMap: x", "git: {repository: 'https://example.com/x'}"])
def test_a_layer_is_the_only_source_of_files(other: str) -> None:
    with pytest.raises(JobError, match="names several sources"):
        task_of(LEAST + f"files: {{layer: ., {other}}}\n")


def test_a_layer_and_a_repository_of_a_secret_are_two_sources() -> None:
    with pytest.raises(JobError, match="second source of files"):
        layer_task("secrets: {GIT_REPOSITORY: {secret: a, key: b}}\n")
