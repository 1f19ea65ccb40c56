"""The seconds of a build: steps from BuildKit's reports, the cost of each kind, and the picture."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.trace_page import lanes, picture, render_page, step_rows, ticks
from benchmarks.trace_steps import Step, kind_of, last_stage, layers_event, shares, steps_of, totals, whole
from tests.unit.conftest import check_golden
from torchbake.build.buildkit_progress import events
from torchbake.core.paths import TOOLKIT

UNIT = TOOLKIT / "tests/unit"
BEGAN, MIDDLE, FINISH_TIME = (f"2025-01-01T00:00:{second:09.6f}Z" for second in (0, 2, 5))
EXPORT = "exporting to image"


def recorded() -> tuple[Step, ...]:
    """A real build, in which the torch stage was cached and the site stage was not; bytes of its layers are made up."""
    with (UNIT / "traces/partly-cached.jsonl").open(encoding="utf-8") as lines:
        return steps_of(event for event in events(lines) if not isinstance(event, str))


def vertex(name: str, start: str = BEGAN, completed: str = FINISH_TIME, **fields: Any) -> dict[str, Any]:
    one = {"digest": f"sha256:{name}", "name": name, "started": start, "completed": completed, **fields}
    return {"vertexes": [one]}


def status(of: str, name: str, start: str, completed: str, current: int = 0) -> dict[str, Any]:
    one = {"id": name, "vertex": f"sha256:{of}", "started": start, "completed": completed, "current": current}
    return {"statuses": [one]}


def step(start: float, seconds: float, *, stage: str = "site", kind: str = "apt", cached: bool = False) -> Step:
    return Step(stage=stage, name="RUN x", kind=kind, start=start, seconds=seconds, cached=cached)


def test_the_steps_of_a_real_build() -> None:
    text = "".join("  ".join(cell for cell in row if cell) + "\n" for row in step_rows(recorded()))
    check_golden(UNIT / "golden/trace.txt", text)


def test_the_picture_of_a_real_build() -> None:
    check_golden(UNIT / "golden/trace.svg", str(picture(recorded())).replace("><", ">\n<") + "\n")


def test_a_step_has_its_stage_and_its_words_without_mounts() -> None:
    name = "[site 2/2] RUN --mount=type=cache PYTHONPATH=/run/layers python3 -m wheels site x"
    (actual,) = steps_of([vertex(name)])
    assert (actual.stage, actual.number, actual.kind, actual.name) == (
        "site", 2, "wheels", "RUN PYTHONPATH=/run/layers python3 -m wheels site x",
    )  # fmt: skip
    assert (actual.start, actual.seconds, actual.cached, actual.bytes) == (0, 5, False, None)


def test_a_step_of_a_bake_with_several_targets_has_its_stage() -> None:
    (actual,) = steps_of([vertex("[2_13_0-cpu site 1/2] COPY a b")])
    assert (actual.stage, actual.name) == ("site", "COPY a b")


def test_a_step_that_was_looked_up_before_it_ran_did_run() -> None:
    name = "[locks 1/2] COPY a b"
    looks, ran = vertex(name, BEGAN, BEGAN, cached=True), vertex(name, MIDDLE, FINISH_TIME)
    for reports in ([looks, ran], [ran, vertex(name, FINISH_TIME, FINISH_TIME, cached=True)]):
        (actual,) = steps_of(reports)
        assert (actual.seconds, actual.cached) == (3, False)


def test_a_step_that_only_the_cache_had_took_no_time() -> None:
    (actual,) = steps_of([vertex("[torch 1/2] COPY a b", BEGAN, BEGAN, cached=True)])
    assert (actual.seconds, actual.cached) == (0, True)


def test_what_did_not_end_is_no_step() -> None:
    pending = {"vertexes": [{"digest": "a", "name": "[a 1/1] RUN x", "started": BEGAN}, {"digest": "b", "name": "b"}]}
    assert steps_of([pending]) == ()
    assert steps_of([]) == ()


def test_an_export_is_told_by_its_parts() -> None:
    parts = [
        status(EXPORT, "exporting layers", BEGAN, MIDDLE),
        status(EXPORT, "unpacking to docker.io/acme/pytorch:1", MIDDLE, FINISH_TIME),
    ]
    steps = steps_of([vertex(EXPORT), *parts])
    assert [(one.stage, one.kind, one.seconds) for one in steps] == [("export", "compress", 2), ("export", "unpack", 3)]
    assert [one.name for one in steps_of([vertex(EXPORT)])] == [EXPORT]


def test_bytes_are_what_a_context_sent() -> None:
    name = "[context wheels] load from client"
    progress = [status(name, "transferring wheels:", BEGAN, MIDDLE, current) for current in (10, 218)]
    (actual,) = steps_of([vertex(name), *progress])
    assert (actual.stage, actual.name, actual.bytes) == ("context", "wheels: load from client", 218)


def test_bytes_of_the_last_stage_are_those_of_its_layers() -> None:
    names = ["[python 1/1] RUN apt", "[stage-1 1/2] COPY a b", "[stage-1 2/2] WORKDIR /app"]
    history = [("ENV A=1", 0), ("WORKDIR /app", 8), ("COPY a b # buildkit", 70), ("RUN apt", 30), ("mmdebstrap", 100)]
    steps = steps_of([*map(vertex, names), layers_event(last_stage(history))])
    assert {one.name: one.bytes for one in steps} == {"RUN apt": None, "COPY a b": 70, "WORKDIR /app": 8}


def test_what_a_step_does_is_read_from_its_name() -> None:
    for name, kind in (
        ("[internal] load build context", "context"),
        ("[python 1/1] RUN /run/apt-install tini", "apt"),
        ("[builder 3/3] RUN python3 -m venv /opt/uv     && /opt/uv/bin/pip install uv", "installer"),
        ("[builder 1/1] RUN python3 /run/install_uv.py /run/builder.lock /run/wheels /opt/uv", "installer"),
        ("[locks 2/2] RUN PYTHONPATH=/run/layers python3 -m wheels split a b", "other"),
        ("[torch 2/2] RUN PYTHONPATH=/run/layers python3 -m wheels layers a b", "wheels"),
        ("[stage-2 2/3] RUN uv venv /opt/venv     && uv pip install -r lock", "wheels"),
        ("[tools 2/2] RUN python3 -m compileall -q /opt/torchbake", "bytecode"),
        ("[stage-9 5/6] COPY --chmod=0644 <<EOF /etc/x", "copy"),
        ("exporting manifest sha256:1", "export"),
        ("naming to docker.io/x", "naming"),
    ):
        assert kind_of(name) == kind, (name, kind)


def test_steps_side_by_side_share_their_seconds() -> None:
    assert shares([step(0, 4), step(2, 4)]) == [3, 3]


def test_the_kinds_and_the_waiting_add_up() -> None:
    matches = totals([step(0, 2), step(4, 4), step(4, 4, kind="wheels"), step(1, 0, cached=True)])
    assert [(one.kind, one.steps, one.seconds, one.share) for one in matches] == [
        ("apt", 3, 6, 0.5), ("wheels", 1, 4, 0.25), ("waiting", 0, 2, 0.25),
    ]  # fmt: skip


spans = st.lists(
    st.builds(step, st.integers(0, 50), st.integers(0, 20), kind=st.sampled_from("abc"), stage=st.sampled_from("xy"))
)


@given(spans)
def test_no_second_is_counted_twice_or_lost(steps: list[Step]) -> None:
    assert sum(one.share for one in totals(steps)) == pytest.approx(1 if whole(steps) else 0)


@given(spans)
def test_no_two_steps_of_a_row_run_at_once(steps: list[Step]) -> None:
    ordered = sorted(steps, key=lambda one: (one.start, one.end))
    for lane in lanes(ordered):
        for row in range(lane.rows):
            of_row = [one for place, one in lane.placed if place == row]
            assert all(one.end <= later.start for one, later in pairwise(of_row))


@given(st.floats(0.01, 20_000))
def test_the_axis_has_few_moments_all_within_the_build(total: float) -> None:
    matches = ticks(total)
    assert matches[0] == 0
    assert len(matches) <= 11
    assert matches[-1] <= total


def widths(text: str) -> Iterator[float]:
    return (float(x) + float(width) for x, width in re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', text))


def test_no_bar_leaves_the_picture() -> None:
    assert 900 < max(widths(picture(recorded()))) <= 1001


def test_the_page_needs_nothing_else_and_names_are_no_markup() -> None:
    page = render_page(steps_of([vertex("[site 1/1] RUN echo <script>alert(1)</script>")]), title="<b>")
    assert "<script" not in page
    assert "RUN echo &lt;script&gt;" in page
    assert "<h1>&lt;b&gt;</h1>" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_a_record_is_read_as_it_was_written() -> None:
    reports = [vertex("[site 1/1] RUN x"), layers_event([1])]
    lines = [f"{json.dumps(report)}\n" for report in reports]
    assert list(events(lines)) == reports
