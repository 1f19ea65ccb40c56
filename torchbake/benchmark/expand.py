"""From a plan to its experiments: each model with each batch size, type, phase and number of GPUs, everywhere. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from torchbake.benchmark.field_types import Conditions, Exclude, Model
from torchbake.benchmark.model import Plan, Settings, When, plan_problems
from torchbake.benchmark.variables import KEYS, fill
from torchbake.matrix.yaml_source import Document, Location


class Source(Model):
    """The files behind an experiment: ``model`` is the digest of a class's own file, ``data`` a folder's whole path."""

    model: str = ""
    data: str = ""


class Experiment(Model):
    """What is measured, wherever that is. Equal ones are comparable, whatever the plan was that they came from."""

    model: str
    batch_size: int
    dtype: str
    phase: str
    gpus: int
    nodes: int = 1
    settings: Settings
    source: Source = Source()

    @property
    def name(self) -> str:
        """``resnet50 training float32 batch 16 cpu``; unique within a plan."""
        number = f"{self.gpus} " if self.gpus else ""
        where = f"{number}{'gpu' if self.on_gpu else 'cpu'}{f' on {self.nodes} nodes' if self.nodes > 1 else ''}"
        return f"{self.model} {self.phase} {self.dtype} batch {self.batch_size} {where}"

    @property
    def on_gpu(self) -> bool:
        return self.gpus > 0 and self.settings.device == "gpu"


@dataclass(frozen=True, kw_only=True)
class Named:
    """A place as a plan names it: ``word`` is what stands there, ``name`` what it is called in results."""

    kind: str  # image or host
    word: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """An experiment on a place; ``excluded`` is the plan's reason not to run it."""

    experiment: Experiment
    place: Named
    excluded: str = ""


def expand(plan: Plan, places: Sequence[Named], document: Document) -> tuple[Case, ...]:
    """All cases, those of one experiment side by side, so that places are compared under the same weather.

    Raises PlanError for a rule that holds for nothing, and for rules that leave nothing.
    """
    cases = tuple(
        Case(experiment=each, place=place, excluded=_reason(plan.exclude, each, place))
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
    """Each model with each of the other axes; exclusions are not asked."""
    settings = plan.settings
    for model, batch, dtype, phase, gpus, nodes in product(
        plan.models, plan.batch_sizes, plan.dtypes, plan.phases, plan.gpus, plan.nodes
    ):  # fmt: skip
        yield _settled(
            Experiment(
                model=model, batch_size=batch, dtype=dtype, phase=phase, gpus=gpus, nodes=nodes, settings=settings
            ),
            plan.when,
        )


def _settled(experiment: Experiment, rules: Sequence[When]) -> Experiment:
    """The experiment with the settings of the rules that hold for it, and with its own keys in their values."""
    settings = experiment.settings
    for rule in rules:
        if _agrees(rule, experiment):
            settings = _changed(settings, rule.set)
    known = {key: getattr(experiment if key in Conditions.model_fields else settings, key) for key in KEYS}
    docker = settings.docker.model_copy(
        update={"options": tuple(fill(word, known) for word in settings.docker.options)}
    )
    update = {
        "args": tuple(fill(word, known) for word in settings.args),
        "env": {name: fill(value, known) for name, value in settings.env.items()},
        "data_dir": fill(settings.data_dir, known) if settings.data_dir else None,
        "docker": docker,
    }
    return experiment.model_copy(update={"settings": settings.model_copy(update=update)})


def _changed(settings: Settings, by: Settings) -> Settings:
    """Only with the keys that are written; mappings are merged."""
    update: dict[str, object] = {name: getattr(by, name) for name in by.model_fields_set}
    if "env" in update:
        update["env"] = {**settings.env, **by.env}
    if "docker" in update:
        docker = {name: getattr(by.docker, name) for name in by.docker.model_fields_set}
        update["docker"] = settings.docker.model_copy(update=docker)
    return settings.model_copy(update=update)


def comparable(plan: Plan, places: Sequence[Named]) -> tuple[Experiment, ...]:
    """The experiments that the plan excludes on none of these places."""
    return tuple(each for each in experiments(plan) if not any(_reason(plan.exclude, each, place) for place in places))


def _reason(rules: Sequence[Exclude], experiment: Experiment, place: Named) -> str:
    return next((rule.reason for rule in rules if _holds(rule, experiment, place)), "")


def _holds(rule: Exclude, experiment: Experiment, place: Named) -> bool:
    names = {place.kind: {place.word, place.name}, "image" if place.kind == "host" else "host": set[str]()}
    places = all(wanted is None or _meets(wanted, names[key]) for key in names if (wanted := getattr(rule, key)))
    return places and _agrees(rule, experiment)


def _agrees(rule: Conditions, experiment: Experiment) -> bool:
    """Return whether an experiment has all values of a rule, on any place."""
    wanted = {key: getattr(rule, key) for key in Conditions.model_fields}
    return all(values is None or getattr(experiment, key) in values for key, values in wanted.items())


def _meets(wanted: Sequence[object], found: set[str]) -> bool:
    return any(one in found for one in wanted)
