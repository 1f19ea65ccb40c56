"""A run of smoke tests, on an engine and processes in memory: what is found, and that nothing of it stays."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engines import Box, Daemon, Program
from tests.unit.processes import Process, Processes, interrupt
from torchbake.checks.reports import ImageResult
from torchbake.checks.smoke_jobs import SmokeJob, SmokeOptions
from torchbake.checks.smoke_run import InContainers, OnHost, Session, SmokeRun, SmokeSubject, own_toolbox
from torchbake.checks.verdict import Outcome
from torchbake.core import processes as processes_module
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.engine import containers
from torchbake.engine.address import Address
from torchbake.engine.containers import ContainerNode
from torchbake.engine.gpu import GpuAccess
from torchbake.engine.runner import RUN, ContainerEnd
from torchbake.matrix.spec import TOOLBOX
from torchbake.oci.labels import ID

IMAGE = "acme/pytorch:cpu"
NONE = GpuAccess(how="none", reason="the engine has no nvidia runtime")
CDI = GpuAccess(how="cdi", reason="the engine says so")
PASSED, FAILED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN


def payloads_of(command: Sequence[str]) -> list[str]:
    words = list(command[1:])
    words = words[1:] if words[0].endswith("/smoke") else words
    return words[: words.index("--device")]


def lines(command: Sequence[str], verdict: str = "passed") -> str:
    """Return the output of payloads that all have this verdict."""
    device = command[list(command).index("--device") + 1]
    matches = [{"payload": name, "device": device, "verdict": verdict, "seconds": 0.5} for name in payloads_of(command)]
    return "".join(json.dumps(line) + "\n" for line in matches)


def good(box: Box) -> tuple[int, str, str]:
    """The first node of a job prints its verdict."""
    return 0, lines(box.command) if box.environment.get("NODE_RANK", "0") == "0" else "", ""


def daemon_with(program: Program = good, **settings: Any) -> Daemon:
    daemon = Daemon(program, **settings)
    daemon.hold("sha256:image", IMAGE)
    return daemon


def subject(daemon: Daemon, session: Session, name: str = "cpu", **changes: Any) -> SmokeSubject:
    family, gpu = changes.pop("family", "cpu"), changes.pop("gpu", NONE)
    image = changes.pop("image", IMAGE)
    place = InContainers(engine=daemon.engine, image=image, family=family, gpu=gpu, session=session, **changes)
    return SmokeSubject(
        name=name, ref=image, row=name, digest="sha256:image", family=family, expected={}, gpu=gpu, place=place
    )


def run(daemon: Daemon, *subjects: SmokeSubject, session: Session, jobs: int = 2, **options: Any) -> list[ImageResult]:
    arguments: dict[str, Any] = {"payloads": ("tensor", "autograd"), "nodes": 1, **options}
    smoke = SmokeRun(options=SmokeOptions(**arguments), session=session, engine=daemon.engine)
    return smoke.run(subjects, jobs=jobs)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster waits a second between workers and master."""
    before = containers.Cluster._pause
    monkeypatch.setattr(containers.Cluster, "_pause", lambda self, seconds: before(self, min(seconds, 0.01)))


def is_clean(daemon: Daemon) -> bool:
    return not daemon.boxes and not daemon.nets


def test_results_of_payloads_are_the_verdict_and_nothing_stays(session: Session) -> None:
    daemon = daemon_with()
    (result,) = run(daemon, subject(daemon, session), session=session)
    assert result.verdict
    assert (result.outcome, result.verdict.digest, result.verdict.id) == (PASSED, "sha256:image", "cpu")
    assert [(check.id, check.outcome) for check in result.checks] == [
        ("smoke.tensor[cpu]", PASSED), ("smoke.autograd[cpu]", PASSED),
    ]  # fmt: skip
    assert daemon.started
    assert is_clean(daemon)


