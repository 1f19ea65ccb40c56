"""The image of a job, and the checks before a manifest is written."""

import os
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.unit.conftest import SMALL, edited
from torchbake.errors import JobError
from torchbake.jobs import job_files as module
from torchbake.jobs.expressible import Cannot, Needs, Target
from torchbake.jobs.load import load_job
from torchbake.jobs.prepare import prepare
from torchbake.jobs.targets import docker
from torchbake.jobs.task import Task
from torchbake.matrix.project import Project, load_project

CUDA = "2.10.0-cuda12.8-cudnn9-runtime-debian12"


class Carrying:
    """A target whose manifest holds the files."""

    NAME, ABOUT, MOST_NODES, CARRIES_FILES = "carrying", "", 1, True
    CANNOT: tuple[Cannot, ...] = ()
    NEEDS: tuple[Needs, ...] = ()

    def render(self, task: Task) -> str:
        return task.image


@pytest.fixture
def project(tmp_path: Path) -> Project:
    path = tmp_path / "matrix.yaml"
    path.write_text(SMALL)
    return load_project(path)


def prepared(folder: Path, text: str, project: Project | None, *, carries: bool = False) -> Task:
    path = folder / "job.yaml"
    path.write_text("name: mnist\n" + ("" if "command:" in text else "script: train.py\n") + text)
    job, document = load_job(path)
    target: Target = Carrying() if carries else docker
    return prepare(job, document, target, project, lambda spec: f"{spec.repository}:{spec.own_tag}")


def problem(folder: Path, text: str, project: Project | None, *, carries: bool = False) -> str:
    with pytest.raises(JobError) as caught:
        prepared(folder, text, project, carries=carries)
    return caught.value.message


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ("latest", f"acme/pytorch:{CUDA}"),
        (CUDA, f"acme/pytorch:{CUDA}"),
        ("cpu runtime", "acme/pytorch:2.13.0-cpu-runtime-debian12"),
        ("ghcr.io/acme/pytorch:latest", "ghcr.io/acme/pytorch:latest"),
        (f"other/image@sha256:{'a' * 64}", f"other/image@sha256:{'a' * 64}"),
    ],
)
def test_an_image_is_a_tag_a_selector_or_a_reference(
    image: str, reference: str, tmp_path: Path, project: Project
) -> None:
    assert prepared(tmp_path, f"image: '{image}'", project).image == reference


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image: cuda", "job.yaml:3: image: 'cuda' means 6 images"),
        ("image: cppu", "job.yaml:3: image: 'cppu' selects nothing. Nearest: cpu"),
        ("image: 'a/b:c:d'", "job.yaml:3: image: 'a/b:c:d' is not an image reference."),
        ("image: USER/pai.run.pytorch", "job.yaml:3: image: 'USER/pai.run.pytorch' is not an image reference: names"),
        ("image: cpu runtime\nresources: {gpu: 1}", "4: resources.gpu: 1 for 2.13.0-cpu-runtime-debian12, a CPU image"),
        ("image: ghcr.io/x/pytorch:2.13.0-cpu-runtime-debian12-r3\nresources: {gpu: 1}", "resources.gpu: 1 for 2.13.0"),
        ("image: x.y/pytorch:2.13.0-cpu-runtime-debian12-amd64-r3\nresources: {gpu: 1}", "resources.gpu: 1 for 2.13.0"),
        ("image: a/b\nfiles: {folder: nowhere}", "/nowhere is not a folder, or cannot be read"),
        ("image: a/b\nfiles: {folder: .}", "job.yaml:2: script: train.py is not in "),
    ],
)
def test_what_is_wrong_outside_of_the_file_is_told_by_its_key(
    text: str, message: str, tmp_path: Path, project: Project
) -> None:
    assert message in problem(tmp_path, text, project)


def test_without_a_matrix_an_image_is_a_reference(tmp_path: Path) -> None:
    assert prepared(tmp_path, "image: a/b:c", None).image == "a/b:c"
    assert "'cpu' names an image of a matrix, but no matrix was found" in problem(tmp_path, "image: cpu", None)


