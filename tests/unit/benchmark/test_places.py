"""Places: none is taken for another."""

from tests.unit.benchmark.cases import plan_of
from torchbake.benchmark.places import names_of


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
