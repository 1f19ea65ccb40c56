"""The numbers of releases by their codenames."""

import pytest

from torchbake.advisories.codenames import distribution_of_suite
from torchbake.matrix.distributions import DISTRIBUTIONS
from torchbake.matrix.platforms import bases_of
from torchbake.matrix.project import Project


def test_every_base_has_a_release_that_advisories_name(project: Project) -> None:
    bases = [*bases_of(project.expansion.specs), *DISTRIBUTIONS]
    names = {one.name: distribution_of_suite(one.distribution, one.suite) for one in bases}
    assert names["debian12"] == "debian:12"
    assert all(name.partition(":")[0] in ("debian", "ubuntu") and name[-1].isdigit() for name in names.values()), names


@pytest.mark.parametrize(("distribution", "suite"), [("debian", "sid"), ("debian", "noble"), ("fedora", "44")])
def test_an_unknown_suite_has_no_release(distribution: str, suite: str) -> None:
    assert distribution_of_suite(distribution, suite) == ""
