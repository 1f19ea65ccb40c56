"""Images one after the other from lock to registry, by commands in memory: their records, and the room on the disk."""

import json
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.builds import Buildx, small_project, spec_of
from tests.unit.engines import Daemon
from tests.unit.layouts import archive, file, put
from tests.unit.processes import Process, Processes, interrupt
from torchbake.build import buildx as builder_module
from torchbake.core.paths import TOOLKIT
from torchbake.engine.address import DEFAULT, Address
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.proof import run as proofrun
from torchbake.proof.record import Digests, Proof, ProofState, state_of
from torchbake.proof.run import ProofRun
from torchbake.store.layout import Layout

CPU, DEVEL = "2.13.0-cpu-runtime-debian12", "2.13.0-cpu-devel-debian12"
CUDA = "2.10.0-cuda12.8-cudnn9-runtime-debian12"
DIGEST = f"sha256:{'1' * 64}"
ITEMS = Digests(files=f"sha256:{'f' * 64}", lock=f"sha256:{'e' * 64}")


def check(name: str, outcome: str, reason: str = "") -> dict[str, str]:
    return {"id": name, "outcome": outcome, "reason": reason}


BUILT = {"status": "built", "reason": "", "size_bytes": 900}
TESTED: Mapping[str, Any] = {
    "problem": "",
    "counts": {"passed": 2, "failed": 0, "not-run": 1, "waived": 1},
    "checks": [
        check("files.setuid", "passed"), check("smoke.nccl", "not-run", "there is no GPU\nand more"),
        check("users.root", "waived", "it is an init image\nuid 0"), check("x", "passed"),
    ],
}  # fmt: skip
PUBLISHED = {"problem": "", "action": "release", "digest": DIGEST, "tested": DIGEST, "tag": f"{CPU}-r0"}


@dataclass
class Commands:
    """`python -m torchbake COMMAND ID …` in memory. ``say`` has each command's result for an image, or its output."""

    say: dict[str, Any] = field(default_factory=lambda: {"build": BUILT, "test": TESTED, "publish": PUBLISHED})
    queries: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    hangs: str = ""

    def __call__(self, process: Process) -> int:
        assert process.command[1:3] == ["-m", "torchbake"]
        command = process.command[3]
        self.queries.append(" ".join(process.command[3:]))
        if command == self.hangs:
            process.wait_for_attention()
            interrupt()
            return 128 + process.hear()
        answer = self.say[command]
        process.say(answer if isinstance(answer, str) else json.dumps({"images": [answer]}))
        return self.codes.get(command, 0)


@dataclass
class Works:
    """A project, an engine, commands, and a disk with ``free`` bytes on it."""

    project: Project
    commands: Commands
    processes: Processes
    daemon: Daemon = field(default_factory=Daemon)
    free: int = 100
    lines: list[str] = field(default_factory=list)
    finished: list[Spec] = field(default_factory=list)

    def prove(self, name: str = CPU, *, room: int = 0) -> Proof:
        run = ProofRun(
            project=self.project, engine=self.daemon.engine, where=("--registry", "host/team"), gpu="require",
            room=room, say=self.lines.append, finished=self.finished,
        )  # fmt: skip
        return run.prove(spec_of(self.project, name), lambda _: ITEMS)

    def hold(self, *names: str) -> dict[str, str]:
        """Finished images: their digests by id."""
        digests = {}
        for name in names:
            spec = spec_of(self.project, name)
            content = archive(file("a", name.encode()))
            digests[name] = put(self.layout, content)
            self.daemon.hold(digests[name], *(f"{spec.repository}:{tag}" for tag in self.project.tags[name]))
            self.finished.append(spec)
        return digests

    @property
    def layout(self) -> Layout:
        return Layout(folder=self.project.layout)


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Works:
    commands = Commands()
    processes = Processes(commands).stand_for(monkeypatch, proofrun)
    monkeypatch.setattr(proofrun, "revision", lambda _: "c0ffee")
    works = Works(project=small_project(tmp_path), commands=commands, processes=processes)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=works.free))
    return works


def test_a_record_says_what_every_step_found(works: Works) -> None:
    released = put(works.layout, archive(file("a", b"x" * 100)))
    works.commands.say["publish"] = {**PUBLISHED, "digest": released, "tested": released}
    proof = works.prove()
    assert state_of(proof, ITEMS) is ProofState.PASSED
    assert (proof.id, proof.files, proof.lock) == (CPU, ITEMS.files, ITEMS.lock)
    assert (proof.digest, proof.tag) == (released, f"{CPU}-r0")
    assert (proof.uncompressed_bytes, proof.counts) == (900, TESTED["counts"])
    assert (proof.not_run, proof.waived) == ({"smoke.nccl": "there is no GPU"}, {"users.root": "it is an init image"})
    manifest = works.layout.find(released)
    assert manifest
    assert proof.compressed_bytes == sum(layer.size for layer in manifest.layers)


