"""Images for another architecture: who needs an emulator, and an engine's machine that has none."""

import pytest

from tests.unit.engines import Daemon
from torchbake.engine.architecture import NO_FORMAT, foreign_platform
from torchbake.engine.containers import Cluster, ContainerNode
from torchbake.engine.runner import ContainerEnd, Runner
from torchbake.errors import EngineError

OURS, THEIRS = "sha256:ours", "sha256:theirs"


@pytest.fixture
def daemon() -> Daemon:
    daemon = Daemon()
    daemon.hold(OURS, "ours:latest")
    daemon.hold(THEIRS, "theirs:latest", architecture="arm64")
    return daemon


def test_only_another_architecture_needs_an_emulator(daemon: Daemon) -> None:
    assert foreign_platform(daemon.engine, OURS) == ""
    assert foreign_platform(daemon.engine, "theirs:latest") == "linux/arm64"


def test_an_engine_on_arm_runs_its_own_images(daemon: Daemon) -> None:
    daemon.info()["Architecture"] = "aarch64"
    assert foreign_platform(daemon.engine, THEIRS) == ""
    assert foreign_platform(daemon.engine, OURS) == "linux/amd64"


def test_a_missing_image_is_an_error(daemon: Daemon) -> None:
    with pytest.raises(EngineError, match="nobody is not in the engine"):
        Runner(daemon.engine).container("nobody")


def test_containers_of_another_architecture_name_their_platform(daemon: Daemon) -> None:
    for image, options in ((OURS, {}), (THEIRS, {"platform": "linux/arm64"})):
        with Cluster(daemon.engine, image) as cluster:
            cluster.run([ContainerNode(command=("true",)), ContainerNode(command=("true",))], delay=0)
        boxes = daemon.started[-2:]
        assert [{key: box.options[key] for key in ("platform",) if key in box.options} for box in boxes] == [
            options
        ] * 2


@pytest.mark.parametrize(
    ("end", "foreign"),
    [
        (ContainerEnd(name="a", code=1, stderr="exec /usr/bin/tini: exec format error"), True),
        (ContainerEnd(name="a", code=125, problem=f"runc create failed: {NO_FORMAT.capitalize()}"), True),
        (ContainerEnd(name="a", code=1, stderr="no space left on device"), False),
        (ContainerEnd(name="a", code=0, stderr="it read the words exec format error"), False),
    ],
)
def test_the_kernel_says_that_it_does_not_run_a_program(end: ContainerEnd, foreign: bool) -> None:
    assert end.is_foreign is foreign
