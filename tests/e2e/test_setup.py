"""`setup` and `teardown` on this machine, where an engine already runs; the tests start more engines in parallel."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.waiting import until
from torchbake.errors import SetupError
from torchbake.setup import dockerd, leftovers
from torchbake.setup.paths import EnginePaths

pytestmark = pytest.mark.setup

ROOT = Path(__file__).parents[2]
# Without a new network namespace, a second dockerd would share docker0 and the firewall with the first.
ALONE = ("unshare", "--net", "--")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starting an engine by hand needs root")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Second(NamedTuple):
    """The folder, paths and environment of a second engine."""

    folder: Path
    paths: EnginePaths
    env: dict[str, str]

    def run(self, *words: str) -> Outcome:
        return torchbake(*words, env=self.env, prefix=ALONE)

    def start(self, *words: str, stderr: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        command = [*ALONE, sys.executable, "-m", "torchbake", *words]
        env = {**_environment(), **self.env}
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def leftovers(self) -> list[str]:
        """Processes and mounts that name the folder."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line for line in [*lines, *_command_lines()] if f"{self.folder}/" in line]


def _command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue


def torchbake(*words: str, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()) -> Outcome:
    process = subprocess.run(
        [*prefix, sys.executable, "-m", "torchbake", *words],
        cwd=ROOT,
        env={**_environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return Outcome(process.returncode, process.stdout, process.stderr)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TORCHBAKE_ENGINE_DIR"}


def engines() -> set[str]:
    """Every dockerd of this machine, but for those of these tests."""
    return {line for line in _command_lines() if line.split(" ")[0].endswith("dockerd") and "/tmp/tb-" not in line}


def docker(second: Second, *words: str) -> str:
    command = ["docker", "--host", second.paths.endpoint, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


@pytest.fixture
def second() -> Iterator[Second]:
    before = engines()
    folder = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))  # short: sockets allow 107 bytes
    env = {"TORCHBAKE_ENGINE_DIR": str(folder)}
    place = Second(folder, EnginePaths.from_env(env), env)
    yield place
    place.run("teardown", "--purge")
    left = place.leftovers()
    shutil.rmtree(folder)
    assert left == []
    assert engines() == before


def test_a_ready_machine_is_left_alone() -> None:
    before = engines()
    for _ in range(2):
        began = time.monotonic()
        outcome = torchbake("setup")
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith("ready: engine ")
        assert "buildx" in outcome.out
        assert time.monotonic() - began < 10  # 0.2 s on a quiet machine; to start an engine takes longer
    assert engines() == before


def test_check_of_a_ready_machine() -> None:
    outcome = torchbake("setup", "--check", "--format", "json")
    facts = json.loads(outcome.out)
    assert outcome.code == 0
    assert facts["ready"] is True
    assert facts["engine"]["version"]
    assert facts["steps"] == []


def test_check_without_docker_in_path(tmp_path: Path) -> None:
    outcome = torchbake("setup", "--check", "--format", "json", env={"PATH": str(tmp_path)})
    facts = json.loads(outcome.out)
    assert outcome.code == 10
    assert facts["ready"] is False
    assert "no docker command in PATH" in facts["problem"]
    assert any("docker" in step["do"] for step in facts["steps"])


def test_an_engine_chosen_elsewhere_is_named_and_none_is_started() -> None:
    before = engines()
    outcome = torchbake("setup", env={"DOCKER_HOST": "tcp://127.0.0.1:9"})
    assert outcome.code == 10
    assert "DOCKER_HOST is tcp://127.0.0.1:9" in outcome.err
    assert engines() == before


@pytest.mark.parametrize("words", [("setup", "--check", "--dry-run"), ("setup", "--yes"), ("teardown", "--all")])
def test_a_wrong_command_line(words: tuple[str, ...]) -> None:
    assert torchbake(*words).code == 2


@needs_root
def test_a_second_engine_lives_and_dies_alone(second: Second) -> None:
    assert second.run("setup", "--check").code == 10
    dry = second.run("setup", "--dry-run")
    assert dry.code == 0
    assert f"1. start dockerd: socket {second.paths.socket}" in dry.err
    assert leftovers.daemon(second.paths) is None

    started = second.run("setup")
    assert started.code == 0, started.err
    assert "containerd image store" in started.out
    pid = leftovers.daemon(second.paths)
    assert docker(second, "info", "--format", "{{.DockerRootDir}}").strip() == str(second.paths.data_root)
    assert second.run("setup").out == started.out
    assert leftovers.daemon(second.paths) == pid

    stopped = second.run("teardown")
    assert stopped.code == 0, stopped.err
    assert second.leftovers() == []
    assert second.paths.data_root.is_dir()
    assert "nothing to stop" in second.run("teardown").err
    assert "removed" in second.run("teardown", "--purge").err
    assert not second.paths.data_root.exists()


@needs_root
def test_two_setups_at_once_start_one_engine(second: Second) -> None:
    both = [second.start("setup") for _ in range(2)]
    outputs = [process.communicate(timeout=180)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert len([line for line in _command_lines() if f"--pidfile={second.paths.pidfile}" in line]) == 1


@needs_root
def test_an_engine_that_another_setup_is_starting_is_waited_for(second: Second) -> None:
    assert second.run("setup").code == 0
    pid = leftovers.daemon(second.paths)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it listens and does not answer, as while it loads
    with second.start("setup", stderr=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert it.stderr is not None
        try:
            assert "is starting; waiting for it" in it.stderr.readline()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "ready: engine" in it.stdout.read()
    assert it.returncode == 0
    assert leftovers.daemon(second.paths) == pid


@needs_root
def test_a_crashed_engine_is_cleared_or_started_again(second: Second) -> None:
    for command in ("setup", "teardown"):
        assert second.run("setup").code == 0
        crashed = leftovers.daemon(second.paths)
        assert crashed is not None
        os.kill(crashed, signal.SIGKILL)
        until(lambda: leftovers.daemon(second.paths) is None)
        again = second.run(command)
        assert again.code == 0, again.err
    assert second.leftovers() == []


@needs_root
@pytest.mark.parametrize(
    ("config", "extra", "output"),
    [
        ("{broken", (), "unable to configure the Docker daemon"),
        pytest.param("{}", ("--no-such-flag",), "unknown flag", marks=pytest.mark.long),
    ],
)
def test_a_start_that_fails_shows_the_end_of_the_log(
    second: Second, config: str, extra: tuple[str, ...], output: str
) -> None:
    with pytest.raises(SetupError, match=output) as caught:
        dockerd.start(second.paths, config, extra=extra)
    assert str(second.paths.log) in caught.value.message
    assert second.leftovers() == []
    assert not second.paths.pidfile.exists()


@needs_root
@pytest.mark.parametrize("foreign", [pytest.param("file", marks=pytest.mark.long), "folder"])
def test_data_that_is_not_an_engines_is_neither_used_nor_removed(second: Second, foreign: str) -> None:
    content = second.paths.data_root if foreign == "file" else second.paths.data_root / "thesis.txt"
    content.parent.mkdir(exist_ok=True)
    content.write_text("mine")
    for words in (("setup",), ("teardown", "--purge")):
        outcome = second.run(*words)
        assert outcome.code == 10
        assert str(second.paths.data_root) in outcome.err
    assert content.read_text() == "mine"


@needs_root
def test_a_pid_file_that_names_another_process_harms_nobody(second: Second) -> None:
    second.paths.state.mkdir()
    second.paths.pidfile.write_text(str(os.getpid()))
    assert "nothing to stop" in second.run("teardown").err
    assert second.run("setup").code == 0
    assert leftovers.daemon(second.paths) not in (None, os.getpid())
