"""`job` with code as a layer: the image that a manifest names, and the requests to the registry."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.code.folders import image, stored
from tests.unit.conftest import SMALL
from tests.unit.engines import Daemon
from tests.unit.registries import MemoryRegistry, Store
from torchbake import cli
from torchbake.commands import job as module
from torchbake.errors import RegistryError
from torchbake.jobs.task import Task
from torchbake.oci.labels import ID
from torchbake.oci.layer_order import json_bytes
from torchbake.oci.manifest import Manifest, sha256
from torchbake.oci.reference import Repository
from torchbake.registry.transport import StatusError
from torchbake.store.layout import Layout

Streams = pytest.CaptureFixture[str]
IMAGE = "one.example.com/team/pytorch:cpu"
JOB = f"name: mnist\nimage: {IMAGE}\nscript: train.py\n"
CODE = re.compile(r"one\.example\.com/[a-z/]+:code-\d{8}-[0-9a-f]{12}@sha256:[0-9a-f]{64}")


class Here:
    """A folder with a job and its code, a registry with the job's image, and an engine that has it too."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
        self.folder, self.capsys = folder, capsys
        self.stores = {"team/pytorch": Store(), "team/scratch": Store()}
        manifest, config = ours(*image())
        stored(self.stores["team/pytorch"], manifest, config)
        self.base_digest = manifest.digest
        self.daemon = Daemon(containerd=False)
        self.daemon.hold(manifest.config.digest, IMAGE, labels={ID: "cpu"})
        self.ran = list[Task]()
        (folder / "src").mkdir()
        (folder / "src/train.py").write_text("print('first')\n")
        self.write("files: {layer: src}\n")
        monkeypatch.chdir(folder)
        monkeypatch.setattr(module, "connect", lambda: self.daemon.engine)
        monkeypatch.setattr(module, "registry_of", self.registry_of)
        monkeypatch.setattr(module, "run_job", self.run_job)

    def registry_of(self, repository: Repository, plain_http: bool) -> MemoryRegistry:
        registry = MemoryRegistry(self.stores.setdefault(repository.path, Store()))
        registry.repository = repository
        return registry

    def run_job(self, task: Task, target: object, images: Layout) -> int:
        self.ran.append(task)
        return 0

    def write(self, more: str) -> None:
        (self.folder / "job.yaml").write_text(JOB + more)

    def report(self, *words: str, code: int = 0) -> tuple[str, str]:
        self.capsys.readouterr()
        assert cli.main(["job", *words]) == code, self.capsys.readouterr().err
        streams = self.capsys.readouterr()
        return streams.out, " ".join(streams.err.split())

    @property
    def code_tags(self) -> list[str]:
        """The tags of images with code, in any repository."""
        return [tag for store in self.stores.values() for tag in store.tags if tag.startswith("code-")]


def ours(manifest: Manifest, config: bytes) -> tuple[Manifest, bytes]:
    """An image with the label of the images of torchbake."""
    config = json_bytes(json.loads(config) | {"config": {"Labels": {ID: "cpu"}}})
    content = {**manifest.content, "config": {**manifest.content["config"]}}
    content["config"] |= {"digest": sha256(config), "size": len(config)}
    return Manifest(data=json_bytes(content), media_type=manifest.media_type), config


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> Here:
    return Here(tmp_path, monkeypatch, capsys)


def test_a_run_pushes_the_code_and_submits_its_digest(here: Here) -> None:
    here.report("run", "job.yaml", "--target", "kubernetes")
    (task,) = here.ran
    assert CODE.fullmatch(task.image)
    assert task.code is None
    assert here.code_tags == [task.image.partition("@")[0].rpartition(":")[2]]


def test_an_edit_is_another_image_and_no_edit_the_same(here: Here) -> None:
    here.write("files: {layer: src}\nresources: {cpu: 1}\n")
    for text in ("print('first')\n", "print('second')\n", "print('first')\n"):
        (here.folder / "src/train.py").write_text(text)
        here.report("run", "job.yaml", "--target", "slurm")
    first, second, third = [task.image for task in here.ran]
    assert first == third != second
    assert len({task.split for task in here.ran}) == 2
    assert len(here.code_tags) == 4