def test_a_multi_node_job_has_its_network_and_starts_in_order(session: Session) -> None:
    daemon, open_nets = daemon_with(), list[int]()

    def look(box: Box) -> tuple[int, str, str]:
        open_nets.append(len(daemon.nets))
        return good(box)

    daemon.program = look
    (result,) = run(daemon, subject(daemon, session), session=session, payloads=("ddp",), nodes=3, nproc=2)
    assert [(check.id, check.outcome) for check in result.checks] == [
        ("smoke.ddp[gloo,3x2,workers-first]", PASSED), ("smoke.ddp[gloo,3x2,master-first]", PASSED),
    ]  # fmt: skip
    ranks = [box.environment["NODE_RANK"] for box in daemon.started]
    assert ranks == ["1", "2", "0", "0", "1", "2"]
    assert set(open_nets) == {1}
    assert {box.options["hostname"] for box in daemon.started} == {"node0", "node1", "node2"}
    assert is_clean(daemon)


def test_what_is_to_be_kept_stays_under_the_label_of_the_run() -> None:
    session, daemon = Session(keep=True), daemon_with()
    run(daemon, subject(daemon, session), session=session)
    assert [box.options["labels"][RUN] for box in daemon.boxes.values()] == [session.id]


def test_a_failed_payload_fails_its_image_alone_with_its_output(session: Session) -> None:
    daemon = daemon_with(
        lambda box: (139, "", "Fatal Python error: Segmentation fault") if box.image.endswith("bad") else good(box)
    )
    daemon.hold("sha256:bad", "acme/pytorch:bad")
    subjects = [subject(daemon, session, "bad", image="acme/pytorch:bad"), subject(daemon, session, "good")]
    bad, fine = run(daemon, *subjects, session=session)
    assert (bad.name, bad.outcome, fine.name, fine.outcome) == ("bad", FAILED, "good", PASSED)
    assert "Segmentation fault" in bad.checks[0].reason
    assert bad.checks[1].outcome is NOT_RUN
    assert is_clean(daemon)


def test_a_removed_image_is_not_tested_and_the_others_are(session: Session) -> None:
    daemon = daemon_with()
    result, fine = run(
        daemon, subject(daemon, session, "gone", image="acme/gone:1"), subject(daemon, session), session=session
    )
    assert result.verdict is None
    assert result.outcome is FAILED
    assert result.problem
    assert "acme/gone:1 is not in the engine" in result.problem.reason
    assert fine.outcome is PASSED
    assert is_clean(daemon)


def test_a_cuda_image_without_a_gpu_is_judged_on_the_cpu(session: Session) -> None:
    daemon = daemon_with()
    (result,) = run(daemon, subject(daemon, session, family="cuda"), session=session, payloads=("tensor",))
    assert {check.id: check.outcome for check in result.checks} == {
        "smoke.tensor[cpu]": PASSED, "smoke.tensor[cuda]": NOT_RUN,
    }  # fmt: skip
    (box,) = daemon.started
    assert box.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "device_requests" not in box.options


def test_with_a_gpu_only_the_jobs_on_it_get_it(session: Session) -> None:
    daemon = daemon_with(gpu=True)
    (result,) = run(daemon, subject(daemon, session, family="cuda", gpu=CDI), session=session, payloads=("tensor",))
    assert result.outcome is PASSED
    arguments = {box.command[box.command.index("--device") + 1]: box for box in daemon.started}
    assert "device_requests" not in arguments["cpu"].options
    assert arguments["cuda"].options["device_requests"] == [CDI.request]
    assert "NVIDIA_VISIBLE_DEVICES" not in arguments["cuda"].environment


def test_payloads_of_ours_are_mounted_where_an_image_has_none(session: Session, tmp_path: Path) -> None:
    daemon = daemon_with()
    run(daemon, subject(daemon, session, mounted=tmp_path), session=session)
    (box,) = daemon.started
    assert box.options["volumes"] == {str(tmp_path): {"bind": TOOLBOX, "mode": "ro"}}


def test_a_foreign_image_on_a_local_engine_gets_our_payloads() -> None:
    daemon = Daemon()
    assert own_toolbox(daemon.engine, {}) == OWN_TOOLBOX
    assert own_toolbox(daemon.engine, {ID: "2.13.0-cpu"}) is None
    daemon.address = Address(host="tcp://elsewhere:2375", origin="DOCKER_HOST")
    assert own_toolbox(daemon.engine, {}) is None


