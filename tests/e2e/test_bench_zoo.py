"""The models of the benchmark on real torch: parameters, shapes, and batches of all of them."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from entrypoints.pytorch.throughput.zoo import load, names
from tests.e2e.conftest import CPU, CUDA, ROOT
from tests.e2e.nodes import JOBS

pytestmark = pytest.mark.entrypoints

Built = dict[str, dict[str, Any]]
ReadOutput = dict[str, dict[str, Any]]
# https://github.com/HewlettPackard/dlcookbook-dlbs, docs/models/models.md: parameters and normalisation statistics.
WITH_STATISTICS = {
    "inception3": 23_869_094, "inception4": 42_743_133, "resnet101": 44_654_608, "resnet152": 60_344_387,
    "resnet200": 64_850_035, "resnet269": 102_326_456,
}  # fmt: skip
MINE = re.findall(r"(?ms)^```python\n(.*?)^```$", (ROOT / "docs/reference/benchmark-models.md").read_text())
IN_MINE = """
import sys; sys.path.insert(0, "/opt/torchbake")
import copy, os, pathlib, pickle, torch
from throughput.zoo import batch, load, loss
pathlib.Path("/tmp/mine.py").write_text(os.environ["MINE"])
entry = load("/tmp/mine.py:Net")
model = pickle.loads(pickle.dumps(copy.deepcopy(entry.make())))
inputs, targets = batch(entry, 4, "cpu", torch.float32)
value = loss(entry)(model(inputs), targets)
value.backward()
print(entry.title, tuple(inputs.shape), tuple(targets.shape), value.isfinite().item())
"""


@pytest.fixture
def zoo(built: Built, run: Callable[..., str]) -> Callable[..., ReadOutput]:
    """Run tests/e2e/jobs/zoo.py in an image, and return its output for each model."""

    def ask(*words: str, row: str = CPU) -> ReadOutput:
        mounted = {str(JOBS): {"bind": "/job", "mode": "ro"}}
        output = run(built[row]["ref"], "python", "/job/zoo.py", *words, volumes=mounted, network_mode="none")
        return {line["name"]: line for line in map(json.loads, output.splitlines())}

    return ask


@pytest.mark.long  # it makes all of them
def test_models_have_published_parameters_and_a_least_size(zoo: Callable[..., ReadOutput]) -> None:
    lines = zoo("count")
    assert {name: line["parameters"] for name, line in lines.items()} == {
        name: load(name).parameters for name in names()
    }
    assert {name: lines[name]["with_statistics"] for name in WITH_STATISTICS} == WITH_STATISTICS
    for name, line in lines.items():
        entry = load(name)
        tokens = entry.input if entry.kind == "tokens" else ()
        assert line["output"] == [2, *tokens, entry.classes], name
        assert line["without_gradient"] == [], name  # DDP waits for the gradient of each
        assert line["smaller"].endswith(f"the model takes {entry.input}."), name


@pytest.mark.cuda
def test_torchvision_has_the_same_parameters(zoo: Callable[..., ReadOutput]) -> None:
    models = {name: line for name, line in zoo("count", row=CUDA).items() if line["vision"]}
    if not models:
        pytest.skip(f"no torchvision in {CUDA}")
    assert len(models) == 17
    assert [name for name, line in models.items() if line["shapes"] != line["vision"]] == []


def test_the_documented_class_of_a_user_is_a_model(built: Built, run: Callable[..., str]) -> None:
    (text,) = MINE
    assert len([line for line in text.splitlines() if line]) == 5
    output = run(built[CPU]["ref"], "python", "-c", IN_MINE, environment={"MINE": text}, network_mode="none")
    assert output == "Net (4, 3, 32, 32) (4,) True"


@pytest.mark.long
def test_every_model_trains_and_infers(zoo: Callable[..., ReadOutput]) -> None:
    lines = zoo("batches")
    assert [*lines] == [*names()]
    for name, line in lines.items():
        assert "failure" not in line, f"{name}: {line.get('failure')}"
        assert (line["gradients"], line["finite"]) == (True, True), name
        assert all(0 < value < 100 for value in line["losses"]), name
