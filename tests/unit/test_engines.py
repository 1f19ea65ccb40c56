"""docs/reference/engines.md has the table that the nightly tests check, and a refusal differs from a failure."""

from tests.engines.kinds import KINDS, NO_ENGINE, STEPS
from tests.engines.steps import Step
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