def test_interrupted_it_leaves_no_container_of_a_subject(session: Session) -> None:
    daemon = daemon_with()

    def hang(box: Box) -> None:
        if len(daemon.started) == 2:
            time.sleep(0.05)  # until the run waits for them
            interrupt()

    daemon.program = hang
    subjects = [subject(daemon, session, name) for name in ("a", "b", "c")]
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(daemon, *subjects, session=session)
    assert len(daemon.started) == 2
    assert is_clean(daemon)
    assert time.monotonic() - start < 5


def test_a_second_interruption_does_not_cut_the_clean_up_short(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = daemon_with()

    def hang(box: Box) -> None:
        time.sleep(0.05)  # until the run waits for it
        interrupt()
        assert session.stopping.wait(10)
        interrupt()
        time.sleep(0.05)

    daemon.program = hang
    with pytest.raises(KeyboardInterrupt):
        run(daemon, subject(daemon, session, "a"), session=session)
    assert is_clean(daemon)
    assert "still removing containers" in capsys.readouterr().err


def on_host(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[Process], int], session: Session, **changes: Any
) -> tuple[OnHost, Processes]:
    processes = Processes(work).stand_for(monkeypatch, processes_module)
    return OnHost(python=Path("/usr/bin/python3"), gpu_off=False, session=session, **changes), processes


HOST_JOB = SmokeJob(payloads=("tensor",), device="cpu")
HOST_NODE = ContainerNode(command=("/toolbox/smoke", "tensor", "--device", "cpu"))


def run_on(host: OnHost, limit: int = 60) -> ContainerEnd:
    (end,) = host.run(HOST_JOB, [HOST_NODE], limit, lambda _: None)
    return end


def write(process: Process, out: str = "", err: str = "") -> None:
    process.say(out)
    os.write(process.options["stderr"].fileno(), err.encode())


def test_a_hosts_python_runs_the_payloads_and_its_output_counts(
    monkeypatch: pytest.MonkeyPatch, session: Session
) -> None:
    def work(process: Process) -> int:
        write(process, lines(process.command[1:]), "a warning")
        return 0

    host, processes = on_host(monkeypatch, work, session)
    end = run_on(host)
    assert (end.code, end.good, end.stdout, end.stderr) == (0, True, lines(HOST_NODE.command), "a warning")
    (process,) = processes.all
    assert process.command == ["/usr/bin/python3", *HOST_NODE.command]
    assert not Path(process.options["cwd"]).exists()


def test_nothing_that_a_hosts_payload_started_outlives_it(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    def work(process: Process) -> int:
        process.orphans.add("a loader's worker")
        return 0

    host, processes = on_host(monkeypatch, work, session)
    run_on(host)
    assert processes.all[0].orphans == set()


def test_a_signal_ends_a_hosts_process_like_a_containers(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    host, _ = on_host(monkeypatch, lambda _: -signal.SIGSEGV, session)
    end = run_on(host)
    assert (end.code, end.how) == (139, "was ended by SIGSEGV")


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_hosts_process_that_does_not_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, session: Session, stubborn: bool
) -> None:
    def hang(process: Process) -> int:
        number = process.hear()
        return process.hear() if stubborn else 128 + number

    monkeypatch.setattr(processes_module, "_GRACE", 0.1)
    host, processes = on_host(monkeypatch, hang, session)
    end = run_on(host, limit=0)
    assert end.timed_out
    assert not end.good
    assert processes.all[0].messages == ([signal.SIGTERM, signal.SIGKILL] if stubborn else [signal.SIGTERM])


def test_a_run_that_stops_ends_the_hosts_process(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    host, processes = on_host(monkeypatch, lambda process: 128 + process.hear(), session)
    threading.Timer(0.05, session.stopping.set).start()
    with pytest.raises(KeyboardInterrupt):
        run_on(host)
    assert processes.all[0].returncode == 143


def test_subjects_are_told_in_the_order_in_which_they_were_given(session: Session) -> None:
    daemon = daemon_with()
    names = [f"n{number}" for number in range(5)]
    results = run(daemon, *(subject(daemon, session, name) for name in names), session=session, jobs=3)
    assert [one.name for one in results] == names
