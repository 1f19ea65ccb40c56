"""Experiments of a plan: each model with each batch size, type, phase and number of GPUs, on each place. Pure."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from torchbake.benchmark.field_types import Conditions, ExperimentExclude, PlanMapping
from torchbake.benchmark.model import ExperimentSettings, Plan, When, plan_problems
from torchbake.benchmark.variables import KEYS, fill
from torchbake.core.digest import digest
from torchbake.core.paths import OWN_BENCH
from torchbake.matrix.yaml_source import Document, Location


class ExperimentSource(PlanMapping):
    """Files of an experiment: ``model`` is the digest of the file of a class, ``data`` a folder's absolute path."""

    model: str = ""
    data: str = ""


class Experiment(PlanMapping):
    """A measurement without its place. Results of equal experiments are comparable, also across plans."""

    model: str
    batch_size: int
    dtype: str
    phase: str
    gpus: int
    nodes: int = 1
    settings: ExperimentSettings
    source: ExperimentSource = ExperimentSource()

    @property
    def name(self) -> str:
        """``resnet50 training float32 batch 16 cpu``; unique within a plan."""
        device = f"{f'{self.gpus} ' if self.gpus else ''}{'gpu' if self.on_gpu else 'cpu'}"
        nodes = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.model} {self.phase} {self.dtype} batch {self.batch_size} {device}{nodes}"

    @property
    def on_gpu(self) -> bool:
        return self.gpus > 0 and self.settings.device == "gpu"


@dataclass(frozen=True, kw_only=True)
class PlaceName:
    """A place of a plan, with the ``word`` in the plan and the ``name`` in results."""

    kind: str  # image or host
    word: str
    name: str


@dataclass(frozen=True, kw_only=True)
class PlanCase:
    """An experiment on a place; ``excluded`` is the plan's reason not to run it, if any."""

    experiment: Experiment
    place: PlaceName
    excluded: str = ""


def expand(plan: Plan, places: Sequence[PlaceName], document: Document) -> tuple[PlanCase, ...]:
    """Return all cases. Places of one experiment are adjacent, so that they are compared under equal conditions.

    Raise PlanError for a rule that matches no experiment, and for rules that leave none.
    """
    cases = tuple(
        PlanCase(experiment=each, place=place, excluded=_reason(plan.exclude, each, place))
        for each in experiments(plan)
        for place in places
    )
    idle: list[tuple[Location, str]] = [
        (("exclude", number), "excludes nothing: no experiment of this plan has all of its keys")
        for number, rule in enumerate(plan.exclude)
        if not any(_holds(rule, case.experiment, case.place) for case in cases)
    ]
    idle += [
        (("when", number), "changes nothing: no experiment of this plan has all of its keys")
        for number, rule in enumerate(plan.when)
        if not any(_agrees(rule, case.experiment) for case in cases)
    ]
    if idle:
        raise plan_problems(document, idle)
    if all(case.excluded for case in cases):
        raise plan_problems(document, [(("exclude",), "leaves no experiment")])
    return cases


def experiments(plan: Plan) -> Iterator[Experiment]:
    """Return each combination of the plan's axes with its settings; ``exclude`` is not applied."""
    settings = plan.settings
    axes = product(plan.models, plan.batch_sizes, plan.dtypes, plan.phases, plan.gpus, plan.nodes)
    for model, batch, dtype, phase, gpus, nodes in axes:
        experiment = Experiment(
            model=model, batch_size=batch, dtype=dtype, phase=phase, gpus=gpus, nodes=nodes, settings=settings
        )
        yield _with_settings(experiment, plan.when)


