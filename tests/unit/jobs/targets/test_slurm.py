"""Properties of a script for sbatch besides its contract: its options, and the image of each runtime."""

import re
from pathlib import Path
from typing import Any

import pytest

from entrypoints.pytorch.launch.contract import contract_of
from tests.job_scripts import HOSTILE, RUNTIMES
from tests.job_scripts import task_of as hostile
from tests.unit.jobs.cases import LEAST, job_of, task_of, text_of
from tests.unit.jobs.launchers import of_slurm, srun_of
from torchbake.core.paths import TOOLKIT
from torchbake.errors import JobError
from torchbake.jobs.expressible import impossible, unsupported_keys
from torchbake.jobs.targets import slurm
from torchbake.jobs.task import Task

PYXIS = "slurm: {runtime: pyxis}\n"
OCI = "slurm: {runtime: oci, image: /srv/bundle}\n"


def options(text: str) -> set[str]:
    """Return the options of #SBATCH, which sbatch reads up to the first line that is no comment."""
    lines = slurm.render(task_of(text)).splitlines()
    assert lines[0] == "#!/bin/bash"
    commands = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    assert not [line for line in lines[commands:] if line.startswith("#SBATCH")]
    return {line.removeprefix("#SBATCH --") for line in lines[:commands] if line.startswith("#SBATCH --")}


def srun(task: Task) -> list[str]:
    return srun_of(slurm.render(task))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("nodes: 2", {"nodes=2", "ntasks-per-node=1", "cpus-per-task=4", "mem=8192M", "requeue", "signal=TERM@45"}),
        ("timeouts: {job: 93784, stop: 100}", {"time=1-02:03:04", "signal=TERM@115"}),
        ("restarts: 0", {"no-requeue"}),
        ("elastic: 2:4", {"nodes=2-4", "no-kill", "no-requeue"}),
        ("labels: {team: vision, a.com/b: c}", {"comment=team=vision,a.com/b=c"}),
        ("slurm: {partition: 'a,b', account: c, qos: d, exclusive: true}", {"partition=a,b", "account=c", "qos=d"}),
        ("slurm: {constraint: '[a|b]&c*2', exclusive: true}", {'constraint="[a|b]&c*2"', "exclusive"}),
    ],
)
def test_options_of_sbatch(more: str, expected: set[str]) -> None:
    assert expected <= options(LEAST + more)


def test_our_entrypoint_starts_scripts_and_no_command() -> None:
    assert [
        case for case in ("ddp", "command", "torchrun") if "entrypoint" in " ".join(srun(task_of(text_of(case))))
    ] == ["ddp"]


def test_a_standalone_job_gets_no_variable_of_a_group() -> None:
    task = task_of(text_of("standalone"))
    (env,) = of_slurm(slurm.render(task), task)
    assert {"MODE", "STOP_GRACE"} <= set(env)
    assert {"NPROC_PER_NODE", "MASTER_PORT", "MASTER_ADDR"}.isdisjoint(env)


def test_gpus_are_counted_by_node() -> None:
    assert {"gpus-per-node=4", "cpus-per-task=8", "mem=65536M"} <= options(text_of("gpus"))
    assert "--nv" in srun(task_of(text_of("gpus")))
    assert "--nv" not in srun(task_of(text_of("ddp")))


@pytest.mark.parametrize(("stop", "seconds"), [(0, 45), (30, 45), (31, 46), (600, 615)])
def test_srun_gives_remaining_nodes_the_time_to_save(stop: int, seconds: int) -> None:
    words = srun(task_of(LEAST + f"timeouts: {{stop: {stop}}}"))
    assert {"--kill-on-bad-exit=0", f"--wait={seconds}"} <= set(words)
    assert "--no-kill" not in words


def test_a_node_that_leaves_an_elastic_job_ends_no_other() -> None:
    assert {"--kill-on-bad-exit=0", "--wait=0", "--no-kill"} <= set(srun(task_of(text_of("elastic"))))


def test_a_lost_node_restarts_the_job_up_to_the_limit() -> None:
    """Either Slurm notices the lost node, or `run` does, which is sooner."""
    script = slurm.render(task_of(LEAST + "restarts: 2"))
    assert '[ "${SLURM_RESTART_COUNT:-0}" -gt 2 ]' in script
    assert '[ "$code" -eq 89 ] && [ -z "$stopping" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 2 ]' in script
    assert script.endswith('exit "$code"\n')
    assert (
        slurm.render(task_of(text_of("torchrun"))).splitlines()[-1].startswith("exec srun ")
    )  # 89 is a code of the command
    for text in (LEAST + "restarts: 0", text_of("elastic")):
        never = slurm.render(task_of(text))
        assert "SLURM_RESTART_COUNT" not in never
        assert "scontrol" not in never
        assert never.splitlines()[-1].startswith("exec srun ")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_values_reach_the_script_as_they_are(runtime: str) -> None:
    task = hostile({"slurm": RUNTIMES[runtime]})
    words = srun(task)
    assert words[words.index("run") :] == ["run", *task.job.words[1:]]
    assert HOSTILE in words
    first, second = of_slurm(slurm.render(task), task)
    assert (first["ODD"], first["EMPTY"]) == (HOSTILE, "")
    contract = contract_of(second)
    assert (contract.nnodes, contract.node_rank, contract.master_addr) == (2, 1, "gpu01")


