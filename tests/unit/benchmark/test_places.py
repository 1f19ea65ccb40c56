"""Places: none is taken for another."""

from pathlib import Path

import pytest

from tests.unit.benchmark.cases import experiment, plan_of
from torchbake.benchmark import places
from torchbake.benchmark.expand import Named
from torchbake.benchmark.field_types import Host
from torchbake.benchmark.places import Finder, names_of
from torchbake.checks.smoke_run import Session
from torchbake.engine.gpu import Gpu


def test_two_pythons_of_one_host_are_two_places_and_a_rule_means_both() -> None:
    found = names_of((), plan_of(HOSTS).hosts, None)
    assert [(named.name, named.word) for named, _ in found] == [
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


def problem(host: Host, mode: str, *, gpus: int = 1) -> str:
    finder = Finder(engine=None, session=Session(), folder=Path.cwd(), timeout=9, gpu=mode)
    place = finder.place(Named(kind="host", word=host.word, name=host.name), host)
    found = place.problem(experiment(gpus=gpus))
    return found.reason if found else ""


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
    monkeypatch.setattr(places, "gpu_of_host", lambda: Gpu(how="host" if there else "none", reason="none"))
    assert problem(Host(), mode) == here
    assert problem(Host(ssh="foo"), mode) == over_ssh
    assert problem(Host(), mode, gpus=0) == ""
