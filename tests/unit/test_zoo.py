"""The registry of the benchmark's models, without torch: names, what is published, and files of a user's own."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from entrypoints.pytorch.throughput.zoo import ModelEntry, ModelError, load, names, parameters_of
from tests.unit.conftest import check_golden
from torchbake.benchmark.model import load_plan
from torchbake.core.paths import TOOLKIT

ZOO = TOOLKIT / "entrypoints/pytorch/throughput/zoo"
PAGE = TOOLKIT / "docs/reference/benchmark-models.md"
START = "<!-- from the registry; TORCHBAKE_UPDATE_GOLDEN=1 pytest tests/unit/test_zoo.py writes it -->\n"
# The models' names in other suites, with each model's input shape and number of classes there.
SUITE = {
    "acoustic_model": ((540,), 8192), "deep_mnist": ((784,), 10), "sensor_net": ((784,), 16),
    "alexnet": ((3, 227, 227), 1000), "alexnet_owt": ((3, 227, 227), 1000), "overfeat": ((3, 231, 231), 1000),
    "googlenet": ((3, 224, 224), 1000),
    **{f"vgg{depth}": ((3, 224, 224), 1000) for depth in (11, 13, 16, 19)},
    **{f"resnet{depth}": ((3, 224, 224), 1000) for depth in (18, 34, 50, 101, 152, 200, 269)},
    **{f"inception{version}": ((3, 299, 299), 1000) for version in (3, 4)},
}  # fmt: skip
OWN = "class Net:\n    input, classes = (3, 8, 8), 10\n"


class Module:
    """As much of a torch.nn.Module as an entry asks for."""

    def __init__(self, **_arguments: Any) -> None:
        self.hooks: list[Any] = []

    def register_forward_pre_hook(self, hook: Any) -> None:
        self.hooks.append(hook)


def entry_of(**changes: Any) -> ModelEntry:
    values: dict[str, Any] = {"name": "net", "title": "Net", "input": (3, 8, 8), "classes": 10, "source": "a paper"}
    return ModelEntry(**{**values, "maker": Module, **changes})


def own(folder: Path, text: str = OWN, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return f"{folder / name}:Net"


def refusal_of(name: str) -> str:
    with pytest.raises(ModelError) as refused:
        load(name)
    return str(refused.value)


def test_known_models_have_their_names_samples_and_classes() -> None:
    assert {name: (load(name).input, load(name).classes) for name in SUITE} == SUITE
    assert {"vit_b_16", "bert_base", "gpt2_small", "convnext_tiny", "matmul"} <= {*names()}


def test_no_name_and_no_title_is_given_twice() -> None:
    entries = [load(name) for name in names()]
    for argument in (Counter(entry.name for entry in entries), Counter(entry.title for entry in entries)):
        assert [word for word, count in argument.items() if count > 1] == []


def test_the_plan_of_the_examples_has_all_models() -> None:
    plan, _ = load_plan(TOOLKIT / "examples/benchmark/zoo.yaml")
    assert plan.models == names()


def test_the_family_says_in_its_text_what_is_published() -> None:
    """So a count is changed in two places, or not at all; that networks have it is counted on the engine."""
    for entry in map(load, names()):
        text = (ZOO / f"{entry.maker.module}.py").read_text().split('"""')[1]  # type: ignore[attr-defined]
        assert f"{entry.parameters:,}" in text, entry.name
        if urlsplit(entry.source).scheme:
            assert urlsplit(entry.source).netloc in text, entry.name


def test_a_model_of_tokens_has_a_class_each_and_one_sequence() -> None:
    for entry in map(load, names()):
        assert (entry.kind == "tokens") == (entry.vocabulary is not None), entry.name
        assert entry.kind == "values" or len(entry.input) == 1, entry.name


def test_dense_layers_sum_up_to_the_published_count() -> None:
    for name in ("acoustic_model", "deep_mnist", "sensor_net"):
        entry = load(name)
        sizes = entry.arguments["sizes"]
        assert sum((value + 1) * argument for value, argument in pairwise(sizes)) == entry.parameters, name
        assert (sizes[0], sizes[-1]) == (*entry.input, entry.classes), name


def test_a_hyphen_is_an_underscore() -> None:
    assert load("bert-base") is load("bert_base")


def test_an_unknown_model_is_an_error_with_alternatives() -> None:
    for name, sentence in (
        ("resnet51", "There is no model 'resnet51'. Did you mean resnet50?"),
        ("zzz", "There are acoustic_model, deep_mnist, "),
        ("mine.py", "mine.py names no class: say mine.py:Net"),
        ("mine.py:", "mine.py: names no class: say mine.py:Net"),
        ("nowhere/mine.py:Net", "nowhere/mine.py cannot be read in "),
    ):
        assert sentence in refusal_of(name), (name, sentence)