def test_apptainer_alone_gets_the_code_as_an_image_of_its_own(here: Here) -> None:
    for more in ("", "slurm: {runtime: pyxis}\n"):
        here.write("files: {layer: src}\nresources: {cpu: 1}\n" + more)
        here.report("run", "job.yaml", "--target", "slurm")
    here.report("run", "job.yaml", "--target", "kubernetes")
    split = here.ran[0].split
    assert split
    assert split.base == f"{IMAGE}@{here.base_digest}"
    assert CODE.fullmatch(split.code)
    assert [task.split for task in here.ran[1:]] == [None, None]
    assert len({task.image for task in here.ran}) == 1


def test_show_for_apptainer_names_what_a_push_writes(here: Here) -> None:
    here.write("files: {layer: src}\nresources: {cpu: 1}\n")
    before, err = here.report("show", "slurm", "job.yaml")
    assert "is not in the registry yet" in err
    assert here.code_tags == []
    assert here.report("show", "slurm", "job.yaml", "--push")[0] == before
    del here.stores["team/pytorch"].manifests[here.report("show", "slurm", "job.yaml")[0].split("/pytorch@")[2][:71]]
    assert "is not in the registry yet" in here.report("show", "slurm", "job.yaml")[1]


def test_a_dry_run_names_the_image_and_sends_nothing(here: Here) -> None:
    out, err = here.report("run", "job.yaml", "--target", "kubernetes", "--dry-run")
    (name,) = CODE.findall(out)
    assert here.code_tags == []
    assert f"{name} is not in the registry yet" in err
    here.report("run", "job.yaml", "--target", "kubernetes")
    assert here.ran[0].image == name
    assert "not in the registry" not in here.report("run", "job.yaml", "--target", "kubernetes", "--dry-run")[1]


@pytest.mark.parametrize("target", ["kubernetes", "compose", "docker", "swarm", "pytorchjob"])
def test_show_sends_nothing_unless_it_is_asked_to(here: Here, target: str) -> None:
    out, err = here.report("show", target, "job.yaml")
    (name,) = set(CODE.findall(out))
    assert here.code_tags == []
    assert "add --push" in err
    out, err = here.report("show", target, "job.yaml", "--push")
    assert set(CODE.findall(out)) == {name}
    assert f"pushed 1 files to {name}" in err
    assert len(here.code_tags) == 1


def test_a_run_here_needs_no_registry(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "registry_of", lambda repository, plain_http: pytest.fail("the registry was asked"))
    for target in ("docker", "compose"):
        here.report("run", "job.yaml", "--target", target)
    assert [(task.image, task.code is not None) for task in here.ran] == [(IMAGE, True), (IMAGE, True)]
    _, err = here.report("run", "job.yaml", "--dry-run")
    assert "would put 1 files of" in err


def test_a_run_here_with_a_registry_pushes(here: Here) -> None:
    here.report("run", "job.yaml", "--registry", "one.example.com/team")
    here.report("run", "job.yaml", "--code-to", "one.example.com/team/pytorch")
    assert all(CODE.fullmatch(task.image) for task in here.ran)


def test_the_image_can_go_to_another_repository(here: Here) -> None:
    here.stores["team/scratch"].blobs |= {
        layer.digest: b"0" for layer in here.stores["team/pytorch"].manifests[here.base_digest].layers
    }
    here.report("run", "job.yaml", "--target", "kubernetes", "--code-to", "one.example.com/team/scratch")
    assert here.ran[0].image.startswith("one.example.com/team/scratch:code-")
    _, err = here.report("run", "job.yaml", "--target", "kubernetes", "--code-to", "two.example.com/x", code=2)
    assert "another registry" in err
    assert f"code -- push {IMAGE}@{here.base_digest} {here.folder / 'src'} --to REPOSITORY --copy" in err


