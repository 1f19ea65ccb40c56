"""One module makes all objects in an engine. Each carries its owner, by which it can be removed."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.engines import Daemon
from torchbake.core.paths import TOOLKIT
from torchbake.engine.owner import owner_label
from torchbake.engine.runner import OWNER, RUN, ContainerEnd, Runner, owners
from torchbake.errors import EngineError

RUNNER = TOOLKIT / "torchbake/engine/runner.py"
SCRIPT = TOOLKIT / "torchbake/jobs/targets/docker.py"  # the text of one, for a shell
COMPOSE = TOOLKIT / "torchbake/jobs/launchers/compose.py"  # words for compose, which removes what it made by `down`
FOLDERS = ("torchbake", "tests/images", "benchmarks")
# Of the SDK: what is made by `client.containers.create(…)`, and by the lower `client.api.create_container(…)`.
COLLECTIONS = {"containers", "networks", "volumes", "services"}
MAKERS = {"create_container", "create_network", "create_volume", "create_container_from_config", "create_service"}
COMMANDS = {"run", "create", "container", "network", "volume", "compose"}  # of docker's
# In each text with such a line. To parse the others would take half a second.
POSSIBLE = re.compile(
    rf"""\b({"|".join(MAKERS)})\b|\b({"|".join(COLLECTIONS)})\s*\.\s*(create|run)\b|["'](docker|podman)["']"""
)


def makes(text: str) -> Iterator[int]:
    """The lines at which a module makes a container, a network or a volume."""
    if not POSSIBLE.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            made_by, name = node.func.value, node.func.attr
            of = made_by.attr if isinstance(made_by, ast.Attribute) else ""
            if name in MAKERS or (name in ("create", "run") and of in COLLECTIONS):
                yield node.lineno
        words = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
        lines = [word.value if isinstance(word, ast.Constant) else None for word in words[:2]]
        if isinstance(node, ast.expr) and lines[:1] in (["docker"], ["podman"]) and {*lines[1:]} & COMMANDS:
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "client.containers.create(image)",
        "self._client.containers.run(image)",
        "client.networks.create('x')",
        "engine.client.volumes.create()",
        "client.api.create_container(image)",
        "subprocess.run(['docker', 'run', image])",
        "_run('docker', 'create', image)",
    ],
)
def test_what_makes_something_is_seen(line: str) -> None:
    assert [*makes(line)] == [1]


@pytest.mark.parametrize(
    "line",
    [
        "self._containers.run('true')",
        "containers.run('true')",
        "docker('info')",
        "['docker', 'buildx', 'create']",
        "('docker', tag)",
    ],
)
def test_what_makes_nothing_is_not(line: str) -> None:
    assert [*makes(line)] == []


def test_the_runner_alone_makes_containers_networks_and_volumes() -> None:
    matches = {path: [*makes(path.read_text())] for folder in FOLDERS for path in (TOOLKIT / folder).rglob("*.py")}
    assert {path for path, lines in matches.items() if lines} == {RUNNER, SCRIPT, COMPOSE}
    assert len(matches[RUNNER]) == 4  # the last for `docker run`, whose words are shown


def test_the_script_of_a_job_is_text_that_nothing_starts_here() -> None:
    for path in (*SCRIPT.parent.glob("*.py"), *COMPOSE.parent.glob("*.py")):
        assert not re.search(r"(?m)^\s*(import|from) (subprocess|docker|os)\b", path.read_text()), path


@pytest.fixture
def daemon() -> Daemon:
    daemon = Daemon(lambda _: (0, "", ""))
    daemon.hold("sha256:image")
    return daemon


def make_one_of_each(runner: Runner) -> None:
    runner.container("sha256:image", ["true"])
    runner.network(internal=True)
    runner.volume()


def labels(daemon: Daemon) -> list[dict[str, str]]:
    boxes = [box.options["labels"] for box in daemon.boxes.values()]
    return [dict(one) for one in (*boxes, *daemon.nets.values(), *daemon.stores.values())]


def test_all_that_is_made_says_whose_it_is_and_of_which_run(daemon: Daemon) -> None:
    make_one_of_each(Runner(daemon.engine, run="a-run"))
    assert [(one[RUN], one[OWNER]) for one in labels(daemon)] == [("a-run", owner_label())] * 3
    assert owners(daemon.engine) == {owner_label()}


def test_what_shall_stay_has_no_owner(daemon: Daemon) -> None:
    make_one_of_each(Runner(daemon.engine, keep=True))
    assert [OWNER in one for one in labels(daemon)] == [False] * 3
    assert owners(daemon.engine) == set()


def test_a_runner_removes_all_that_it_made_and_nothing_else(daemon: Daemon) -> None:
    first, second = Runner(daemon.engine), Runner(daemon.engine)
    make_one_of_each(first)
    make_one_of_each(second)
    first.remove_all()
    assert [one[RUN] for one in labels(daemon)] == [second.id] * 3


def test_a_container_that_the_engine_does_not_start_says_why(daemon: Daemon) -> None:
    runner = Runner(daemon.engine)
    container = runner.container("sha256:image", ["true"], device_requests=["a GPU"])
    runner.start(container)
    end = runner.wait_for_end(container, "node0")
    assert (end.code, end.problem, end.good) == (125, "could not select device driver", False)
    assert end.last_words == end.problem


def test_an_image_that_is_not_there_is_told_with_a_next_step(daemon: Daemon) -> None:
    with pytest.raises(EngineError, match="sha256:other is not in the engine"):
        Runner(daemon.engine).container("sha256:other")


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (ContainerEnd(name="x", code=3), "ended with 3"),
        (ContainerEnd(name="x", code=137), "was ended by SIGKILL"),
        (ContainerEnd(name="x", code=137, out_of_memory=True), "was killed for lack of memory"),
        (ContainerEnd(name="x", code=137, timed_out=True, seconds=60), "did not end within 60 s, and was killed"),
        (ContainerEnd(name="x", code=125, problem="no driver"), "did not start: no driver"),
    ],
)
def test_how_a_container_ended_is_said(end: ContainerEnd, how: str) -> None:
    assert end.how == how