def test_a_class_of_a_users_file_is_an_entry_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("CLASSES = 7")
    name = own(
        tmp_path, "from beside import CLASSES\nclass Net:\n    input, classes = [4], CLASSES\n    vocabulary = 9"
    )
    entry = load(name)
    assert (entry.name, entry.title, entry.input, entry.classes) == (name, "Net", (4,), 7)
    assert (entry.kind, entry.vocabulary, entry.parameters) == ("tokens", 9, None)
    assert entry.source == str(tmp_path / "mine.py")


def test_a_users_title_counts_and_a_known_name_hides_no_file(tmp_path: Path) -> None:
    assert load(own(tmp_path, OWN + "    title = 'Mine'", "json.py")).title == "Mine"


def test_what_a_users_file_lacks_is_told_with_the_line(tmp_path: Path) -> None:
    for text, sentence in (
        ("Nett = 1", "mine.py has no class Net"),
        ("class Net:\n    classes = 10", "Net.input is None. Let it be the shape of one sample"),
        ("class Net:\n    input, classes = 784, 10", "Net.input is 784."),
        ("class Net:\n    input, classes = (3, 0), 10", "Net.input is (3, 0)."),
        ("class Net:\n    input = (3,)", "Net.classes is None. Let it be the size of the output"),
        (OWN + "    vocabulary = 'many'", "Net.vocabulary is 'many'. Let it be the number of tokens"),
        ("x = 1\nraise OSError('no disk')", "mine.py, line 2: OSError: no disk. Correct the file."),
        ("class Net(:", "mine.py, line 1: SyntaxError: "),
    ):
        output = refusal_of(own(tmp_path, text))
        assert sentence in output, (text, sentence)
        assert str(tmp_path / "mine.py") in output, (text, sentence)


def test_all_problems_of_a_users_class_are_reported_at_once(tmp_path: Path) -> None:
    """A misspelled key is as good as missing, and the error has both names."""
    for text, expected in (
        ("class Net:\n    pass", ("Net.input", "Net.classes")),
        ("class Net:\n    imput, clases = (3,), 0", ("Net.input", "imput", "Net.classes", "clases")),
        ("class Net:\n    input, classes, vocabulary = 3, '9', -1", ("Net.input", "Net.classes", "Net.vocabulary")),
        ("class Net:\n    inputs, classes, vocabulry = (3,), 9, 5", ("Net.input", "inputs", "vocabulry")),
    ):
        sentence = refusal_of(own(tmp_path, text))
        assert [name for name in expected if name not in sentence] == []
    assert load(own(tmp_path, OWN + "    def vocab(self): ...\n    inputs = 1")).vocabulary is None


def test_a_sample_of_another_shape_is_refused() -> None:
    (hook,) = entry_of().make().hooks
    hook(None, (SimpleNamespace(shape=(16, 3, 8, 8)),))
    with pytest.raises(ModelError, match=re.escape("the shape (3, 8, 4), the model takes (3, 8, 8)")):
        hook(None, (SimpleNamespace(shape=(16, 3, 8, 4)),))


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ModelError, match=r"^net is not a torch\.nn\.Module: derive the class from it"):
        entry_of(maker=SimpleNamespace).make()


def test_a_users_model_is_made_once_with_trainable_parameters() -> None:
    def again() -> None:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    numbers = [
        SimpleNamespace(numel=lambda: 7, requires_grad=True),
        SimpleNamespace(numel=lambda: 5, requires_grad=False),
    ]
    model: Any = SimpleNamespace(parameters=lambda: numbers)
    assert parameters_of(entry_of(maker=again), model) == 7
    assert parameters_of(entry_of(maker=again, parameters=3), model) == 3


def test_the_page_lists_every_model() -> None:
    words = PAGE.read_text().partition(START)[0]
    check_golden(PAGE, words + START + "\n" + table())


def table() -> str:
    lines = [
        "| name | title | sample | classes | parameters | published by |",
        "| --- " * 3 + "| ---: " * 2 + "| --- |",
    ]
    for entry in map(load, names()):
        sample = " × ".join(map(str, entry.input)) + (" tokens" if entry.kind == "tokens" else "")
        source, parts = entry.source, urlsplit(entry.source)
        if parts.scheme:
            source = f"[{parts.netloc}: {parts.path.rpartition('/')[2]}]({source})"
        cells = (f"`{entry.name}`", entry.title, sample, f"{entry.classes:,}", f"{entry.parameters:,}", source)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
