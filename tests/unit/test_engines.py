"""docs/reference/engines.md has the table that the nightly tests check, and a refusal differs from a failure."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import Mock

import pytest

from tests.e2e import conftest as end_to_end
from tests.engines import conftest
from tests.engines.kinds import KINDS, NO_ENGINE, STEPS
from tests.engines.steps import Step
from tests.engines.system import NotRunError
from torchbake.core.paths import TOOLKIT

PAGE = (TOOLKIT / "docs/reference/engines.md").read_text(encoding="utf-8")
REFUSAL = "error: The engine has no buildx.\n  next: Install docker-buildx\n"


def step(**changes: object) -> Step:
    facts = {"name": "build", "code": 8, "output": "", "errors": REFUSAL, "seconds": 0.1, "began_work": False}
    return Step(**(facts | changes))  # type: ignore[arg-type]


def test_the_page_has_the_table_of_all_kinds() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert ["engine", *STEPS] in rows
    for kind in (*KINDS, NO_ENGINE):
        assert [kind.about, *("✓" if name in kind.works else "refused" for name in STEPS)] in rows, kind.name
    assert NO_ENGINE.name not in {kind.name for kind in KINDS}
    assert len({kind.name for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    ("switch", "outcome", "words"),
    [
        ("auto", pytest.skip.Exception, "not-run: buildkit: no buildkitd"),
        ("require", pytest.fail.Exception, "^buildkit: no buildkitd"),
    ],
)
def test_an_engine_that_cannot_be_had_is_named(
    switch: str, outcome: type[BaseException], words: str, monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    @contextmanager
    def running(*_: object) -> Iterator[None]:
        raise NotRunError("no buildkitd in PATH")
        yield

    monkeypatch.setattr(conftest, "running", running)
    (kind,) = (kind for kind in KINDS if kind.name == "buildkit")
    request = Mock(param=kind, config=Mock(getoption=Mock(return_value=switch)))
    fixture = conftest.engine._get_wrapped_function()
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match=words) as caught:
        next(fixture(request, "192.0.2.1:5000", tmp_path_factory))
    assert caught.type is outcome


def test_the_marks_of_end_to_end_tests_are_known() -> None:
    """Tests of engines import modules that have these marks; pytest ends at one that is not declared."""
    marks = []
    for configure in (end_to_end.pytest_configure, conftest.pytest_configure):
        configure(config := Mock())
        marks.append({call.args[1].partition(":")[0] for call in config.addinivalue_line.call_args_list})
    assert "long" in marks[0]
    assert marks[0] <= marks[1]


def test_every_night_each_kind_of_engine_is_required() -> None:
    workflow = (TOOLKIT / ".github/workflows/engines.yml").read_text(encoding="utf-8")
    assert "    - cron: " in workflow
    assert "nox -s engines -- --engines require" in workflow
    names = {"docker-classic", "docker-28", "rootless", "podman-4", "podman-5", "buildkit", "userns"}
    assert names <= {kind.name for kind in KINDS}


def test_steps_of_a_kind_are_steps() -> None:
    for kind in (*KINDS, NO_ENGINE):
        assert set(kind.works) <= set(STEPS)


def test_a_refusal_is_an_error_with_a_next_step_and_no_work() -> None:
    assert step().refused
    for changes in (
        {"code": 0}, {"code": 1}, {"errors": "error: The engine has no buildx.\n"}, {"began_work": True},
        {"errors": f"Traceback (most recent call last):\n{REFUSAL}"},
    ):  # fmt: skip
        assert not step(**changes).refused, changes
    assert step(code=0).ok
    assert not step().ok
