"""The last line of `bench`: a result, or a sentence."""

import pytest

from tests.unit.benchmark.cases import finished, printed, result
from torchbake.benchmark.outcome import read_outcome
from torchbake.core.processes import Finished


def test_a_result_is_read_and_what_is_unknown_is_left() -> None:
    found = result(0.2, more_than_we_know={"a": 1})
    assert (found.time.median, found.throughput, found.versions["torch"]) == (0.2, 80, "2.13.0+cpu")
    assert (found.memory.peak_rss_bytes, found.memory.peak_gpu_bytes, found.world) == (10**9, None, 1)


def test_what_bench_measures_apart_is_kept() -> None:
    data = {"backend": "image_folder", "loader_threads": 4, "shuffle": True, "bound": True}
    found = result(0.2, data=data, data_times=[0.1, 0.2], warmup_times=[3.0], nodes=2)
    assert (found.data_times, found.warmup_times, found.nodes) == ((0.1, 0.2), (3.0,), 2)
    assert (found.data.model_dump(), found.time.p5, found.time.p99, found.host.threads) == (data, 0.2, 0.2, 2)


def test_the_line_is_found_behind_what_else_is_said() -> None:
    assert not isinstance(read_outcome(finished(printed() + "a library says goodbye\n")), str)


@pytest.mark.parametrize(
    ("done", "said"),
    [
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
    ],
)
def test_what_is_no_result_is_a_sentence(done: Finished, said: str) -> None:
    found = read_outcome(done)
    assert isinstance(found, str)
    assert said in found
