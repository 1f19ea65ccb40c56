"""Images that can use a GPU, and images that get a GPU."""

import pytest

from tests.unit.engines import Daemon
from torchbake.checks import gpu as rule
from torchbake.checks.gpu import family_of, find_gpu
from torchbake.checks.smoke_run import Session
from torchbake.core.paths import TOOLKIT
from torchbake.engine.gpu import GpuAccess
from torchbake.matrix.project import load_project

IMAGE = "acme/pytorch:cpu"
CDI = GpuAccess(how="cdi", reason="the engine says so")
SPECS = load_project(TOOLKIT / "matrix.yaml").expansion.specs


def test_the_row_decides_if_its_image_can_use_a_gpu() -> None:
    for spec in SPECS:
        for config in ({}, {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}):
            assert family_of(spec, config) == ("cuda" if "-cuda" in spec.id else "cpu"), spec


def test_without_a_row_its_labels_and_variables_say_it() -> None:
    for config, family in (
        ({}, "cpu"),
        ({"Labels": None, "Env": None}, "cpu"),
        ({"Labels": {"org.torchbake.cuda": "12.8"}}, "cuda"),
        ({"Labels": {"org.torchbake.torch": "2.10.0"}}, "cpu"),
        ({"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"]}, "cuda"),
        ({"Env": ["NVIDIA_VISIBLE_DEVICES=0"]}, "cuda"),
        ({"Env": ["NVIDIA_VISIBLE_DEVICES=void"]}, "cpu"),
        ({"Env": ["NVIDIA_VISIBLE_DEVICES=none"]}, "cpu"),
        ({"Env": ["NVIDIA_VISIBLE_DEVICES="]}, "cpu"),
        ({"Env": ["NVIDIA_DRIVER_CAPABILITIES=all"]}, "cpu"),
    ):
        assert family_of(None, config) == family, (config, family)


@pytest.fixture
def session() -> Session:
    return Session()


def daemon_with(*, gpu: bool = False) -> Daemon:
    daemon = Daemon(lambda _: (0, "", ""), gpu=gpu)
    daemon.hold("sha256:image", IMAGE)
    return daemon


@pytest.mark.parametrize(
    ("family", "mode", "there", "how"),
    [
        ("cuda", "auto", True, "cdi"), ("cuda", "auto", False, "none"), ("cuda", "off", True, "none"),
        ("cpu", "require", True, "none"),
    ],
)  # fmt: skip
def test_an_engine_has_a_gpu_if_a_container_got_one(
    *, monkeypatch: pytest.MonkeyPatch, session: Session, family: str, mode: str, there: bool, how: str
) -> None:
    daemon = daemon_with(gpu=there)
    monkeypatch.setattr(rule, "look_for_gpu", lambda _: CDI)
    value = find_gpu(daemon.engine, IMAGE, family, mode, session)
    assert value.how == how
    if not there:
        assert value.reason == (
            "the engine says so, but it cannot start a container with it: could not select device driver"
        )
    assert not daemon.boxes


def test_a_dry_look_for_a_gpu_starts_nothing(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    daemon = daemon_with()
    monkeypatch.setattr(rule, "look_for_gpu", lambda _: CDI)
    assert find_gpu(daemon.engine, IMAGE, "cuda", "auto", session, dry=True) == CDI
    assert daemon.started == []
