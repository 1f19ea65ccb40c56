"""`job`: the manifest alone on stdout, and every mistake with file, line and key."""

import json
from pathlib import Path

import pytest
import yaml

from tests.unit.conftest import SMALL
from tests.unit.engines import Daemon
from tests.unit.registries import MemoryRegistry, Store
from torchbake import cli
from torchbake.commands import job as module
from torchbake.jobs.model import Job
from torchbake.jobs.targets import TARGETS
from torchbake.matrix.schema import editor_schema
from torchbake.oci.labels import ID
from torchbake.oci.manifest import INDEX, Manifest

Streams = pytest.CaptureFixture[str]
JOB = "name: mnist\nimage: cpu runtime\nscript: train.py\nnodes: 2\n"


DIGEST = "sha256:" + "d" * 64
TAG = "2.13.0-cpu-runtime-debian12"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a matrix and a job, an engine that has pulled the job's image, and a registry that serves it."""
    (tmp_path / "matrix.yaml").write_text(SMALL)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    daemon = Daemon(containerd=False)
    daemon.hold(DIGEST, f"acme/pytorch:{TAG}", pulled=True, labels={ID: TAG})
    monkeypatch.setattr(module, "connect", lambda: daemon.engine)
    store = Store(tags={TAG: DIGEST}, manifests={DIGEST: Manifest(data=b"{}", media_type=INDEX)})
    monkeypatch.setattr(module, "registry_of", lambda repository, plain_http: MemoryRegistry(store))
    return tmp_path


