"""From a plan to its experiments: each model with each batch size, type, phase and number of GPUs, everywhere. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from torchbake.benchmark.field_types import Exclude, Model
from torchbake.benchmark.model import Plan, Settings, plan_problems
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
    settings: Settings
    source: Source = Source()

    @property
    def name(self) -> str:
        """``resnet50 training float32 batch 16 cpu``; unique within a plan."""
        number = f"{self.gpus} " if self.gpus else ""
        return (
            f"{self.model} {self.phase} {self.dtype} batch {self.batch_size} {number}{'gpu' if self.on_gpu else 'cpu'}"
        )

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

    Raises PlanError for a rule that excludes nothing, and for rules that leave nothing.
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
    if idle:
        raise plan_problems(document, idle)
    if all(case.excluded for case in cases):
        raise plan_problems(document, [(("exclude",), "leaves no experiment")])
    return cases


def experiments(plan: Plan) -> Iterator[Experiment]:
    """Each model with each of the other axes; exclusions are not asked."""
    settings = plan.settings
    for model, batch, dtype, phase, gpus in product(
        plan.models, plan.batch_sizes, plan.dtypes, plan.phases, plan.gpus
    ):  # fmt: skip
        yield Experiment(model=model, batch_size=batch, dtype=dtype, phase=phase, gpus=gpus, settings=settings)


def comparable(plan: Plan, places: Sequence[Named]) -> tuple[Experiment, ...]:
    """The experiments that the plan excludes on none of these places."""
    return tuple(each for each in experiments(plan) if not any(_reason(plan.exclude, each, place) for place in places))


def _reason(rules: Sequence[Exclude], experiment: Experiment, place: Named) -> str:
    return next((rule.reason for rule in rules if _holds(rule, experiment, place)), "")


def _holds(rule: Exclude, experiment: Experiment, place: Named) -> bool:
    names = {place.kind: {place.word, place.name}, "image" if place.kind == "host" else "host": set[str]()}
    return all(
        wanted is None or _meets(wanted, names[key] if key in names else {getattr(experiment, key)})
        for key, wanted in ((key, getattr(rule, key)) for key in Exclude.model_fields if key != "reason")
    )


def _meets(wanted: Sequence[object], found: set[str] | set[int]) -> bool:
    return any(one in found for one in wanted)
