"""Each target of `job run` has its launcher, and missing variables of the shell are errors before a start."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engines import Daemon
from tests.unit.jobs.cases import task_of, text_of
from torchbake.errors import JobError
from torchbake.jobs import running
from torchbake.jobs.expressible import Target
from torchbake.jobs.launchers import Launcher
from torchbake.jobs.model import Job
from torchbake.jobs.running import LAUNCHERS, RUNNABLE, kept_by_running, preview, run_job
from torchbake.jobs.submit import Submission
from torchbake.jobs.targets import TARGETS
from torchbake.jobs.task import CodeFolder, Task
from torchbake.store.layout import Layout

NO_IMAGES = Layout(folder=Path("/nowhere"))


@pytest.mark.parametrize("name", sorted({*LAUNCHERS} & {*TARGETS}))
def test_the_manifest_exists_only_while_the_job_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, places = task_of(text_of("ddp")), list[Path]()

    class Submitted:
        def __init__(self, *, launcher: Launcher, job: Job) -> None:
            words = [word for command in (*launcher.prepare(), launcher.submit()) for word in command]
            places.append(next(Path(word) for word in words if word.endswith("/mnist")))

        def run(self) -> int:
            assert places[0].read_text() == TARGETS[name].render(task)
            return 3

    monkeypatch.setattr(running, "Submission", Submitted)
    assert run_job(task, TARGETS[name], NO_IMAGES) == 3
    assert not places[0].parent.exists()


def test_a_dry_run_names_what_would_be_started() -> None:
    task = task_of(text_of("ddp"))
    for name in {*RUNNABLE} & {*TARGETS}:
        manifest, commands = preview(task, TARGETS[name])
        assert manifest == TARGETS[name].render(task)
        assert bool(commands) == (name in LAUNCHERS)


def test_secrets_of_the_shell_are_asked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "JOB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(JobError, match="HF_TOKEN"):
        run_job(task_of(text_of("everything")), TARGETS["compose"], NO_IMAGES)


@pytest.mark.parametrize("name", [name for name in LAUNCHERS if name.startswith("kubernetes")])
def test_a_clusters_secrets_are_not_asked_of_the_shell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_TOKEN", "JOB_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Submission, "run", lambda _: 3)
    assert run_job(task_of(text_of("everything")), TARGETS[name], NO_IMAGES) == 3


def test_time_is_kept_where_the_target_cannot() -> None:
    assert kept_by_running("compose") == {"timeouts.job"}
    assert kept_by_running("docker") == kept_by_running("kubernetes") == frozenset()


def test_a_run_removes_its_job_itself_after_it_has_read_the_code() -> None:
    task = task_of(text_of("standalone") + "ttlSecondsAfterFinished: 0\n")
    assert "ttlSecondsAfterFinished: 0" in TARGETS["kubernetes"].render(task)
    assert "ttlSecondsAfterFinished" not in preview(task, TARGETS["kubernetes"])[0]


@pytest.mark.parametrize("name", ["docker", "compose"])
def test_an_image_with_code_leaves_the_engine_with_its_job(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From a registry, as `task.code` is not set, and made here, as it is."""
    daemon, ran = Daemon(), list[str]()
    daemon.hold("sha256:image", "registry.example.com/team/pytorch:2.13.0-cpu")
    (tmp_path / "train.py").write_text("")

    def run(task: Task, target: Target) -> int:
        if not task.image.endswith(":building"):
            daemon.hold("sha256:pulled", task.image)
        ran.append(daemon.resolve(task.image))
        return 3

    monkeypatch.setattr(running, "connect", lambda: daemon.engine)
    monkeypatch.setattr(running, "_run", run)
    task = task_of(text_of("layer"))
    code = CodeFolder(folder=tmp_path, names=("train.py",))
    assert run_job(replace(task, image="registry.example.com/team/pytorch:code-1"), TARGETS[name], NO_IMAGES) == 3
    assert run_job(replace(task, code=code), TARGETS[name], NO_IMAGES) == 3
    assert len(set(ran) | {"sha256:image"}) == 3
    assert set(daemon.pictures) == {"sha256:image"}
