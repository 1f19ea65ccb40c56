"""BuildKit's reports: whole events out of lines, and steps, errors and the log out of events."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.build.buildkit_progress import BuildStep, Progress, events, short_name

STARTED, LATER = "2025-01-01T00:00:00.123456789Z", "2025-01-01T00:00:02.623456789Z"


def vertex(digest: str, name: str = "RUN x", **fields: Any) -> dict[str, Any]:
    return {"vertexes": [{"digest": digest, "name": name, **fields}]}


def finish(digest: str, name: str = "RUN x", **fields: Any) -> dict[str, Any]:
    return vertex(digest, name, started=STARTED, completed=LATER, **fields)


def logged(digest: str, text: str) -> dict[str, Any]:
    return {"logs": [{"vertex": digest, "data": base64.b64encode(text.encode()).decode()}]}


def fed(*reports: dict[str, Any]) -> Progress:
    progress = Progress()
    for report in reports:
        progress.feed(report)
    return progress


reports = st.lists(st.dictionaries(st.sampled_from(["vertexes", "logs"]), st.lists(st.text(max_size=5)), min_size=1))


@given(reports, st.sampled_from([None, 1, 2, "\t"]))
def test_events_are_found_on_one_line_and_over_many(matches: list[dict[str, Any]], indent: int | str | None) -> None:
    text = "".join(json.dumps(report, indent=indent) + "\n" for report in matches)
    assert list(events(text.splitlines(keepends=True))) == matches


def test_buildx_s_own_words_between_events_stay_text() -> None:
    lines = ["WARNING: no output\n", "\n", '{"a": 1}\n', "ERROR: failed to solve\n", "{\n", '  "b": 2\n', "}\n"]
    assert list(events(lines)) == ["WARNING: no output", {"a": 1}, "ERROR: failed to solve", {"b": 2}]


def test_what_only_looks_like_an_event_stays_text() -> None:
    assert list(events(["{not json}\n", '{"a": 1}\n'])) == ["{not json}", {"a": 1}]


def test_a_step_runs_and_then_is_finished() -> None:
    progress = fed(vertex("a", "FROM base", started=STARTED))
    assert progress.current == "FROM base"
    assert progress.feed(finish("a", "FROM base")) == [BuildStep(name="FROM base", seconds=2.5, cached=False)]
    assert progress.current == ""


def test_the_latest_step_that_still_runs_is_the_current_one() -> None:
    progress = fed(vertex("a", "first", started=STARTED), vertex("b", "second", started=STARTED))
    assert progress.current == "second"
    progress.feed(finish("b", "second"))
    assert progress.current == "first"


def test_a_step_that_waits_does_not_run() -> None:
    assert fed(vertex("a")).current == ""


def test_a_step_is_finished_once_however_often_it_is_reported() -> None:
    progress = fed(finish("a"), finish("a"), vertex("a", started=STARTED))
    assert len(progress.finished) == 1
    assert progress.current == ""


def test_a_cached_step_says_so() -> None:
    progress = fed(vertex("a", "RUN x", cached=True, completed=LATER))
    assert progress.finished == [BuildStep(name="RUN x", seconds=0.0, cached=True)]
    assert progress.log == ["RUN x: cached"]


@pytest.mark.parametrize("empty", [{}, {"vertexes": None, "logs": None}, {"statuses": [{"id": "x"}]}])
def test_a_report_with_nothing_to_say(empty: dict[str, Any]) -> None:
    assert fed(empty) == Progress()


def test_the_log_holds_whole_lines_however_they_arrive() -> None:
    progress = fed(logged("a", "one\ntw"), logged("b", "other\n"), logged("a", "o\r\n\n"), finish("a"))
    assert progress.log == ["  one", "  other", "  two", "RUN x: 2.5 s"]


def test_a_last_line_without_its_end_is_not_lost() -> None:
    assert "  fatal: no space" in fed(logged("a", "fatal: no space"), finish("a", error="exit code: 1")).log


def test_bytes_that_are_no_text_end_nothing() -> None:
    broken = {"logs": [{"vertex": "a", "data": base64.b64encode(b"\xff\xfe\n").decode()}, {"vertex": "a", "data": "%"}]}
    assert fed(broken).log


def test_a_step_cancelled_by_an_error_is_no_error_of_its_own() -> None:
    progress = fed(finish("a", error="context canceled"), finish("b", error="exit code: 1"))
    assert progress.causes == ["exit code: 1"]
    assert fed(finish("a", error="context canceled: context canceled")).causes == []


def test_the_tail_is_that_of_the_step_that_failed() -> None:
    progress = fed(
        logged("a", "innocent\n"), logged("b", "reason\n"), finish("b", error="exit code: 1"), logged("a", "more\n")
    )
    assert progress.tail() == ["reason"]


@pytest.mark.parametrize("count", [1, 3])
def test_the_tail_has_as_many_lines_as_are_asked_for(count: int) -> None:
    text = "".join(f"{number}\n" for number in range(5))
    progress = fed(logged("a", text), finish("a", error="exit code: 1"))
    assert progress.tail(most=count) == ["0", "1", "2", "3", "4"][-count:]


def test_without_a_failure_the_tail_is_the_logs() -> None:
    assert fed(logged("a", "one\n"), finish("a")).tail() == ["  one", "RUN x: 2.5 s"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("[builder 1/3] RUN /run/apt-install git", "[builder 1/3] RUN /run/apt-install git"),
        ("[2_10_0-cuda builder 1/3] RUN x", "[builder 1/3] RUN x"),
        (
            "[2_10_0-cuda stage-11  7/22] COPY --link --from=site /opt/venv /opt/venv",
            "[stage-11  7/22] COPY --link /opt/venv /opt/venv",
        ),
        ("[2_10_0-cuda base] FROM debian", "[base] FROM debian"),
        ("[internal] load build definition", "[internal] load build definition"),
        ("exporting to oci image format", "exporting to oci image format"),
        ("[site 2/2] RUN --mount=type=secret,id=ca     --mount=type=cache,id=uv python3", "[site 2/2] RUN python3"),
        ("RUN " + "x" * 100, "RUN " + "x" * 75 + "…"),
    ],
)
def test_a_step_is_named_by_its_stage_and_fits_on_a_line(name: str, text: str) -> None:
    assert short_name(name).startswith(text.removesuffix("…"))
    assert len(short_name(name)) <= 80
