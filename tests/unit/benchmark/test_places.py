"""Places: none is taken for another."""

from pathlib import Path

import pytest

from tests.unit.benchmark.cases import experiment, plan_of
from torchbake.benchmark import places
from torchbake.benchmark.expand import PlaceName
from torchbake.benchmark.field_types import PlanHost
from torchbake.benchmark.places import Finder, names_of
from torchbake.checks.smoke_run import Session
from torchbake.engine.gpu import GpuAccess


def test_two_pythons_of_a_host_are_two_places_for_one_rule() -> None:
    matches = names_of((), plan_of(HOSTS).hosts, None)
    assert [(place_name.name, place_name.word) for place_name, _ in matches] == [
        ("foo", "foo"), ("foo /a/python /bench", "foo"), ("foo /b/python /bench", "foo"), ("foo /b/bench", "foo"),
        ("/venv/bin/python", "/venv/bin/python"), ("/venv/bin/python /bench", "/venv/bin/python"),
    ]  # fmt: skip


HOSTS = """models: [a]
hosts:
  - {ssh: foo}
  - {ssh: foo, python: /a/python, bench: /bench}
  - {ssh: foo, python: /b/python, bench: /bench}
  - {ssh: foo, bench: /b/bench}
  - {python: /venv/bin/python}
  - {python: /venv/bin/python, bench: /bench}
"""


def problem(host: PlanHost, mode: str, *, gpus: int = 1) -> str:
    finder = Finder(engine=None, session=Session(), folder=Path.cwd(), timeout=9, gpu=mode)
    place = finder.place(PlaceName(kind="host", word=host.word, name=host.name), host)
    actual = place.problem(experiment(gpus=gpus))
    return actual.reason if actual else ""


@pytest.mark.parametrize(
    ("mode", "there", "here", "over_ssh"),
    [
        ("auto", False, "no GPU: none", ""),
        ("auto", True, "", ""),
        ("require", False, "a GPU is required (--gpu require), but none", ""),
        ("off", True, "GPU checks are off (--gpu off)", "GPU checks are off (--gpu off)"),
    ],
)
def test_what_gpu_means_for_hosts(
    monkeypatch: pytest.MonkeyPatch, mode: str, there: bool, here: str, over_ssh: str
) -> None:
    monkeypatch.setattr(places, "gpu_of_host", lambda: GpuAccess(how="host" if there else "none", reason="none"))
    assert problem(PlanHost(), mode) == here
    assert problem(PlanHost(ssh="foo"), mode) == over_ssh
    assert problem(PlanHost(), mode, gpus=0) == ""
