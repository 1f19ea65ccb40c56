"""A key that a target cannot express is reported with file, line and key."""

from pathlib import Path

import pytest

from tests.unit.jobs.cases import LEAST, job_of
from torchbake.jobs.expressible import Cannot, Needs, impossible, keys_of, known_keys, sayable, unsupported_keys
from torchbake.jobs.load import job_problems
from torchbake.jobs.targets import TARGETS
from torchbake.jobs.task import Task
from torchbake.matrix.yaml_source import parse_document

GO_ON = {"openpai", "openpai-v1", "leaderworkerset"}


class Toy:
    """A launcher that supports few keys."""

    NAME, ABOUT, MOST_NODES, CARRIES_FILES = "toy", "a toy", 4, False
    CANNOT: tuple[Cannot, ...] = (
        Cannot(key="volumes[].size", why="there is no size"),
        Cannot(key="affinity", why="there is no place"),
        Cannot(key="restarts", why="not so", when=lambda job: job.restarts > 1, only="more than one"),
    )
    NEEDS: tuple[Needs, ...] = (Needs(key="resources.cpu", why="it counts"),)

    def render(self, task: Task) -> str:
        return task.image


def message_of(text: str) -> str:
    text = LEAST + text
    return job_problems(
        parse_document(text, Path("job.yaml")),
        [*impossible(job_of(text), Toy()), *unsupported_keys(job_of(text), Toy())],
    ).message


def test_each_key_of_a_job_has_its_place() -> None:
    job = job_of(LEAST + "volumes: [{claim: a, mountPath: /a}, {size: 1Gi, mountPath: /b}]\nenv: {A: b}\n")
    matches = list(keys_of(job))
    assert (("volumes", 1, "size"), "volumes[].size") in matches
    assert (("resources", "cpu"), "resources.cpu") in matches
    assert {key for _, key in matches} <= set(known_keys())
    assert "port" not in {key for _, key in matches}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "volumes: [{size: 1Gi, mountPath: /b}]",
            "job.yaml:5: volumes.0.size: toy cannot express this: there is no size",
        ),
        ("affinity: {nodeAffinity: {a: []}}", "job.yaml:5: affinity: toy cannot express this: there is no place"),
        ("restarts: 2", "job.yaml:5: restarts: toy cannot express this: not so"),
        ("nodes: 5", "job.yaml:5: nodes: 5 nodes are more than toy takes, 4"),
        ("elastic: 1:5", "job.yaml:5: elastic: 5 nodes are more than toy takes, 4"),
    ],
)
def test_a_key_that_a_target_cannot_express(text: str, message: str) -> None:
    assert message_of(text) == message


def test_a_key_that_a_target_needs() -> None:
    problems = impossible(job_of("name: a\nimage: b\nscript: c\n"), Toy())
    assert problems == [(("resources", "cpu"), "is missing, and toy needs it: it counts")]


def test_every_launcher_can_express_zero_restarts() -> None:
    for target in sorted({*TARGETS} - GO_ON):
        places = [place for place, _ in unsupported_keys(job_of(LEAST + "restarts: 0"), TARGETS[target])]
        assert ("restarts",) not in places, target


@pytest.mark.parametrize("target", sorted(GO_ON))
def test_a_launcher_that_goes_on_by_itself_refuses_restarts(target: str) -> None:
    ((place, _),) = unsupported_keys(job_of(LEAST + "restarts: 0"), TARGETS[target])
    assert place == ("restarts",)


def test_a_target_can_express_all_other_keys() -> None:
    can = sayable(Toy())
    assert "restarts" in can
    assert "volumes[].claim" in can
    assert not {"volumes[].size", "affinity", "affinity.nodeAffinity"} & set(can)
    job = job_of(LEAST + "restarts: 1\nnodes: 4")
    assert unsupported_keys(job, Toy()) == impossible(job, Toy()) == []