def test_the_user_is_that_of_the_matrixs_image(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(SMALL.replace("defaults:\n  cudnn", "defaults:\n  user: {uid: 2000}\n  cudnn", 1))
    assert prepared(tmp_path, "image: latest", load_project(path)).owner == "2000:2000"


def test_volume_permissions_is_of_the_matrix_too(tmp_path: Path, project: Project) -> None:
    text = "image: a/b\nvolumes: [{claim: x, mountPath: /data, permissions: fix}]"
    assert prepared(tmp_path, text, project).init_image == "acme/volume-permissions:1.0.0"
    path = tmp_path / "matrix.yaml"
    path.write_text(edited("volume-permissions: {", "volume-permissions: {platforms: linux/arm64, "))
    assert prepared(tmp_path, text, load_project(path)).init_image == "acme/volume-permissions:1.0.0"
    assert "volumes.0.permissions: needs the init image volume-permissions" in problem(tmp_path, text, None)


def test_files_are_read_for_a_target_that_carries_them(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for name, content in {"train.py": "x", "a/b.py": "y", ".cache/config": "z", "a/__pycache__/b.pyc": "z"}.items():
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_text(content)
    text = "image: a/b\nfiles: {folder: job}"
    assert prepared(tmp_path, text, None, carries=True).contents == {"train.py": b"x", "a/b.py": b"y"}
    plain = prepared(tmp_path, text, None)
    assert (plain.contents, plain.folder) == ({}, job)


def test_more_than_a_config_map_takes_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x" * 200)
    with patch.object(module, "MOST_BYTES", 100):
        message = problem(tmp_path, "image: a/b\nfiles: {folder: .}", None, carries=True)
    assert "files.folder: " in message
    assert "use `files.layer` or `files.git`" in message


def carries(folder: Path, files: str = "") -> set[str]:
    """The files of a folder that a manifest carries, by keys of `files`."""
    text = f"image: a/b\nfiles: {{folder: ., {files}}}"
    return set(prepared(folder, text, None, carries=True).contents)


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def test_the_job_file_and_output_are_not_carried(tmp_path: Path) -> None:
    """`job show kubernetes job.yaml > x.out` must not change what the next one shows."""
    write(tmp_path, "train.py", "x.out", "runs/slurm-1.err", "runs/1.log", "job.yaml.txt", "outer.py")
    assert carries(tmp_path) == {"train.py", "job.yaml.txt", "outer.py"}
    assert carries(tmp_path, "include: ['**', x.out]") == {"train.py", "job.yaml.txt", "outer.py", "x.out"}


def test_an_earlier_manifest_is_not_carried(tmp_path: Path) -> None:
    """Each `job show kubernetes job.yaml > NAME.yaml` held the files of the one before it."""
    manifest = (Path(__file__).parents[1] / "golden/jobs/kubernetes.yaml").read_text()
    (tmp_path / "k8s.yaml").write_text(manifest)
    (tmp_path / "bare.yml").write_text(manifest.partition("\n")[2])
    (tmp_path / "other.yaml").write_text(manifest.replace("managed-by: torchbake", "managed-by: helm"))
    write(tmp_path, "train.py")
    assert carries(tmp_path) == {"train.py", "other.yaml"}
    assert carries(tmp_path, "include: ['**', k8s.yaml]") == {"train.py", "other.yaml", "k8s.yaml"}


def test_the_files_of_dockerignore_are_not_carried(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "data/a.csv", "data/keep.csv", "n.ipynb")
    (tmp_path / ".dockerignore").write_text("data\n!data/keep.csv\n")
    assert carries(tmp_path) == {"train.py", "data/keep.csv", "n.ipynb"}
    assert carries(tmp_path, "include: [train.py, data/a.csv]") == {"train.py", "data/a.csv"}


def test_include_and_exclude_choose_files(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/a.py", "lib/a.txt", "b/c/d.py")
    assert carries(tmp_path, "exclude: [lib]") == {"train.py", "b/c/d.py"}
    assert carries(tmp_path, "exclude: ['**/*.txt']") == {"train.py", "lib/a.py", "b/c/d.py"}
    assert carries(tmp_path, "include: ['*.py', lib], exclude: [lib/a.txt]") == {"train.py", "lib/a.py"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("folder: ., include: [nothing]", "files.include.0: no file below"),
        ("folder: ., include: ['lib']", "script: train.py is in"),
        ("folder: ., exclude: ['*.py']", "script: train.py is in"),
        ("folder: ., exclude: ['[z-a]']", "is not a pattern"),
        ("folder: ., exclude: [/etc]", "files.exclude.0: '/etc' is no path within"),
        ("folder: ., exclude: [../x]", "files.exclude.0: '../x' is no path within"),
        ("folder: ., include: ['!x']", "files.include.0: '!x' is no path within"),
        ("configMap: x, include: [a]", "files.include: selects files of a `folder` or a `layer`"),
    ],
)
def test_a_choice_of_files_that_cannot_be_is_told(tmp_path: Path, files: str, message: str) -> None:
    write(tmp_path, "train.py", "lib/a.py")
    assert message in problem(tmp_path, f"image: a/b\nfiles: {{{files}}}", None, carries=True)


def test_a_large_file_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    (tmp_path / "model.bin").write_bytes(b"x" * 1_000_001)
    message = problem(tmp_path, "image: a/b\nfiles: {folder: .}", None, carries=True)
    assert "model.bin has 1000001 bytes" in message
    assert carries(tmp_path, "exclude: [model.bin]") == {"train.py"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", f"hf_{'a' * 34}"),
        ("train.py", "url = 'https://me:pass@example.com/x'"),
        ("id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----"),
        ("api-token.txt", "x"),
        ("conf/credentials.json", "{}"),
    ],
)
def test_a_file_that_looks_like_a_secret_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, "train.py", name)
    (tmp_path / name).write_text(text)
    message = problem(tmp_path, "image: a/b\nfiles: {folder: .}", None, carries=True)
    assert f"{name} " in message
    assert text not in message or len(text) < 9


