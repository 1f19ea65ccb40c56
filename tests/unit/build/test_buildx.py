"""A builder by the description of `docker buildx inspect`."""

import subprocess
from typing import Any

import pytest

from torchbake.build import buildx
from torchbake.build.buildx import builder_driver, builder_platforms
from torchbake.errors import EngineError

TWO_NODES = """\
Name:          farm
Driver:        docker-container
Last Activity: 2026-11-01 10:00:00 +0000 UTC

Nodes:
Name:      farm0
Endpoint:  unix:///var/run/docker.sock
Status:    running
Buildkit:  v0.13.1
Platforms: linux/amd64*, linux/amd64/v2, linux/386

Name:      farm1
Endpoint:  ssh://arm
Status:    running
Platforms: linux/arm64*, linux/arm/v7
"""


# Of a new builder of `docker buildx create`, which nothing has used.
INACTIVE = """\
Name:          farm
Driver:        docker-container

Nodes:
Name:     farm0
Endpoint: unix:///var/run/docker.sock
Status:   inactive
"""


@pytest.fixture
def _inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        is_farm = command[-1] == "farm"
        farm = TWO_NODES if "--bootstrap" in command else INACTIVE
        text, error = (farm, "") if is_farm else ("", 'ERROR: no builder "x" found')
        return subprocess.CompletedProcess(command, not is_farm, text, error)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(buildx, "environment_of", lambda tool: {})
    monkeypatch.setattr(buildx, "docker_command", lambda *words: [*words])


@pytest.mark.usefixtures("_inspected")
def test_a_builder_has_the_platforms_of_all_its_nodes() -> None:
    assert builder_platforms("farm") == ("linux/amd64", "linux/amd64/v2", "linux/386", "linux/arm64", "linux/arm/v7")
    assert builder_driver("farm") == "docker-container"


@pytest.mark.usefixtures("_inspected")
def test_an_unknown_builder_is_an_error_with_buildxs_reason() -> None:
    with pytest.raises(EngineError, match='no builder "x" found'):
        builder_platforms("x")