def test_nothing_of_the_users_shell_comes_in_but_what_is_named() -> None:
    words = srun(task_of(text_of("everything")))
    names = next(word for word in words if word.startswith("--export=")).partition("=")[2].split(",")
    assert {"HF_TOKEN", "JOB_TOKEN", "HF_HOME", "MASTER_PORT"} <= set(names)
    assert {"ALL", "PYTHONPATH", "LD_LIBRARY_PATH"}.isdisjoint(names)
    assert words[words.index("--no-mount") + 1] == "home,cwd"


def test_a_missing_secret_ends_the_script_which_holds_no_value() -> None:
    text = slurm.render(task_of(text_of("everything")))
    assert ': "${HF_TOKEN:?is the key token of the secret hub: export it before sbatch}"' in text
    assert "export HF_TOKEN" not in text


@pytest.mark.parametrize(
    ("image", "source", "file"),
    [
        ("team/pytorch:cpu", "docker://team/pytorch:cpu", "pytorch-cpu.sif"),
        ("h:5000/team/pytorch:a-r3", "docker://h:5000/team/pytorch:a-r3", "pytorch-a-r3.sif"),
        (f"h:5000/p:a-r3@sha256:{'0' * 64}", f"docker://h:5000/p@sha256:{'0' * 64}", f"p-sha256-{'0' * 64}.sif"),
    ],
)
def test_apptainer_makes_a_file_of_the_image_once(image: str, source: str, file: str) -> None:
    text = slurm.render(task_of(LEAST.replace(job_of(LEAST).image, image)))
    assert f'apptainer build --force "$1" {source}\n' in text
    assert f'image="${{SLURM_SUBMIT_DIR:?}}/"{file}\n' in text


def test_apptainer_takes_the_file_that_is_named() -> None:
    text = slurm.render(task_of(LEAST + "slurm: {image: '/srv/a b.sif'}"))
    assert "image='/srv/a b.sif'\n" in text
    assert "build" not in text


def test_apptainer_mounts_what_the_job_names_and_no_more() -> None:
    words = srun(task_of(text_of("everything")))
    mounts = [words[place + 1] for place, word in enumerate(words) if word == "--mount"]
    assert mounts == [
        'type=bind,"source=/home/ann/mnist/job",destination=/job,ro',
        'type=bind,"source=/srv/cache",destination=/cache',
    ]


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("h:5000/team/pytorch:cpu", "h:5000#team/pytorch:cpu"),
        ("team/pytorch:cpu", "team/pytorch:cpu"),
        (f"ghcr.io/team/pytorch:cpu@sha256:{'0' * 64}", f"ghcr.io#team/pytorch@sha256:{'0' * 64}"),
    ],
)
def test_pyxis_names_the_registry_as_enroot_does(image: str, text: str) -> None:
    assert f"--container-image={text}" in srun(task_of(LEAST.replace(job_of(LEAST).image, image) + PYXIS))


def test_pyxis_mounts_the_files_and_leaves_home_out() -> None:
    volume = "volumes: [{hostPath: /srv/a, mountPath: /a, readOnly: true}]\nfiles: {folder: .}\n"
    words = srun(task_of(LEAST + PYXIS + volume))
    assert "--container-mounts=/home/ann/mnist:/job:ro,/srv/a:/a:ro" in words
    assert {"--no-container-mount-home", "--no-container-entrypoint"} <= set(words)


def test_pyxis_refuses_a_path_that_it_would_misread() -> None:
    task = task_of(LEAST + PYXIS + "files: {folder: .}")
    with pytest.raises(JobError, match="takes no space, comma or colon"):
        slurm.render(Task(job=task.job, image=task.image, folder=Path("/srv/a b")))


def test_a_bundle_gets_the_path_variable_of_the_image() -> None:
    words = srun(task_of(LEAST + OCI))
    assert "--container=/srv/bundle" in words
    path = next(word for word in words if word.startswith("PATH=")).removeprefix("PATH=")
    images = [re.findall(r'PATH="(.*)"', each.read_text()) for each in TOOLKIT.glob("images/*/Dockerfile")]
    theirs = {own[0] for own in images if own}
    path = path.replace("/packages/bin:", "")  # which only images of projects have
    assert theirs == {path, path.replace("/usr/local/cuda/bin:", "")}


def refused(more: str) -> dict[Any, str]:
    job = job_of(LEAST + more)
    return dict([*unsupported_keys(job, slurm), *impossible(job, slurm)])


def test_a_bundles_mounts_are_its_own() -> None:
    matches = refused(OCI + "files: {folder: .}\nvolumes: [{hostPath: /a, mountPath: /b}]")
    assert {("files", "folder"), ("volumes",)} <= set(matches)
    assert not refused(PYXIS + "files: {folder: .}\nvolumes: [{hostPath: /a, mountPath: /b}]")


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD"])
def test_a_variable_of_the_hosts_programs_is_refused(name: str) -> None:
    assert ("env",) in refused(f"env: {{{name}: /x}}")
    assert not refused("env: {OTHER: /x}")


def test_without_cpus_a_node_must_be_a_whole_machine() -> None:
    bare = "name: a\nimage: b\nscript: c\n"
    assert [at for at, _ in impossible(job_of(bare), slurm)] == [("resources", "cpu")]
    assert impossible(job_of(bare + "slurm: {exclusive: true}"), slurm) == []


def test_a_stop_that_slurm_cannot_announce_in_time_is_refused() -> None:
    assert not refused("timeouts: {stop: 65520}")  # the grace is 15 seconds more, the last that sbatch takes
    assert ("timeouts", "stop") in refused("timeouts: {stop: 65521}")
    assert "signal=TERM@65535" in options(LEAST + "timeouts: {stop: 86400}")
