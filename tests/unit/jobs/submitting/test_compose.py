"""The output of docker about a project's containers is read as the state of a job."""

import json
from pathlib import Path

import pytest

from tests.unit.jobs.cases import task_of, text_of
from torchbake.jobs.launchers.compose import ComposeLauncher, code_of

TASK = task_of(text_of("gpus"))
COMPOSE = ComposeLauncher(TASK, Path("/tmp/x/mnist"), "")


def containers(**statuses: str) -> str:
    """Return the output of `docker ps` in the format of the command."""
    lines = []
    for service, status in statuses.items():
        state = "running" if status.startswith("Up") else "exited" if status.startswith("Exited") else "created"
        lines.append(json.dumps({"service": service.replace("_", "-"), "state": state, "status": status}))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("output", "code", "running"),
    [
        (containers(mnist_0="Up 2 seconds", mnist_1="Up 2 seconds"), None, True),
        (containers(mnist_0="Created", mnist_1="Up 2 seconds"), None, True),
        (containers(mnist_0="Up 2 seconds", mnist_1="Exited (3) 1 second ago"), None, True),
        (containers(mnist_0="Exited (3) 1 second ago", mnist_1="Up 2 seconds"), 3, True),
        (containers(mnist_0="Exited (0) 1 second ago", mnist_1="Exited (0) 1 second ago"), 0, False),
    ],
)
def test_it_ends_as_node_0_ends(output: str, code: int | None, running: bool) -> None:
    status = COMPOSE.read(0, output)
    assert status.code == code
    assert [stream.running for stream in status.streams] == [running]


def test_a_project_without_node_0_cannot_be_read() -> None:
    with pytest.raises(LookupError):
        COMPOSE.read(0, "")


def test_the_code_is_that_in_dockers_words() -> None:
    assert [code_of(f"Exited ({code}) 3 minutes ago") for code in (0, 3, 143)] == [0, 3, 143]


def test_what_is_there_already_is_not_taken_over() -> None:
    (check,) = COMPOSE.checks()
    assert check.refuse("") == ""
    assert "docker compose -p mnist down" in check.refuse("0123456789ab\n")


def test_nodes_get_their_time_to_end_and_volumes_stay() -> None:
    (down,) = COMPOSE.cancel()
    assert down[-2:] == ("--timeout", "45")
    assert "--volumes" not in down
    assert COMPOSE.clean() == COMPOSE.cancel()