def test_a_program_may_be_named_after_secrets(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "auth.py", "special_tokens_map.json")
    assert carries(tmp_path, "include: ['**', special_tokens_map.json]") >= {"auth.py", "special_tokens_map.json"}


@pytest.mark.usefixtures("own_processes")
def test_the_files_that_git_ignores_are_not_carried(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "logs/a.txt", ":odd.txt")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("logs\n:*\n")
    assert carries(tmp_path) == {"train.py"}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("folder", "link: is a link to no file, and only files are carried: correct it, or take it out of the folder"),
        ("nothing", "link: is a link to no file"),
        ("queue", "queue: is not a file"),
        ("name", "its name is not UTF-8"),
        ("loop", "files.folder: "),
    ],
)
def test_nothing_of_a_folder_is_left_out_in_silence(tmp_path: Path, what: str, message: str) -> None:
    job = tmp_path / "job"
    (job / "sub").mkdir(parents=True)
    (job / "train.py").write_text("x")
    match what:
        case "folder":
            (job / "link").symlink_to("sub")
        case "nothing":
            (job / "link").symlink_to("nowhere")
        case "queue":
            os.mkfifo(job / "queue")
        case "name":
            (job / os.fsdecode(b"\xff.bin")).write_text("x")
        case _:
            (job / "link").symlink_to("link")
    text = "image: a/b\nfiles: {folder: job}"
    assert message in problem(tmp_path, text, None, carries=True)
    assert prepared(tmp_path, text, None).folder == job  # what is mounted has all of it


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("x")
    real = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "train.py":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    message = problem(tmp_path, "image: a/b\nfiles: {folder: .}", None, carries=True)
    assert "train.py: Permission denied: correct it, or take it out of the folder" in message


def test_with_a_command_a_reference_is_no_image_of_ours(tmp_path: Path, project: Project) -> None:
    for image, command, script in (("latest", True, True), ("cpu runtime", True, True), ("a/b:c", False, True)):
        assert prepared(tmp_path, f"image: {image}\ncommand: ls", project).ours is command
        assert prepared(tmp_path, f"image: {image}", project).ours is script
    task = prepared(tmp_path, "image: a/b:c\ncommand: ls", project)
    assert (task.known_uid, prepared(tmp_path, "image: a/b:c", project).known_uid) == (None, 1001)


LAYER = "image: a/b\nfiles: {layer: %s}"


def layer_names(folder: Path, files: str) -> tuple[str, ...]:
    """The files of a layer, which is the same for a target that carries files and for one that does not."""
    names = {prepared(folder, LAYER % files, None, carries=carries).code for carries in (True, False)}
    (code,) = names
    assert code is not None
    return code.names


def test_a_layer_has_the_files_that_a_manifest_would_carry(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/a.py", "x.out", ".hidden", "data/a.csv", "n.ipynb")
    (tmp_path / ".dockerignore").write_text("data\n")
    assert layer_names(tmp_path, ".") == ("lib/a.py", "n.ipynb", "train.py")
    assert layer_names(tmp_path, "., exclude: ['**/*.ipynb']") == ("lib/a.py", "train.py")
    assert layer_names(tmp_path, "., include: ['*.py', data/a.csv]") == ("data/a.csv", "train.py")


def test_a_layer_has_no_limit_of_size_and_is_not_mounted(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    (tmp_path / "model.bin").write_bytes(b"x" * 1_500_000)
    task = prepared(tmp_path, LAYER % ".", None, carries=True)
    assert task.code is not None
    assert (task.code.names, task.folder, task.contents) == (("model.bin", "train.py"), None, {})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("nowhere", "files.layer: "),
        ("lib", "job.yaml:2: script: train.py is not in "),
        ("., include: [nothing]", "files.layer: "),
        ("., exclude: ['*.py']", "script: train.py is in"),
        ("., exclude: ['**']", "files.layer: "),
        ("., folder: .", "files: names several sources, folder and layer"),
    ],
)
def test_a_layer_that_cannot_be_is_told(tmp_path: Path, files: str, message: str) -> None:
    write(tmp_path, "train.py", "lib/a.py", "lib/b.txt")
    assert message in problem(tmp_path, LAYER % files, None)


def test_a_secret_gets_into_no_layer(tmp_path: Path) -> None:
    for name, text in (("notes.txt", f"hf_{'a' * 34}"), ("conf/credentials.json", "{}")):
        write(tmp_path, "train.py", name)
        (tmp_path / name).write_text(text)
        message = problem(tmp_path, LAYER % ".", None)
        assert "files.layer: " in message
        assert name in message
        (tmp_path / name).unlink()
