"""A job on an engine in memory: its end, its remains, and the signals to its nodes."""

import io
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import APIError

from tests.unit.engines import Box, Daemon
from torchbake.errors import EngineError, JobError
from torchbake.jobs import local
from torchbake.jobs.launchers import TIMED_OUT
from torchbake.jobs.load import read_job
from torchbake.jobs.local import run_here
from torchbake.jobs.output import Output
from torchbake.jobs.task import Task
from torchbake.oci.labels import ID

IMAGE, INIT = "acme/pytorch:cpu", "acme/init:1"
HEAD = f"name: mnist\nimage: {IMAGE}\n"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that runs ten times as fast."""
    clock = SimpleNamespace(monotonic=lambda: 10 * time.monotonic(), sleep=lambda seconds: time.sleep(seconds / 10))
    monkeypatch.setattr(local, "time", clock)
    monkeypatch.setattr(local, "_LOOK", 0.05)
    monkeypatch.setattr(local, "grace_of", lambda _: 0.5)


def daemon_of(codes: Mapping[str, int | None], *, gpu: bool = False) -> Daemon:
    """An engine whose containers end with these codes, by host; None runs on, and one without a host fixes volumes."""

    def program(box: Box) -> tuple[int, str, str] | None:
        code = codes[box.options.get("hostname", "fix")]
        return None if code is None else (code, f"{box.options.get('hostname')} said\n", "warned\n")

    daemon = Daemon(program, gpu=gpu)
    daemon.hold("sha256:image", IMAGE, labels={ID: "cpu"})
    daemon.hold("sha256:init", INIT)
    return daemon


def run(
    daemon: Daemon, text: str, environ: Mapping[str, str] | None = None, script: str = "script: train.py"
) -> tuple[int, str]:
    """The exit code, and what was shown of stdout."""
    job = read_job(HEAD + script + "\n" + text, Path("job.yaml"))[0]
    out = io.BytesIO()
    task = Task(job=job, image=IMAGE, init_image=INIT)
    code = run_here(daemon.engine, task, environ or {}, Output(out, io.BytesIO()))
    return code, out.getvalue().decode()


@pytest.fixture
def missing() -> Iterator[list[Daemon]]:
    """Daemons in which nothing is left in the end."""
    daemons: list[Daemon] = []
    yield daemons
    for daemon in daemons:
        assert (daemon.boxes, daemon.nets) == ({}, {})


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({"mnist-0": 0, "mnist-1": 0}, 0),
        ({"mnist-0": 7, "mnist-1": 7}, 7),
        ({"mnist-0": 0, "mnist-1": None}, 0),  # what does not end with node 0 is stopped
        ({"mnist-0": None, "mnist-1": 3}, 3),  # lost before they had met: nobody comes any more
    ],
)
def test_it_ends_as_the_job_ends(codes: dict[str, int | None], code: int, missing: list[Daemon]) -> None:
    missing.append(daemon := daemon_of(codes))
    # The time is far longer than this takes: a job that waits for nobody ends with another code.
    assert run(daemon, "nodes: 2\ntimeouts: {job: 5}\n")[0] == code
    for box in daemon.started:
        assert (signal.SIGTERM in box.messages) == (codes[box.options["hostname"]] is None)


def test_an_image_without_run_takes_a_command_alone(missing: list[Daemon]) -> None:
    missing.append(daemon := daemon_of({"mnist": 0}))
    daemon.hold("sha256:image", IMAGE)
    with pytest.raises(JobError, match=r"has no label org\.torchbake\.id.*has no `run`.*command: torchrun train\.py"):
        run(daemon, "")
    assert not daemon.started
    assert run(daemon, "", script="command: [python, -V]")[0] == 0
    (box,) = daemon.started
    assert box.command == ("python", "-V")


def test_an_elastic_job_bears_a_lost_node(missing: list[Daemon]) -> None:
    missing.append(daemon := daemon_of({"mnist-0": None, "mnist-1": 3, "mnist-2": None}))
    assert run(daemon, "elastic: 1:3\ntimeouts: {job: 1}\n")[0] == TIMED_OUT


def test_each_node_is_shown_by_its_name_and_one_alone_as_it_is(missing: list[Daemon]) -> None:
    missing += [daemon_of({"mnist-0": 0, "mnist-1": 0}), daemon_of({"mnist": 0})]
    assert sorted(run(missing[0], "nodes: 2\n")[1].splitlines()) == ["mnist-0 | mnist-0 said", "mnist-1 | mnist-1 said"]
    assert run(missing[1], "")[1] == "mnist said\n"


def test_nodes_find_each_other_and_carry_the_jobs_labels(missing: list[Daemon]) -> None:
    missing.append(daemon := daemon_of({"mnist-0": 0, "mnist-1": 0}))
    run(daemon, "nodes: 2\nlabels: {team: vision}\n")
    assert [box.options["hostname"] for box in daemon.started] == ["mnist-1", "mnist-0"]
    for box in daemon.started:
        (network,) = box.options["networking_config"].values()
        assert network["Aliases"] == [box.options["hostname"]]
        assert box.options["labels"]["team"] == "vision"
        assert (box.image, box.environment["MASTER_ADDR"]) == ("sha256:image", "mnist-0")


def test_after_its_time_it_is_stopped(missing: list[Daemon]) -> None:
    missing.append(daemon := daemon_of({"mnist": None}))
    assert run(daemon, "timeouts: {job: 1}\n")[0] == TIMED_OUT
    assert daemon.started[0].messages == [signal.SIGTERM, signal.SIGKILL]


def test_an_interrupt_lets_nodes_save_and_leaves_nothing(
    missing: list[Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing.append(daemon := daemon_of({"mnist": None}))
    daemon.on_signal = lambda _: 143

    def interrupt(self: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(local.LocalNodes, "_watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(daemon, "")
    assert daemon.started[0].messages == [signal.SIGTERM]


def test_secrets_come_from_the_shell_and_all_missing_are_listed(missing: list[Daemon]) -> None:
    text = "secrets: {HF_TOKEN: {secret: hub, key: token}, OTHER: {secret: a, key: b}}\n"
    missing.append(daemon := daemon_of({"mnist": 0}))
    with pytest.raises(JobError, match=r"HF_TOKEN \(the key token of hub\), OTHER \(the key b of a\)"):
        run(daemon, text)
    run(daemon, text, {"HF_TOKEN": "x", "OTHER": "y", "HOME": "/"})
    assert {name: daemon.started[0].environment.get(name) for name in ("HF_TOKEN", "OTHER", "HOME")} == {
        "HF_TOKEN": "x", "OTHER": "y", "HOME": None,
    }  # fmt: skip


def test_volumes_are_made_writable_before_or_nothing_is_started(missing: list[Daemon]) -> None:
    text = "volumes: [{claim: data, mountPath: /data, permissions: fix}]\n"
    missing += [daemon_of({"mnist": 0, "fix": 0}), daemon_of({"mnist": 0, "fix": 4})]
    assert run(missing[0], text)[0] == 0
    assert [box.image for box in missing[0].started] == ["sha256:init", "sha256:image"]
    with pytest.raises(JobError, match="volume-permissions ended with 4: warned"):
        run(missing[1], text)
    assert [box.image for box in missing[1].started] == ["sha256:init"]


def test_missing_gpus_are_reported_before_a_container_is_created(missing: list[Daemon]) -> None:
    missing.append(daemon := daemon_of({"mnist": 0}))
    with pytest.raises(EngineError, match="The job wants GPUs, but the engine has no nvidia runtime"):
        run(daemon, "resources: {gpu: 1}\n")
    assert daemon.started == []


def test_what_the_engine_does_not_start_is_told_by_its_node(
    missing: list[Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing.append(daemon := daemon_of({"mnist-0": 0, "mnist-1": 0}))
    monkeypatch.setattr(local, "options_of", lambda *_: {"device_requests": ["a GPU"], "hostname": "x"})
    with pytest.raises(EngineError, match="mnist-1 did not start: could not select device driver"):
        run(daemon, "nodes: 2\n")


def test_a_program_that_the_image_lacks_is_told_in_words_of_ours(missing: list[Daemon]) -> None:
    """By runc for a name and for a path, and by crun; any other reason is the engine's."""
    for message, error in (
        ('runc create failed: exec: "nvcc": executable file not found in $PATH: unknown', JobError),
        ('runc create failed: exec: "/x/y": stat /x/y: no such file or directory: unknown', JobError),
        ("crun: executable file `nvcc` not found in $PATH: No such file or directory", JobError),
        ("error mounting /data: no such file or directory", EngineError),
    ):

        def refuse(_: Box, message: str = message) -> tuple[int, str, str]:
            raise APIError("400 Client Error", explanation=message)

        missing.append(daemon := Daemon(refuse))
        daemon.hold("sha256:image", IMAGE)
        with pytest.raises(error) as caught:
            run(daemon, "", script="command: [nvcc]")
        assert ("has no program nvcc" in str(caught.value)) is (error is JobError)
