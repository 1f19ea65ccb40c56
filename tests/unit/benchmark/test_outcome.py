"""The last line of `bench`: a result, or a sentence."""

from typing import Any

import pytest

from tests.unit.benchmark.cases import finished, printed, result
from torchbake.benchmark.outcome import read_outcome


def test_a_result_is_read_and_what_is_unknown_is_left() -> None:
    actual = result(0.2, more_than_we_know={"a": 1})
    assert (actual.time.median, actual.throughput, actual.versions["torch"]) == (0.2, 80, "2.13.0+cpu")
    assert (actual.memory.peak_rss_bytes, actual.memory.peak_gpu_bytes, actual.world) == (10**9, None, 1)


def test_what_bench_measures_apart_is_kept() -> None:
    data = {"backend": "image_folder", "loader_threads": 4, "shuffle": True, "bound": True}
    actual = result(0.2, data=data, data_times=[0.1, 0.2], warmup_times=[3.0], nodes=2)
    assert (actual.data_times, actual.warmup_times, actual.nodes) == ((0.1, 0.2), (3.0,), 2)
    assert (actual.data.model_dump(), actual.time.p5, actual.time.p99, actual.host.threads) == (data, 0.2, 0.2, 2)


def test_the_line_is_found_behind_what_else_is_said() -> None:
    assert read_outcome(finished(printed() + "a library says goodbye\n")).result


def test_what_is_no_result_is_a_sentence() -> None:
    for final_state, message in (
        (finished(printed(status="failure", reason="Out of memory."), code=1), "Out of memory."),
        (finished(printed(), code=3, stderr="lost"), "bench ended with 3: lost"),
        (finished(late=True), "It did not end within 2 s."),
        (finished(code=137), "It was killed, most often for lack of memory."),
        (finished(code=127, stderr="bench: not found"), "There is no `bench`: bench: not found"),
        (finished(code=255, stderr="ssh: no such host"), "ssh cannot connect: ssh: no such host"),
        (
            finished(code=125, stderr="docker: Error: no such device.\n\nRun 'docker run --help' for more information"),
            "The engine did not start it: Error: no such device.",
        ),
        (finished(code=1, stderr="Traceback\nKeyError: 'x'"), "It ended with 1 and no result: KeyError: 'x'"),
        (finished('{"bench": 2}'), "Its `bench` speaks version 2 of the contract, and this toolkit 1."),
        (finished('{"bench": 1'), "Its last line cannot be read: it is not JSON"),
        (finished(printed(times=[])), "Its result has an invalid times:"),
        (finished(printed(throughput=None)), "Its result has an invalid throughput:"),
        (finished(printed().replace("0.1", "NaN")), "NaN is not a number"),
    ):
        value = read_outcome(final_state)
        assert (value.result, value.out_of_memory) == (None, final_state.code == 137), (final_state, message)
        assert message in value.reason, (final_state, message)


SERIES = {"seconds": [1, 2], "cpu_percent": [90, 80], "memory_bytes": [5, 7]}


@pytest.mark.parametrize(("message", "lacking"), [({}, False), ({"out_of_memory": True}, True)])
def test_a_batch_that_does_not_fit_is_told_from_what_else_fails(message: dict[str, Any], lacking: bool) -> None:
    words = printed(status="failure", reason="No.", monitor=SERIES, **message)
    value = read_outcome(finished(words, code=1))
    assert (value.reason, value.out_of_memory) == ("No.", lacking)
    assert value.monitor
    assert value.monitor.memory_bytes == (5, 7)


def test_a_result_may_have_a_time_series_but_no_broken_one() -> None:
    value = read_outcome(finished(printed(monitor=SERIES)))
    assert value.result
    assert value.monitor
    assert (value.monitor.cpu_percent, value.monitor.gpu_watts) == ((90, 80), ())
    for broken, message in (({"cpu_percent": "x"}, "invalid cpu_percent"), ({"seconds": [1]}, "differ in length")):
        assert message in read_outcome(finished(printed(monitor={**SERIES, **broken}))).reason