def test_a_folder_of_the_command_line_replaces_files(here: Here) -> None:
    (here.folder / "other").mkdir()
    (here.folder / "other/train.py").write_text("print('other')\n")
    (here.folder / "other/left.csv").write_text("1\n")
    here.report("run", "job.yaml", "--target", "kubernetes", "--code", "other")
    here.write("files: {folder: src, exclude: ['*.csv']}\n")
    here.report("run", "job.yaml", "--target", "kubernetes", "--code", "other")
    here.write("")
    here.report("run", "job.yaml", "--target", "kubernetes", "--code", "other")
    with_csv, without_csv, plain = [task.image for task in here.ran]
    assert with_csv == plain != without_csv
    assert here.report("check", "job.yaml", "--code", "nowhere", code=21)[1].count("files.layer") == 1


def test_check_asks_nobody(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("registry_of", "connect"):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("somebody was asked"))
    out, _ = here.report("check", "job.yaml")
    assert "kubernetes: can express all of it" in out
    assert "torchrun: job.yaml:4: files.layer: torchrun cannot express this" in " ".join(out.split())
    (here.folder / "src/train.py").unlink()
    assert "train.py is not in" in here.report("check", "job.yaml", code=21)[1]


def test_an_image_of_this_engine_cannot_be_pulled_elsewhere(here: Here) -> None:
    (here.folder / "matrix.yaml").write_text(SMALL)
    here.stores["acme/pytorch"] = Store()
    here.daemon.hold("sha256:alone", "acme/pytorch:2.13.0-cpu-runtime-debian12", labels={ID: "cpu"})
    here.write("files: {layer: src}\n")
    text = (here.folder / "job.yaml").read_text().replace(IMAGE, "cpu runtime")
    (here.folder / "job.yaml").write_text(text)
    for words in (("run", "job.yaml", "--target", "kubernetes"), ("show", "compose", "job.yaml", "--push")):
        _, err = here.report(*words, code=21)
        assert "is in this machine's engine" in err
        assert "--registry" in err
    assert here.code_tags == []
    here.report("run", "job.yaml")
    assert here.ran[0].code is not None


def test_an_image_in_a_file_takes_no_layer(here: Here) -> None:
    here.write("files: {layer: src}\nresources: {cpu: 1}\nslurm: {image: /a.sif}\n")
    _, err = here.report("show", "slurm", "job.yaml", code=21)
    assert "files.layer: slurm cannot express this" in err
    here.report("show", "slurm", "job.yaml", "--lenient", "--push")
    assert here.code_tags == []


def test_a_manifest_with_a_layer_has_no_config_map(here: Here) -> None:
    out, _ = here.report("show", "kubernetes", "job.yaml", "--check")
    assert [each["kind"] for each in yaml.safe_load_all(out)] == ["Job"]


@pytest.mark.parametrize(
    ("target", "more"), [("helm", ""), ("slurm", "slurm: {runtime: pyxis}\n"), ("slurm", ""), ("openpai", "")]
)
def test_a_manifest_that_takes_the_name_apart_has_the_digest(here: Here, target: str, more: str) -> None:
    here.write("files: {layer: src}\nresources: {cpu: 1, memory: 1Gi}\n" + more)
    out, _ = here.report("show", target, "job.yaml", "--push")
    tags = [tag for tag in here.code_tags if tag in out or here.stores["team/pytorch"].tags[tag] in out]
    assert tags == here.code_tags != []


def test_a_refused_push_names_the_option_of_job(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(registry: MemoryRegistry, *_: object) -> None:
        raise StatusError("denied", status=403, codes=("DENIED",))

    monkeypatch.setattr(MemoryRegistry, "upload", refuse)
    _, err = here.report("run", "job.yaml", "--target", "kubernetes", code=RegistryError.exit_code)
    assert "--code-to REPOSITORY" in err
    assert " --to" not in err
    assert "code push" not in err
    assert (here.ran, here.code_tags) == ([], [])


def test_a_registry_that_cannot_be_read_is_an_error(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StatusError("denied", status=403, codes=("DENIED",), hint="Log in.")

    monkeypatch.setattr("torchbake.code.push.find_base", refuse)
    _, err = here.report("run", "job.yaml", "--target", "kubernetes", code=RegistryError.exit_code)
    assert "denied next: Log in." in err
