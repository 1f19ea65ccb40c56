"""Model of a benchmark's plan: experiments and places, validated.

A key that sets a flag of `bench` has its name. All problems of a file are reported at once, with file, line and key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from torchbake.benchmark.field_types import (
    Backend,
    Conditions,
    Device,
    Docker,
    Dtypes,
    ExperimentExclude,
    Gpus,
    Phases,
    PlanHost,
    PlanMapping,
    Positive,
    Seconds,
    Sizes,
    Text,
    Variable,
    Variables,
    VariableValue,
    Words,
)
from torchbake.benchmark.variables import references, values_of, with_values
from torchbake.core.file_format import UPGRADE
from torchbake.errors import MatrixError, PlanError, UsageError
from torchbake.matrix.field_types import Format
from torchbake.matrix.problems import explain, problems
from torchbake.matrix.yaml_source import Document, Location, read_document
from torchbake.ui.command import Command

_HINT = f"Every key: {Command('help', 'benchmark-plans')}"


Count = Annotated[int, Field(ge=0)]


class ExperimentSettings(PlanMapping):
    """How an experiment is measured."""

    num_batches: Positive = Field(100, description="batches that are measured", examples=[50])
    num_warmup_batches: Count = Field(1, description="batches before the measurement", examples=[10])
    device: Device = Field("gpu", description="gpu; with cpu, `gpus` counts processes that share it", examples=["cpu"])
    data_dir: Text | None = Field(
        None, description="folder of data, relative to the plan's; if not set: synthetic", examples=["/data/imagenet"]
    )
    data_backend: Backend = Field("caffe_lmdb", description="the format of `data_dir`", examples=["image_folder"])
    data_shuffle: bool = Field(False, description="whether data is shuffled in each epoch", examples=[True])
    num_loader_threads: Positive = Field(4, description="worker processes that load data", examples=[8])
    cudnn_benchmark: bool = Field(True, description="whether cuDNN tries which algorithm is fastest", examples=[False])
    monitor_seconds: Seconds = Field(
        0.0, description="seconds between samples of CPU, memory and GPU, at least 0.2; 0: none", examples=[1]
    )
    args: tuple[Text, ...] = Field((), description="further flags of `bench`", examples=[["--cudnn_fastest", "true"]])
    env: Variables = Field(
        default_factory=dict, description="environment variables", examples=[{"OMP_NUM_THREADS": "8"}]
    )
    docker: Docker = Field(Docker(), description="options of containers", examples=[{"shm_size": "8g"}])


class When(Conditions):
    """A rule that changes settings of the experiments that meet all its other keys. Later rules override earlier."""

    set: ExperimentSettings = Field(
        description="changed settings; `env` and `docker` are merged", examples=[{"num_batches": 20}]
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.set.model_fields_set:
            raise ValueError("`set` has no key")
        if not self.model_fields_set - {"set"}:
            raise ValueError("names no condition: write what `set` has as keys of the plan")
        return self


class Axes(PlanMapping):
    """Axes and places of a plan: each value of an axis is combined with each value of the others."""

    models: Words = Field(
        description="models of `bench`, or a class in a file next to the plan",
        examples=[["resnet50", "bert_base", "mine.py:Net"]],
    )
    batch_sizes: Sizes = Field((16,), description="samples in a batch, on each device", examples=[[16, 64]])
    dtypes: Dtypes = Field(("float32",), description="float32, float16 or bfloat16", examples=[["float32", "bfloat16"]])
    phases: Phases = Field(
        ("training",),
        description="training, inference, data_ingestion (loader only)",
        examples=[["training", "inference"]],
    )
    gpus: Gpus = Field((0,), description="number of GPUs on each node; 0: the CPU", examples=[[1, 2, 4]])
    nodes: Sizes = Field((1,), description="number of machines, or of containers on one machine", examples=[[1, 2]])
    images: tuple[Text, ...] = Field(
        (),
        description="selectors of images in the matrix, or references; a plan needs `images` or `hosts`",
        examples=[["2.10.0 cuda12.8 runtime debian12", "ghcr.io/acme/pytorch:latest"]],
    )
    hosts: tuple[PlanHost, ...] = Field((), description="machines without containers", examples=[[{"ssh": "foo_bar"}]])
    exclude: tuple[ExperimentExclude, ...] = Field(
        (),
        description="excluded experiments, with the reason",
        examples=[[{"model": "vgg19", "batch_size": 64, "reason": "does not fit into 16 GB"}]],
    )
    when: tuple[When, ...] = Field(
        (), description="settings of some experiments", examples=[[{"model": "vgg19", "set": {"num_batches": 20}}]]
    )
    stop_at_out_of_memory: bool = Field(
        False, description="whether to skip larger `batch_sizes` after one that does not fit", examples=[True]
    )
    timeout: Positive = Field(3600, description="seconds for one experiment", examples=[600])


class Plan(ExperimentSettings, Axes):
    """A whole plan: settings, axes and variables."""

    format: Format
    variables: dict[Variable, VariableValue] = Field(
        default_factory=dict,
        description="values of `${name}` in other keys; `-P name=value` on the command line overrides them",
        examples=[{"data": "/data", "sizes": ["16", "64"]}],
    )

    @property
    def settings(self) -> ExperimentSettings:
        return ExperimentSettings.model_validate(self.model_dump(include=set(ExperimentSettings.model_fields)))


def load_plan(path: Path, *, places: bool = True, variables: Mapping[str, Any] | None = None) -> tuple[Plan, Document]:
    """Read and validate a plan. With ``places`` it must name images or hosts.

    ``variables`` are variables of the command line. Raise PlanError with every problem, and UsageError for a variable
    that the plan does not use.
    """
    try:
        document = read_document(path, named_by="PLAN.yaml")
    except MatrixError as error:
        raise PlanError(error.message, hint=error.hint) from None
    document = with_variables(document, variables or {})
    plan = validate_plan(document)
    if places and not (plan.images or plan.hosts):
        raise plan_problems(document, [((), "names neither images nor hosts: write `images: [cpu]`")])
    return plan, document


def validate_plan(document: Document) -> Plan:
    """Return the plan of a document. Raise PlanError with every problem."""
    if document.shape_problem:
        raise PlanError(document.shape_problem, hint="It needs at least: models, and images or hosts.")
    if newer := document.newer_format("benchmark plan"):
        raise PlanError(newer, hint=UPGRADE)
    try:
        plan = Plan.model_validate(document.data)
    except ValidationError as error:
        raise plan_problems(document, [explain(detail, Plan) for detail in error.errors()]) from None
    if wrong := [*_repeated_flags(("args",), plan), *_contradictions(plan)]:
        raise plan_problems(document, wrong)
    return plan


def with_variables(document: Document, variables: Mapping[str, Any]) -> Document:
    """Replace the plan's variables, which ``variables`` override. Raise PlanError and UsageError."""
    if not isinstance(document.data, dict):
        return document
    own = document.data.get("variables")
    own, problems = own if isinstance(own, dict) else {}, list[tuple[Location, str]]()
    rest = {name: value for name, value in document.data.items() if name != "variables"}
    values = values_of({**own, **variables}, problems)
    filled = with_values(rest, values, (), problems) if values or not (own or variables) else rest
    if problems:
        raise plan_problems(document, problems)
    used = {*references(rest), *references(own), *references({**variables})}
    if idle := [name for name in variables if name not in used]:
        raise UsageError(f"-P {idle[0]} changes nothing: {document.path} has no ${{{idle[0]}}}.", hint="Correct it.")
    own_variables = {"variables": document.data["variables"]} if "variables" in document.data else {}
    return replace(document, data={**filled, **own_variables})


