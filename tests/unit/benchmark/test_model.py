"""A plan: every mistake at once, with file, line and key."""

from pathlib import Path

import pytest

from tests.unit.benchmark.cases import PLAN, document_of, plan_of
from torchbake.benchmark.model import load_plan, validate_plan
from torchbake.errors import PlanError


def test_what_is_not_written_has_the_fields_own_defaults() -> None:
    plan = plan_of("models: resnet50\nimages: [cpu]\n")
    assert (plan.models, plan.batch_sizes, plan.dtypes, plan.phases, plan.gpus) == (
        ("resnet50",), (16,), ("float32",), ("training",), (0,),
    )  # fmt: skip
    assert (plan.num_batches, plan.num_warmup_batches, plan.num_loader_threads) == (100, 1, 4)
    assert (plan.docker.shm_size, plan.docker.memlock, plan.docker.stack) == ("1g", "-1", "67108864")


def test_one_value_may_stand_for_a_list_and_none_counts_twice() -> None:
    plan = plan_of("models: [a, b, a]\ndtypes: [float, float32, bfloat16]\ngpus: 2\nimages: [cpu]\n")
    assert (plan.models, plan.dtypes, plan.gpus) == (("a", "b"), ("float32", "bfloat16"), (2,))


def test_a_mistake_has_its_place() -> None:
    for text, message in (
        ("models: [a]\nbatch_size: 3\n", "plan.yaml:2: batch_size: unknown key 'batch_size'; did you mean 'batch_si"),
        ("models: [a]\nbatch_sizes: [16, x]\n", "plan.yaml:2: batch_sizes.1: should be a whole number (got 'x')"),
        ("models: [a]\nbatch_sizes: 0\n", "plan.yaml:2: batch_sizes.0: should be at least 1 (got '0')"),
        ("images: [a]\n", "plan.yaml:1: models: is missing"),
        ("models: [a]\nphases: [train]\n", "plan.yaml:2: phases.0: 'train' is unknown; did you mean 'training'?"),
        ("models: [a]\nexclude: [{model: a}]\n", "plan.yaml:2: exclude.0.reason: is missing"),
        ("models: [a]\ndocker: {shm: 1g}\n", "unknown key 'shm'; did you mean 'shm_size'?"),
        ("models: [a]\nargs: ['--model=b']\n", "plan.yaml:2: args.0: '--model=b' is set by the key 'models'"),
        ("models: [a]\nargs: [--data_dir, /x]\n", "'--data_dir' is set by the key 'data_dir'"),
        ("models: [a]\nenv: {HF: hf_abcdefghijklmnopqrstuvwxyzABCDEFGH}\n", "holds a key, a token or a password"),
        ("models: [a]\nhosts: [{ssh: b, python: /venv/bin/python}]\n", "plan.yaml:2: hosts.0.python: starts nothing"),
        ("", "plan.yaml:1: is empty"),
    ):
        with pytest.raises(PlanError) as caught:
            validate_plan(document_of(text))
        assert message in caught.value.message, (text, message)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(PlanError, match=r"3 problems"):
        validate_plan(document_of("model: a\ndtypes: [int8]\ntimeout: never\n".replace("model:", "models:") + "x: 1\n"))


def test_a_file_names_its_place_unless_the_command_does(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("models: [a]\n")
    with pytest.raises(PlanError, match="names neither images nor hosts"):
        load_plan(path)
    assert load_plan(path, places=False)[0].models == ("a",)
    with pytest.raises(PlanError, match="no such file"):
        load_plan(tmp_path / "other.yaml")


def test_settings_are_what_the_plan_says() -> None:
    plan = plan_of(PLAN + "num_batches: 7\nenv: {A: b}\ndocker: {shm_size: 8g}\n")
    assert (plan.settings.num_batches, plan.settings.env, plan.settings.docker.shm_size) == (7, {"A": "b"}, "8g")