def report(capsys: Streams, *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.main(["job", *words]) == code
    streams = capsys.readouterr()
    return streams.out, streams.err


def test_stdout_is_the_manifest_alone(here: Path, capsys: Streams) -> None:
    out, err = report(capsys, "show", "compose", "job.yaml")
    assert list(yaml.safe_load(out)["services"]) == ["mnist-0", "mnist-1"]
    assert "acme/pytorch:2.13.0-cpu-runtime-debian12" in out
    assert err == ""


def test_images_are_where_they_are_released(here: Path, capsys: Streams) -> None:
    out, _ = report(capsys, "show", "compose", "job.yaml", "--registry", "ghcr.io/team")
    assert f"ghcr.io/team/pytorch:{TAG}@{DIGEST}" in out


def test_a_comment_that_names_an_image_asks_no_registry(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "registry_of", lambda repository, plain_http: pytest.fail("the registry was asked"))
    out, _ = report(capsys, "show", "torchrun", "job.yaml", "--registry", "ghcr.io/team")
    assert f"# Their Python needs the packages of this image: ghcr.io/team/pytorch:{TAG}" in out


def test_images_are_pinned_unless_that_is_not_wanted(here: Path, capsys: Streams) -> None:
    for target in ("kubernetes", "docker"):
        assert f"acme/pytorch:{TAG}@{DIGEST}" in report(capsys, "show", target, "job.yaml")[0]
        assert "sha256" not in report(capsys, "show", target, "job.yaml", "--no-pin")[0]


def test_an_image_that_cannot_be_pinned_is_told_by_its_key(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB.replace("cpu runtime", "ghcr.io/acme/other:1"))
    out, err = report(capsys, "show", "kubernetes", "job.yaml", code=21)
    assert out == ""
    assert "job.yaml:2: image: ghcr.io/acme/other serves no 1" in err
    assert "--no-pin" in err


def test_a_dry_run_shows_the_manifest_and_the_commands(here: Path, capsys: Streams) -> None:
    out, err = report(capsys, "run", "job.yaml", "--dry-run", "--target", "kubernetes")
    assert {each["kind"] for each in yaml.safe_load_all(out)} == {"Service", "Job"}
    assert "would run: kubectl apply --server-side" in err
    assert "docker run" in report(capsys, "run", "--dry-run", "job.yaml")[0]


def test_a_run_ends_with_the_jobs_own_exit_code(here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_job", lambda task, target, images: 3 if task.image.endswith(DIGEST) else 1)
    assert "mnist ended with 3" in report(capsys, "run", "job.yaml", code=3)[1]


def test_what_running_takes_care_of_is_no_error(here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "job.yaml").write_text(JOB + "timeouts: {job: 60}\n")
    assert "timeouts.job: compose cannot express this" in report(capsys, "show", "compose", "job.yaml", code=21)[1]
    report(capsys, "run", "job.yaml", "--target", "compose", "--dry-run")


def test_what_a_target_cannot_say_is_an_error_or_a_warning(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB + "priority: high\n")
    out, err = report(capsys, "show", "docker", "job.yaml", code=21)
    assert out == ""
    assert "job.yaml:5: priority: docker cannot express this" in err
    assert "--lenient" in err
    out, err = report(capsys, "show", "docker", "job.yaml", "--lenient")
    assert "docker run" in out
    assert "job.yaml:5: priority: docker cannot express this" in err


def test_a_missing_value_of_a_target_is_an_error_even_if_lenient(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB + "priority: high\nresources: {memory: 8Gi}\n")
    out, err = report(capsys, "show", "openpai", "job.yaml", "--lenient", code=21)
    assert out == ""
    assert "job.yaml:6: resources.cpu: is missing, and openpai needs it" in err
    assert "priority" in err


def test_check_says_for_each_target_whether_it_can_say_all(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB + "priority: high\n")
    out, err = report(capsys, "check", "job.yaml")
    assert err == ""
    assert [line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")] == list(TARGETS)
    assert "docker: job.yaml:5: priority: docker cannot express this" in out
    value = json.loads(report(capsys, "check", "job.yaml", "--format", "json")[0])["targets"]
    problems = {each["name"]: each["problem"] for each in value}
    assert list(problems) == list(TARGETS)
    assert problems["kubernetes"] is None
    assert "priority" in problems["docker"]
    report(capsys, "check", "nowhere.yaml", code=21)


def test_targets_tell_what_they_can_say_and_what_not(here: Path, capsys: Streams) -> None:
    value = json.loads(report(capsys, "targets", "--format", "json")[0])["targets"]
    assert [target["name"] for target in value] == list(TARGETS)
    for target in value:
        never = {no["key"] for no in target["cannot"] if not no["only"]}
        assert never.isdisjoint(target["can"])
        assert "script" in target["can"]
    table, _ = report(capsys, "targets")
    assert all(name in table for name in TARGETS)


def test_the_schema_is_printed_for_editors(here: Path, capsys: Streams) -> None:
    assert report(capsys, "schema")[0] == editor_schema(Job)


def test_a_wrong_command_line_is_told_with_what_was_meant(here: Path, capsys: Streams) -> None:
    for words, output in (
        ([], "Which action? There are: run, show, check, targets, schema."),
        (["shwo"], "There is no action 'shwo'; did you mean 'show'?"),
        (["schema", "--format", "json"], "--format is an option of `job targets`, not of `job schema`"),
        (["show", "docker", "job.yaml", "--dry-run"], "--dry-run is an option of `job run`"),
        (["run", "job.yaml", "--check"], "--check is an option of `job show`"),
        (["run", "job.yaml", "--kustomize", "base"], "--kustomize is an option of `job show`"),
        (["show", "job.yaml"], "`job show` takes TARGET and FILE"),
        (["show", "dokcer", "job.yaml"], "There is no target 'dokcer'; did you mean 'docker'?"),
    ):
        assert output in report(capsys, *words, code=2)[1], (words, output)


def test_a_manifest_is_held_against_the_targets_own_schema(here: Path, capsys: Streams) -> None:
    (here / "train.py").write_text("")
    (here / "job.yaml").write_text(JOB + "files: {folder: .}\n")
    out, err = report(capsys, "show", "kubernetes", "job.yaml", "--check")
    assert [each["kind"] for each in yaml.safe_load_all(out)] == ["ConfigMap", "Service", "Job"]
    assert "The manifest fits the schema of: " in err
    assert (
        "fits the schema of: the Compose specification." in report(capsys, "show", "compose", "job.yaml", "--check")[1]
    )
    assert "no schema of docker" in report(capsys, "show", "docker", "job.yaml", "--check", code=2)[1]


def test_a_folder_over_the_configmap_limit_fails_only_kubernetes(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchbake.jobs.job_files.MOST_BYTES", 10_000)
    (here / "train.py").write_text("#" * 10_001)
    (here / "job.yaml").write_text(JOB + "files: {folder: .}\n")
    out, _ = report(capsys, "check", "job.yaml")
    assert "docker: can express all of it" in out
    assert "kubernetes: job.yaml:5: files.folder: " in out


def test_a_kustomize_base_is_written_in_place_of_stdout(here: Path, capsys: Streams) -> None:
    manifest, _ = report(capsys, "show", "kubernetes", "job.yaml")
    out, err = report(capsys, "show", "kubernetes", "job.yaml", "--kustomize", "base")
    assert (out, err) == ("", "Wrote base/manifest.yaml, base/kustomization.yaml.\n")
    assert list(yaml.safe_load_all((here / "base/manifest.yaml").read_text())) == list(yaml.safe_load_all(manifest))
    _, err = report(capsys, "show", "compose", "job.yaml", "--kustomize", "other", code=2)
    assert "--kustomize is for objects of Kubernetes, and compose writes none." in err
    assert not (here / "other").exists()


def test_a_file_with_an_old_api_gets_its_targets_manifest(here: Path, capsys: Streams) -> None:
    (here / "old.yaml").write_text(JOB + "kubernetes: {api: '1.20'}\n")
    expected, _ = report(capsys, "show", "kubernetes-1.20", "job.yaml")
    assert report(capsys, "show", "kubernetes", "old.yaml")[0] == expected
    assert report(capsys, "run", "--dry-run", "--target", "kubernetes", "old.yaml")[0] == expected
    assert "fits the schema of: Kubernetes 1.25.0" in report(capsys, "show", "kubernetes", "old.yaml", "--check")[1]
    assert report(capsys, "show", "compose", "old.yaml")[0] == report(capsys, "show", "compose", "job.yaml")[0]
    (here / "old.yaml").write_text(JOB + "kubernetes: {api: 1.20}\nrestarts: 2\n")
    assert "kubernetes-1.20 cannot express this" in report(capsys, "show", "kubernetes", "old.yaml", code=21)[1]
    assert "\nkubernetes: old.yaml:6: restarts: kubernetes-1.20 cannot" in report(capsys, "check", "old.yaml")[0]


FOREIGN = "name: a\nimage: pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime\n"


def test_what_follows_from_a_command_is_told_beside_the_manifest(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(FOREIGN + "nodes: 2\ncommand: torchrun train.py\n")
    for words in (("show", "pytorchjob", "job.yaml", "--no-pin"), ("check", "job.yaml")):
        err = " ".join(report(capsys, *words)[1].split())
        assert "`command` is started as it is: torchrun finds nodes" in err
        assert "is not known as an image of torchbake" in err
    (here / "job.yaml").write_text("name: a\nimage: cpu runtime\ncommand: python -V\n")
    out, err = report(capsys, "show", "docker", "job.yaml")
    assert "--cap-drop ALL" in out
    assert "is not known" not in err


def test_a_foreign_image_refuses_what_needs_ours(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(FOREIGN + "command: ls\nvolumes: [{claim: a, mountPath: /a, permissions: fix}]\n")
    out, err = report(capsys, "show", "kubernetes", "job.yaml", "--no-pin", code=21)
    assert out == ""
    assert "job.yaml:4: volumes.0.permissions: makes a volume writable for a known user" in " ".join(err.split())
