"""The examples are complete: job files that every launcher accepts, a script, and a README that names all files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.examples import FOLDER, FROM_GIT, JOBS, NAMES, lines_of, runs_here
from tests.unit.jobs.schemas import check_manifest
from torchbake.jobs.expressible import impossible, unsupported_keys
from torchbake.jobs.load import load_job
from torchbake.jobs.prepare import prepare
from torchbake.jobs.targets import TARGETS
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec

EVERYWHERE = ("docker", "compose", "kubernetes", "pytorchjob")
# The jobs of OpenPAI's guide and PyTorchJob's page: nodes, and for each node CPUs, MB, GPUs.
GUIDES = {"mnist": (1, 4, 8192, 1), "regression": (1, 4, 8192, 0), "ddp": (4, 4, 8192, 1)}


@pytest.fixture(autouse=True)
def _nothing_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples are in no repository, so git is not asked which of their files it ignores."""
    monkeypatch.setattr("torchbake.code.files.is_below_git", lambda folder: False)


def reference(spec: Spec) -> str:
    return f"{spec.repository}:{spec.own_tag}"


def rendered(path: Path, target: str, project: Project) -> str:
    """The manifest; fails where the target cannot say all of the job."""
    job, document = load_job(path)
    assert [*impossible(job, TARGETS[target]), *unsupported_keys(job, TARGETS[target])] == []
    return TARGETS[target].render(prepare(job, document, TARGETS[target], project, reference))


def image_of(path: Path, project: Project) -> str:
    job, document = load_job(path)
    return prepare(job, document, TARGETS["docker"], project, reference).image


def test_an_example_has_a_job_a_script_and_a_complete_readme() -> None:
    for name in NAMES:
        job, _ = load_job(FOLDER / name / "job.yaml")
        assert (job.name, job.files.folder) == (name, "."), name
        assert (FOLDER / name / str(job.script)).is_file(), name
        assert {path.name for path in (FOLDER / name).glob("job*.yaml")} == {
            file for line in lines_of(name) for file in re.findall(rf"examples/{name}/(job\S*\.yaml)", line)
        }, name
        assert f"nox -s job -- show docker examples/{name}/job.yaml | sh" in lines_of(name), name
        assert len([line for line in (FOLDER / name / "README.md").read_text().splitlines() if line]) <= 12, name


def test_the_list_of_examples_is_complete() -> None:
    rows = re.findall(r"(?m)^\| \[(\w+)\]\(\1/README\.md\) \|.*\| (\d+) \|$", (FOLDER / "README.md").read_text())
    assert {name: int(nodes) for name, nodes in rows} == {
        name: load_job(FOLDER / name / "job.yaml")[0].most_nodes for name in NAMES
    }


def test_a_job_is_one_for_every_launcher(project: Project) -> None:
    for target in EVERYWHERE:
        for path in JOBS:
            manifest = rendered(path, target, project)
            for version in ("", "1.28") if target == "kubernetes" else ():
                check_manifest(manifest, version)


def test_an_image_is_named_by_words_of_the_matrix(project: Project) -> None:
    for path in JOBS:
        job, _ = load_job(path)
        if path.stem == "job-onnx":
            built = f"docker build --tag {job.image} examples/{path.parent.name}"
            assert built in lines_of(path.parent.name), path
        else:
            assert not set(job.image) & set("/:@"), path
            assert image_of(path, project).startswith(project.matrix.repository[0]), path


def test_the_dockerfile_extends_the_image_of_the_job_beside_it(project: Project) -> None:
    (image,) = re.findall(r"(?m)^ARG IMAGE=(.*)$", (FOLDER / "export/Dockerfile").read_text())
    assert image == image_of(FOLDER / "export/job.yaml", project)


def test_the_repository_that_is_fetched_is_this_one(project: Project) -> None:
    for path in FROM_GIT:
        job, _ = load_job(path)
        assert job.files.git, path
        assert job.files.git.repository == project.matrix.source, path
        assert (FOLDER.parent / str(job.script)).is_file(), path


def test_openpai_gets_what_its_guide_has(project: Project) -> None:
    for name, (nodes, *resources) in GUIDES.items():
        path = FOLDER / name / "job-from-git.yaml"
        (role,) = json.loads(rendered(path, "openpai-v1", project))["taskRoles"]
        assert [role[key] for key in ("taskNumber", "cpuNumber", "memoryMB", "gpuNumber")] == [nodes, *resources], name
        second = yaml.safe_load(rendered(path, "openpai", project))["taskRoles"]["main"]
        argument = second["resourcePerInstance"]
        assert [second["instances"], *(argument[key] for key in ("cpu", "memoryMB", "gpu"))] == [nodes, *resources], (
            name
        )
        assert f"export GIT_REPOSITORY={project.matrix.source}" in second["commands"], name
        assert second["commands"][-1].startswith(f"run examples/{name}/"), name
        assert " && ".join(second["commands"]) == role["command"], name


def test_a_pytorchjob_has_a_master_and_three_workers_with_gpus(project: Project) -> None:
    *_, item = yaml.safe_load_all(rendered(FOLDER / "ddp/job-from-git.yaml", "pytorchjob", project))
    replicas: dict[str, Any] = item["spec"]["pytorchReplicaSpecs"]
    assert {role: spec["replicas"] for role, spec in replicas.items()} == {"Master": 1, "Worker": 3}
    for spec in replicas.values():
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        assert container["resources"]["limits"]["nvidia.com/gpu"] in (1, "1")


def test_a_line_that_runs_a_job_here_is_told_from_others() -> None:
    assert runs_here("nox -s job -- show docker examples/mnist/job.yaml | sh")
    assert not runs_here("nox -s job -- show kubernetes examples/mnist/job.yaml | kubectl apply --server-side -f -")
    assert all(any(map(runs_here, lines_of(name))) for name in NAMES)
