"""The checks that a whole verdict on an image has."""

from collections.abc import Iterator

import pytest

from tests.images.checks import catalogue
from tests.unit.checks.test_verdict import check, verdict
from tests.unit.conftest import image, init_image
from torchbake.checks.expected import missing_checks, suite_checks
from torchbake.matrix.spec import Spec

pytestmark = pytest.mark.usefixtures("own_processes")

CPU = image("2.13.0", "cpu")
ROWS = (CPU, image(), init_image(), None)


@pytest.fixture(scope="module", autouse=True)
def _safe_path() -> Iterator[None]:
    """A Python that leaves out its folder lists the checks for all tests here, once, as a list takes half a second."""
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("PYTHONSAFEPATH", "1")
        suite_checks.cache_clear()
        yield


@pytest.mark.parametrize("spec", ROWS, ids=["cpu", "cuda", "init", "no row"])
def test_a_verdict_lacks_each_check_that_it_does_not_have(spec: Spec | None) -> None:
    names = missing_checks(verdict(check("x.y")), spec)
    assert {"metadata.labels", "files.setuid"} <= {*names}
    whole = [check(name) for name in names]
    assert missing_checks(verdict(*whole), spec) == ()
    assert missing_checks(verdict(*whole[1:]), spec) == names[:1]


def test_smoke_tests_are_those_of_the_options() -> None:
    smoke = {name for name in missing_checks(verdict(how=("nodes=3", "nproc=None")), CPU) if name.startswith("smoke")}
    assert "smoke.tensor[cpu]" in smoke
    assert any("3x2" in name for name in smoke)
    assert not any("cuda" in name for name in smoke)


def test_a_python_that_leaves_out_its_folder_finds_the_checks() -> None:
    assert suite_checks()


def test_each_check_is_for_an_image_of_some_row() -> None:
    matches = {name for spec in ROWS for name in missing_checks(verdict(check("x.y")), spec)}
    assert {one.id for one in catalogue()} <= matches
