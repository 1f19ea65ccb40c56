"""What a job says that a target cannot: an error or a warning for each, never dropped in silence. Pure.

A target declares it beside its code (`CANNOT`, `NEEDS`, `MOST_NODES`); it can say all else that the model has.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from torchbake.jobs.model import SECTIONS, Job
from torchbake.jobs.task import Task
from torchbake.matrix.manual import places
from torchbake.matrix.yaml_source import Location

Problem = tuple[Location, str]


@dataclass(frozen=True, kw_only=True)
class Cannot:
    """A key that a target cannot express, and what to do instead; ``when`` and its words: only for some jobs."""

    key: str  # volumes[].size
    why: str
    when: Callable[[Job], bool] = lambda _: True
    only: str = ""


# Keys that Kubernetes alone has a place for, and some of its launchers.
OF_KUBERNETES = ("account", "ttlSecondsAfterFinished", "suspend", "managedBy", "queue", "gang")


def cannot(keys: Iterable[str], why: str) -> tuple[Cannot, ...]:
    """Keys that a target cannot express for one reason."""
    return tuple(Cannot(key=key, why=why) for key in keys)


# Of a target whose manifest carries no files: the job has the folder itself, or none.
CHOICE_OF_FILES = cannot(
    ("files.include", "files.exclude"),
    "its manifest carries no files to choose from; remove this key, or name a folder with these files alone",
)


def restarts_unless_elastic(why: str) -> Cannot:
    """The ranks of an elastic job are started again by torchrun; any other's script would be by the launcher, if ever.

    So a job that is never to be started again is just what the launcher does.
    """
    when, only = (lambda job: bool(job.restarts) and not job.elastic), "more than 0, of a job that is not elastic"
    return Cannot(key="restarts", why=why, when=when, only=only)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """A key that a target must have; ``when``: only for some jobs."""

    key: str
    why: str
    when: Callable[[Job], bool] = lambda _: True


class Target(Protocol):
    """What a module of ``targets`` offers."""

    NAME: str
    ABOUT: str
    MOST_NODES: int
    CARRIES_FILES: bool  # the manifest holds the files of a folder
    CANNOT: tuple[Cannot, ...]
    NEEDS: tuple[Needs, ...]

    def render(self, task: Task) -> str:
        """The manifest. Of what the target cannot express it says nothing."""


@runtime_checkable
class OfKubernetes(Target, Protocol):
    """A target whose manifest is objects of Kubernetes, be they an operator's."""

    def objects(self, task: Task) -> list[dict[str, Any]]:
        """What is applied, in this order."""


def unsaid(job: Job, target: Target, kept: frozenset[str] = frozenset()) -> list[Problem]:
    """What of this job the target cannot say, each with the key in the file: without it there is a manifest.

    ``kept`` are keys that somebody else takes care of.
    """
    return [
        (location, f"{target.NAME} cannot express this: {cannot.why}")
        for location, key in said(job)
        for cannot in target.CANNOT
        if cannot.key == key and key not in kept and cannot.when(job)
    ]


def impossible(job: Job, target: Target) -> list[Problem]:
    """What keeps the target from any manifest of this job."""
    return [*_too_many(job, target), *_missing(job, target)]


def _too_many(job: Job, target: Target) -> Iterator[Problem]:
    if job.most_nodes > target.MOST_NODES:
        key = "elastic" if job.elastic else "nodes"
        yield (key,), f"{job.most_nodes} nodes are more than {target.NAME} takes, {target.MOST_NODES}"


def _missing(job: Job, target: Target) -> Iterator[Problem]:
    there = {key for _, key in said(job)}
    for need in target.NEEDS:
        if need.key not in there and need.when(job):
            yield tuple(need.key.split(".")), f"is missing, and {target.NAME} needs it: {need.why}"


def said(job: Job) -> Iterator[tuple[Location, str]]:
    """Each key that the job's file says: where it is, and as its model has it (`volumes[].size`)."""
    return _said(job, (), "")


def _said(model: BaseModel, location: Location, path: str) -> Iterator[tuple[Location, str]]:
    for name, field in type(model).model_fields.items():
        if name in model.model_fields_set:
            key = field.alias or name
            yield from _value(getattr(model, name), (*location, key), f"{path}{key}")


def _value(value: object, location: Location, key: str) -> Iterator[tuple[Location, str]]:
    yield location, key
    if isinstance(value, BaseModel):
        yield from _said(value, location, f"{key}.")
    elif isinstance(value, tuple):
        for place, one in enumerate(value):
            if isinstance(one, BaseModel):
                yield from _said(one, (*location, place), f"{key}[].")
    elif isinstance(value, dict):
        for name, one in value.items():
            if isinstance(one, BaseModel):
                yield from _said(one, (*location, name), f"{key}.*.")


def known_keys() -> list[str]:
    """Every key of the model, in its order."""
    schema = Job.model_json_schema()
    below = {path: schema["$defs"][name]["properties"] for name, path in places(schema)}
    return [*schema["properties"], *(f"{path}.{key}" for path, keys in below.items() for key in keys)]


def sayable(target: Target) -> list[str]:
    """The keys that a target can express, be it not for each job."""
    never = {cannot.key for cannot in target.CANNOT if not cannot.only} | ({*SECTIONS} - {target.NAME})
    return [key for key in known_keys() if not any(key == no or key.startswith((f"{no}.", f"{no}[")) for no in never)]