def test_the_commands_are_those_that_users_type(works: Works) -> None:
    works.prove()
    matrix = works.project.root / "matrix.yaml"
    assert works.commands.queries == [
        f"build {CPU} --locked --matrix {matrix} --format json",
        f"test {CPU} --gpu require --matrix {matrix} --format json",
        f"publish {CPU} --registry host/team --matrix {matrix} --format json",
    ]
    assert {process.options["cwd"] for process in works.processes.all} == {TOOLKIT}


FAILURES: Mapping[str, tuple[str, Any, str, list[str]]] = {
    "not built": ("build", {**BUILT, "status": "failed", "reason": "no wheel"}, "build: no wheel", ["build"]),
    "skipped": ("build", {**BUILT, "status": "skipped", "reason": "no base"}, "build: no base", ["build"]),
    "a failed check": (
        "test", {**TESTED, "checks": [check("x", "passed"), check("files.setuid", "failed"), check("y", "failed")]},
        "test: files.setuid, y", ["build", "test"],
    ),
    "no check that passed": (
        "test", {**TESTED, "checks": [check("x", "not-run", "no GPU")]}, "test: nothing was checked", ["build", "test"],
    ),
    "not tested": ("test", {**TESTED, "problem": "it is gone"}, "test: it is gone", ["build", "test"]),
    "not published": (
        "publish", {**PUBLISHED, "problem": "not ours"}, "publish: not ours", ["build", "test", "publish"],
    ),
    "rolled back": (
        "publish", {**PUBLISHED, "action": "held"},
        "publish: this release was rolled back, and stays so until nox -s promote", ["build", "test", "publish"],
    ),
    "another build": (
        "publish", {**PUBLISHED, "digest": "sha256:theirs"},
        "publish: the registry has another build of the same inputs (sha256:theirs)", ["build", "test", "publish"],
    ),
    "refused by the second registry": (
        "publish", json.dumps({"images": [PUBLISHED, {**PUBLISHED, "problem": "no login"}]}), "publish: no login",
        ["build", "test", "publish"],
    ),
    "a command that said nothing": ("test", "", "test: ended with exit code 3", ["build", "test"]),
    "a command that said something else": ("test", "Killed", "test: ended with exit code 3", ["build", "test"]),
    "a command that knows no such image": ("build", '{"images": []}', "build: ended with exit code 3", ["build"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_step_is_recorded_and_ends_the_images_steps(works: Works, case: str) -> None:
    command, answer, problem, commands = FAILURES[case]
    works.commands.say[command], works.commands.codes[command] = answer, 3
    proof = works.prove()
    assert proof.problem == problem
    assert state_of(proof, ITEMS) is ProofState.FAILED
    assert [text.partition(" ")[0] for text in works.commands.queries] == commands
    assert proof.digest == ""


def test_an_image_that_is_there_already_is_proved_too(works: Works) -> None:
    works.commands.say["build"] = {**BUILT, "status": "up-to-date", "size_bytes": None}
    proof = works.prove()
    assert (proof.problem, proof.uncompressed_bytes) == ("", 0)


def test_where_there_is_room_everything_stays(works: Works) -> None:
    digests = works.hold(CPU, DEVEL)
    works.prove(CUDA, room=works.free)
    assert set(works.daemon.pictures) == set(digests.values())
    assert works.lines == [f"{command} {CUDA}" for command in ("build", "test", "publish")]


def test_on_a_short_disk_finished_images_outside_the_stack_go(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    buildx = Buildx(works.daemon, cache={"old"})
    Processes(buildx).stand_for(monkeypatch, builder_module)
    digests = works.hold(CPU, CUDA)
    works.daemon.hold("sha256:somebody's", "somebody/else:1")
    works.prove(DEVEL, room=works.free + 1)
    assert set(works.daemon.pictures) == {digests[CPU], "sha256:somebody's"}
    assert [bool(works.layout.find(digest)) for digest in digests.values()] == [True, False]
    assert buildx.cache == set()
    assert [spec.id for spec in works.finished] == [CPU, DEVEL]


def test_the_fuller_local_disk_decides(works: Works, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engines = tmp_path / "engine"
    engines.mkdir()
    works.daemon.info()["DockerRootDir"] = str(engines)
    Processes(Buildx(works.daemon)).stand_for(monkeypatch, builder_module)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10 if folder == engines else 100))
    digests = works.hold(CPU)
    works.daemon.address = Address(host="tcp://elsewhere:2375", origin="DOCKER_HOST")
    works.prove(CUDA, room=50)
    assert set(works.daemon.pictures) == set(digests.values())
    works.daemon.address = DEFAULT
    works.prove(CUDA, room=50)
    assert set(works.daemon.pictures) == set()


def test_interrupted_it_asks_the_command_to_end_and_waits_for_it(works: Works) -> None:
    works.commands.hangs = "test"
    with pytest.raises(KeyboardInterrupt):
        works.prove()
    assert [process.returncode for process in works.processes.all] == [0, 128 + signal.SIGTERM]