def _with_settings(experiment: Experiment, rules: Sequence[When]) -> Experiment:
    """Apply the rules that match the experiment, and replace references to its keys in the settings."""
    settings = experiment.settings
    for rule in rules:
        if _agrees(rule, experiment):
            settings = _change(settings, rule.set)
    known_names = {key: getattr(experiment if key in Conditions.model_fields else settings, key) for key in KEYS}
    options = tuple(fill(word, known_names) for word in settings.docker.options)
    update = {
        "args": tuple(fill(word, known_names) for word in settings.args),
        "env": {name: fill(value, known_names) for name, value in settings.env.items()},
        "data_dir": fill(settings.data_dir, known_names) if settings.data_dir else None,
        "docker": settings.docker.model_copy(update={"options": options}),
    }
    return experiment.model_copy(update={"settings": settings.model_copy(update=update)})


def _change(settings: ExperimentSettings, by: ExperimentSettings) -> ExperimentSettings:
    """Override the keys that ``by`` sets; ``env`` and ``docker`` are merged."""
    update: dict[str, object] = {name: getattr(by, name) for name in by.model_fields_set}
    if "env" in update:
        update["env"] = {**settings.env, **by.env}
    if "docker" in update:
        docker = {name: getattr(by.docker, name) for name in by.docker.model_fields_set}
        update["docker"] = settings.docker.model_copy(update=docker)
    return settings.model_copy(update=update)


def comparable(plan: Plan, places: Sequence[PlaceName]) -> tuple[Experiment, ...]:
    """Return the experiments that the plan excludes on none of these places."""
    return tuple(each for each in experiments(plan) if not any(_reason(plan.exclude, each, place) for place in places))


def _reason(rules: Sequence[ExperimentExclude], experiment: Experiment, place: PlaceName) -> str:
    return next((rule.reason for rule in rules if _holds(rule, experiment, place)), "")


def _holds(rule: ExperimentExclude, experiment: Experiment, place: PlaceName) -> bool:
    for kind, words in (("image", rule.image), ("host", rule.host)):
        if words and not (kind == place.kind and {place.word, place.name} & {*words}):
            return False
    return _agrees(rule, experiment)


def _agrees(rule: Conditions, experiment: Experiment) -> bool:
    """Check if an experiment has all values of a rule, on any place."""
    conditions = {key: getattr(rule, key) for key in Conditions.model_fields}
    return all(values is None or getattr(experiment, key) in values for key, values in conditions.items())


def with_source(experiment: Experiment, folder: Path) -> Experiment:
    """Add the identity of its files to an experiment of a plan in ``folder``, as other files can have the same names.

    Raise OSError for a file that exists and cannot be read.
    """
    data = experiment.settings.data_dir
    file = folder / experiment.model.rpartition(":")[0]
    code = hashlib.sha256(file.read_bytes()).hexdigest() if is_own(experiment.model) and file.is_file() else ""
    source = ExperimentSource(model=f"sha256:{code}" if code else "", data=str(folder / data) if data else "")
    return experiment.model_copy(update={"source": source})


def demand_files(plan: Plan, document: Document, folder: Path) -> None:
    """Raise PlanError if files of a plan in ``folder`` are missing, unless only other machines need them."""
    if plan.hosts and not plan.images and all(host.ssh for host in plan.hosts):
        return
    matches: list[tuple[Location, str]] = []
    for data in dict.fromkeys(each.settings.data_dir for each in experiments(plan)):
        if data and not (folder / data).is_dir():
            matches.append((("data_dir",), f"{folder / data} is not a folder"))
    for number, model in enumerate(plan.models):
        file = folder / model.rpartition(":")[0]
        if is_own(model) and not file.is_file():
            matches.append((("models", number), f"{file} is not a file"))
    if matches:
        raise plan_problems(document, matches)


@cache
def own_bench() -> str:
    """Return the digest of this toolkit's `bench`, which is mounted into images without one."""
    files = [OWN_BENCH, *sorted((OWN_BENCH.parent / "benchmark").rglob("*.py"))]
    return digest(part for file in files for part in (str(file.relative_to(OWN_BENCH.parent)), file.read_text("utf-8")))


def is_own(model: str) -> bool:
    """Check if a model is a class in a file: ``mine.py:Net``."""
    return ".py:" in model
