"""`job`: the manifest alone on stdout, and every mistake with file, line and key."""

import json
from pathlib import Path

import pytest
import yaml

from tests.unit.conftest import SMALL
from torchbake import cli
from torchbake.jobs.manual import schema_text
from torchbake.jobs.targets import TARGETS

Streams = pytest.CaptureFixture[str]
JOB = "name: mnist\nimage: cpu runtime\nscript: train.py\nnodes: 2\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys: Streams, *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.main(["job", *words]) == code
    seen = capsys.readouterr()
    return seen.out, seen.err


def test_stdout_is_the_manifest_alone(here: Path, capsys: Streams) -> None:
    out, err = told(capsys, "show", "compose", "job.yaml")
    assert list(yaml.safe_load(out)["services"]) == ["mnist-0", "mnist-1"]
    assert "acme/pytorch:2.13.0-cpu-runtime-debian12" in out
    assert err == ""


def test_images_are_where_they_are_released(here: Path, capsys: Streams) -> None:
    out, _ = told(capsys, "show", "compose", "job.yaml", "--registry", "ghcr.io/team")
    assert "ghcr.io/team/pytorch:2.13.0-cpu-runtime-debian12" in out


def test_what_a_target_cannot_say_is_an_error_or_a_warning(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB + "priority: high\n")
    out, err = told(capsys, "show", "docker", "job.yaml", code=21)
    assert out == ""
    assert "job.yaml:5: priority: docker cannot say this" in err
    assert "--lenient" in err
    out, err = told(capsys, "show", "docker", "job.yaml", "--lenient")
    assert "docker run" in out
    assert "job.yaml:5: priority: docker cannot say this" in err


def test_what_a_target_must_be_told_is_an_error_also_when_it_is_lenient(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB + "priority: high\nresources: {memory: 8Gi}\n")
    out, err = told(capsys, "show", "openpai", "job.yaml", "--lenient", code=21)
    assert out == ""
    assert "job.yaml:6: resources.cpu: is missing, and openpai needs it" in err
    assert "priority" in err


def test_check_says_for_each_target_whether_it_can_say_all(here: Path, capsys: Streams) -> None:
    (here / "job.yaml").write_text(JOB + "priority: high\n")
    out, err = told(capsys, "check", "job.yaml")
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines() if not line.startswith(" ")] == list(TARGETS)
    assert "docker: job.yaml:5: priority: docker cannot say this" in err
    told(capsys, "check", "nowhere.yaml", code=21)


def test_targets_tell_what_they_can_say_and_what_not(here: Path, capsys: Streams) -> None:
    found = json.loads(told(capsys, "targets", "--format", "json")[0])["targets"]
    assert [target["name"] for target in found] == list(TARGETS)
    for target in found:
        never = {no["key"] for no in target["cannot"] if not no["only"]}
        assert never.isdisjoint(target["can"])
        assert "script" in target["can"]
    table, _ = told(capsys, "targets")
    assert all(name in table for name in TARGETS)


def test_the_schema_is_printed_for_editors(here: Path, capsys: Streams) -> None:
    assert told(capsys, "schema")[0] == schema_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Which action? There are: show, check, targets, schema."),
        (["shwo"], "There is no action 'shwo'; did you mean 'show'?"),
        (["show", "job.yaml"], "`job show` takes 2 words"),
        (["show", "dokcer", "job.yaml"], "There is no target 'dokcer'; did you mean 'docker'?"),
    ],
)
def test_a_wrong_command_line_is_told_with_what_was_meant(
    words: list[str], said: str, here: Path, capsys: Streams
) -> None:
    assert said in told(capsys, *words, code=2)[1]


def test_a_manifest_is_held_against_the_targets_own_schema(here: Path, capsys: Streams) -> None:
    (here / "train.py").write_text("")
    (here / "job.yaml").write_text(JOB + "files: {folder: .}\n")
    out, err = told(capsys, "show", "kubernetes", "job.yaml", "--check")
    assert [each["kind"] for each in yaml.safe_load_all(out)] == ["ConfigMap", "Service", "Job"]
    assert "takes it, by its schema" in err
    assert "The Compose specification takes it" in told(capsys, "show", "compose", "job.yaml", "--check")[1]
    assert "no schema of docker" in told(capsys, "show", "docker", "job.yaml", "--check", code=2)[1]


def test_a_folder_too_large_for_a_config_map_is_only_kubernetes_mistake(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchbake.jobs.prepare.MOST_BYTES", 10)
    (here / "train.py").write_text("print('longer')")
    (here / "job.yaml").write_text(JOB + "files: {folder: .}\n")
    _, err = told(capsys, "check", "job.yaml")
    assert "docker: can say all of it" in err
    assert "kubernetes: job.yaml:5: files.folder: " in err
