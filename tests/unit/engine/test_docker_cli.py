"""Reading the answer of `docker info`, with and without an engine behind it."""

import json
from typing import Any

from torchbake.engine.docker_cli import parse_info

BUILDX = {"Name": "buildx", "Version": "0.13.1+ds1", "Path": "/usr/libexec/docker/cli-plugins/docker-buildx"}
CLIENT = {"Version": "28.2.2", "Context": "default", "Plugins": [BUILDX]}


def info(**facts: Any) -> str:
    return json.dumps({"ClientInfo": CLIENT, **facts})


def test_an_engine_that_answers_is_known_with_buildx() -> None:
    value = parse_info("/usr/bin/docker", 0, info(ID="a", ServerVersion="26.1.5"), "")
    assert (value.info["ID"], value.buildx, value.buildx_path) == ("a", BUILDX["Version"], BUILDX["Path"])


def test_without_an_engine_the_reason_and_buildx_are_known() -> None:
    silent = info(ID="", ServerErrors=["Cannot connect to the Docker daemon"])
    value = parse_info("/usr/bin/docker", 1, silent, "")
    assert (value.info, value.error, value.buildx) == ({}, "Cannot connect to the Docker daemon", BUILDX["Version"])


def test_what_is_no_answer_of_dockers_is_an_error() -> None:
    for code, output, errors, words in (
        (1, "", "docker: unknown flag\n", "unknown flag"),
        (1, "", "", "exit code 1"),
        (0, "[1]", "", "exit code 0"),
        (0, json.dumps({"host": {}, "store": {"graphRoot": "/x"}}), "", "podman's command"),
    ):
        value = parse_info("/usr/bin/docker", code, output, errors)
        assert (value.info, value.buildx) == ({}, None)
        assert words in value.error


def test_a_docker_without_plugins_has_no_buildx() -> None:
    value = parse_info("docker", 0, json.dumps({"ServerVersion": "20.10.24", "ClientInfo": {"Plugins": None}}), "")
    assert value.buildx is None


def test_podmans_command_is_no_docker_command() -> None:
    value = parse_info("/usr/bin/docker", 0, json.dumps({"host": {}, "store": {"graphRoot": "/x"}}), "")
    assert value.path is None