def _repeated_flags(at: Location, settings: ExperimentSettings) -> Iterator[tuple[Location, str]]:
    """Find flags in ``args`` that a key of the plan sets."""
    for place, word in enumerate(settings.args):
        flag = word.partition("=")[0].removeprefix("--")
        if word.startswith("--") and flag in _KEYS:
            yield (*at, place), f"{word!r} is set by the key {_KEYS[flag]!r}"


def _contradictions(plan: Plan) -> Iterator[tuple[Location, str]]:
    for number, rule in enumerate(plan.when):
        yield from _repeated_flags(("when", number, "set", "args"), rule.set)
    if "data_ingestion" in plan.phases and not (plan.data_dir or any(rule.set.data_dir for rule in plan.when)):
        yield ("phases", plan.phases.index("data_ingestion")), "data_ingestion reads `data_dir`, which is not set"
    if plan.images and max(plan.nodes) > 1 and plan.docker.network != "none":
        yield ("docker",), "`network` has no use with `nodes`: containers of several nodes get a network of their own"
    if plan.stop_at_out_of_memory and list(plan.batch_sizes) != sorted(plan.batch_sizes):
        yield ("batch_sizes",), "do not ascend, and `stop_at_out_of_memory` tries them from small to large"


def plan_problems(document: Document, errors: list[tuple[Location, str]]) -> PlanError:
    """Return one error with all problems of a plan, in the file's order."""
    return PlanError(problems(document, errors).message, hint=f"Correct {document.path}. {_HINT}")


_KEYS = {  # the keys of a plan that set flags of `bench`
    "model": "models",
    "batch_size": "batch_sizes",
    "dtype": "dtypes",
    "forward_only": "phases",
    "data_loader_only": "phases",
    "num_gpus": "gpus",
    "device": "gpus",
    **{name: name for name in ExperimentSettings.model_fields if name not in ("args", "env", "docker")},
}
