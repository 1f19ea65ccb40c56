"""A kustomize base: the manifest and what names it, and nothing of another's is written over."""

from pathlib import Path

import pytest
import yaml

from tests.unit.jobs.cases import task_of, text_of
from torchbake.errors import JobError
from torchbake.jobs.kustomize import MARK, write_base
from torchbake.jobs.targets import kubernetes

MANIFEST = kubernetes.render(task_of(text_of("ddp")))


def test_a_base_is_the_manifest_and_a_kustomization_of_it(tmp_path: Path) -> None:
    write_base(tmp_path / "jobs/base", MANIFEST)
    kustomization = yaml.safe_load((tmp_path / "jobs/base/kustomization.yaml").read_text())
    assert (kustomization["apiVersion"], kustomization["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    (name,) = kustomization["resources"]
    assert (tmp_path / "jobs/base" / name).read_text() == MARK + MANIFEST
    assert len(list((tmp_path / "jobs/base").iterdir())) == 2


def test_a_base_is_written_anew_and_what_else_is_there_stays(tmp_path: Path) -> None:
    write_base(tmp_path, MANIFEST.replace("mnist", "older"))
    (tmp_path / "notes.md").write_text("mine")
    write_base(tmp_path, MANIFEST)
    assert "older" not in (tmp_path / "manifest.yaml").read_text()
    assert (tmp_path / "notes.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["kustomization.yaml", "manifest.yaml", "kustomization.yml", "Kustomization"])
def test_nothing_is_written_where_a_file_is_anothers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("resources: []\n")
    with pytest.raises(JobError, match=rf"{name} exists, and was not written by `job show`") as caught:
        write_base(tmp_path, MANIFEST)
    assert caught.value.hint == "Name another folder."
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "resources: []\n"}


def test_what_is_no_folder_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "base").write_text("")
    with pytest.raises(JobError, match="base"):
        write_base(tmp_path / "base", MANIFEST)
    (tmp_path / "other/manifest.yaml").mkdir(parents=True)
    with pytest.raises(JobError, match=r"manifest\.yaml: Is a directory"):
        write_base(tmp_path / "other", MANIFEST)
