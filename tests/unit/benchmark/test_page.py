"""The page of a plan: its summary, its figures, and foreign text, which is only text."""

import html
import re
from dataclasses import replace

import pytest

from tests.unit.benchmark.cases import experiment, result
from torchbake.benchmark.expand import Experiment, PlaceName, PlanCase
from torchbake.benchmark.outcome import BenchResult, Series
from torchbake.benchmark.page import Equipment, PlanSummary, render_page, summarise
from torchbake.benchmark.records import RunRecord, Where
from torchbake.benchmark.run import CaseResult

ITEMS = "2026-11-23T01:02:03+00:00"


def finish(what: Experiment, value: BenchResult | str, place: str = "a") -> CaseResult:
    case = PlanCase(experiment=what, place=PlaceName(kind="image", word=place, name=place))
    if isinstance(value, str):
        return CaseResult(case=case, state="failed", reason=value)
    where = Where(kind="image", name=place, digest=f"sha256:{place}", host="here")
    record = RunRecord(experiment=what, where=where, command="bench", started="", seconds=1, result=value)
    return CaseResult(case=case, state="measured", record=record)


def some() -> PlanSummary:
    four = result(0.125, world=4, throughput=512.0, devices=["x"] * 4, device="gpu", memory={"peak_gpu_bytes": 7})
    one = result(0.1, throughput=160.0, device="gpu", memory={"peak_rss_bytes": 5, "peak_gpu_bytes": 6})
    return summarise([
        finish(experiment(), result(0.1)),
        finish(experiment(), result(0.125), "<b>"),
        finish(experiment(gpus=1), one),
        finish(experiment(gpus=4), four),
        finish(experiment("vgg19"), "Out of memory & time."),
    ])  # fmt: skip


def test_places_stand_against_the_first() -> None:
    first = some().groups[0]
    assert [(line.place, line.against) for line in first.lines] == [("a", None), ("<b>", pytest.approx(0.25))]


def test_nothing_stands_against_a_first_place_without_a_result() -> None:
    value = summarise([
        finish(experiment(), "It failed."), finish(experiment(), result(0.1), "b"), finish(experiment(), result(0.2),
        "c"),
    ])  # fmt: skip
    assert [(line.place, line.against) for line in value.groups[0].lines] == [("b", None), ("c", None)]


def test_memory_is_that_of_the_device() -> None:
    assert [line.memory for group in some().groups for line in group.lines] == [10**9, 10**9, 6, 7]


def test_efficiency_is_against_as_many_times_one_device() -> None:
    (scaling,) = some().scaling
    assert scaling.name == "resnet50 training float32 batch 16 gpu"
    assert [(point.devices, point.efficiency) for point in scaling.points] == [(1, 1.0), (4, 0.8)]


def test_without_one_device_there_is_nothing_to_scale_from() -> None:
    assert summarise([finish(experiment(gpus=4), result(world=4, device="gpu", devices=["x"] * 4))]).scaling == ()


def test_nodes_scale_too() -> None:
    value = summarise([
        finish(experiment(), result(0.1)),
        finish(experiment(nodes=2), result(0.125, world=2, nodes=2, throughput=256.0)),
    ])  # fmt: skip
    (scaling,) = value.scaling
    assert [(point.devices, point.nodes, point.efficiency) for point in scaling.points] == [(1, 1, 1.0), (2, 2, 0.8)]


def test_what_has_no_result_is_told() -> None:
    assert [(one.case.experiment.model, one.reason) for one in some().missing] == [("vgg19", "Out of memory & time.")]
    assert (some().places, some().hosts) == (("a", "<b>"), ("here",))


def test_what_a_place_measured_with_is_told_once() -> None:
    assert some().equipment == (
        Equipment(place="a", torch="2.13.0+cpu", device="a CPU"),
        Equipment(place="<b>", torch="2.13.0+cpu", device="a CPU"),
        Equipment(place="a", torch="2.13.0+cpu", device="x"),
    )


def page() -> str:
    return render_page(some(), plan="plan.yaml", date=ITEMS)


def rows(section: str) -> list[list[str]]:
    """The cells of a section's tables, as text."""
    text = re.search(rf'(?s)<section aria-labelledby="{section}">.*?</section>', page())
    assert text
    cells = re.compile(r"(?s)<t[hd](?: [^>]*)?>(.*?)</t[hd]>")
    matches = re.findall(r'(?s)<tr><th scope="row">.*?</tr>', text[0])
    return [[re.sub("<[^>]+>", "", cell) for cell in cells.findall(row)] for row in matches]


def test_speed_scaling_and_memory_are_on_it() -> None:
    assert rows("speed")[:2] == [
        ["a", "", "160.0", "100 ms", "100 ms", "–"], ["&lt;b&gt;", "", "128.0", "125 ms", "125 ms", "+25.0%"],
    ]  # fmt: skip
    assert rows("scaling") == [["1", "", "160.0", "100%"], ["4", "", "512.0", "80%"]]
    assert rows("memory")[0] == ["a", "", "1.00 GB"]


def test_bars_are_as_long_as_their_figures() -> None:
    widths = re.findall(r'aria-label="([^"]+)"><rect class="own" x="0" width="([^"]+)"', page())
    assert ("160.0 samples a second", "1000") in widths
    assert ("128.0 samples a second", "800") in widths
    assert ("80% of perfect scaling", "800") in widths


def test_what_others_wrote_is_text_and_nothing_is_loaded() -> None:
    assert "Out of memory &amp; time." in page()
    assert "<b>" not in page()
    assert re.search(r"default-src 'none'; img-src data:; style-src 'sha256-", html.unescape(page()))
    assert not re.search(r"(?:src|href)=\"(?!#|data:,)", page())


def test_a_page_has_both_color_schemes_even_without_results() -> None:
    assert "@media (prefers-color-scheme: dark)" in page()
    empty = render_page(summarise([finish(experiment(), "It failed.")]), plan="plan.yaml", date=ITEMS)
    assert "It failed." in empty
    assert 'id="speed"' not in empty


def test_time_series_are_drawn_also_those_of_a_run_that_failed() -> None:
    good, bad = finish(experiment(), result(0.1)), finish(experiment("<i>vgg"), "It failed.")
    assert good.record
    series = Series(seconds=(0, 5, 10), cpu_percent=(0, 50, 200), memory_bytes=(1e9, 2e9, None))
    record = good.record.model_copy(update={"monitor": series})
    value = summarise([replace(good, record=record), replace(bad, record=record.model_copy(update={"result": None}))])
    text = render_page(value, plan="plan.yaml", date=ITEMS)
    charts = re.findall(r'<svg class="line"[^>]*aria-label="([^"]*)"><polyline points="([^"]*)"/>', text)
    assert [points for _, points in charts[:2]] == ["0,40 500,30 1000,0", "0,20 500,0"]
    assert charts[0][0] == "CPU of resnet50 training float32 batch 16 cpu, a, over 10 s: at most 200%"
    assert len(charts) == 4
    assert "&lt;i&gt;vgg" in charts[2][0]
    assert "2.00 GB" in text
    assert 'id="resources"' not in page()


def test_an_experiment_is_repeated_only_if_it_has_remarks() -> None:
    results = [finish(experiment(), result(0.1)), finish(experiment("vgg19"), result(0.1, notes=["It was slow."]))]
    (_, notes) = render_page(summarise(results), plan="plan.yaml", date=ITEMS).split('id="notes"')
    assert "a: torch 2.13.0+cpu, a CPU" in notes
    assert "vgg19 training float32 batch 16 cpu</code>, a: It was slow." in notes
    assert "resnet50" not in notes
