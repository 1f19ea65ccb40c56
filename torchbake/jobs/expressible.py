"""Keys of a job that a target cannot express. Each is an error or a warning, and never dropped in silence. Pure.

A target declares these keys in its module (`CANNOT`, `NEEDS`, `MOST_NODES`). It can express all other keys of the
model.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from torchbake.jobs.model import SECTIONS, Job
from torchbake.jobs.quantities import cpus_of
from torchbake.jobs.task import Task
from torchbake.matrix.manual import places
from torchbake.matrix.yaml_source import FORMAT_KEY, Location

Problem = tuple[Location, str]


@dataclass(frozen=True, kw_only=True)
class Cannot:
    """A key that a target cannot express, such as ``volumes[].size``, and the alternative.

    ``when`` limits it to some jobs, and ``only`` names these jobs in words.
    """

    key: str
    why: str
    when: Callable[[Job], bool] = lambda _: True
    only: str = ""


def cannot(keys: Iterable[str], why: str) -> tuple[Cannot, ...]:
    """Keys that a target cannot express for one reason."""
    return tuple(Cannot(key=key, why=why) for key in keys)


# Keys of Kubernetes alone: pods have a place for the first ones, and some operators for the others.
OF_PODS = ("priority", "nodeSelector", "tolerations", "affinity", "serviceAccount")
OF_KUBERNETES = ("account", "ttlSecondsAfterFinished", "suspend", "managedBy", "queue", "gang")
CHOICE_OF_FILES = tuple(
    Cannot(
        key=key,
        why="its manifest carries no files to choose from; remove this key, or name a folder with these files alone",
        when=lambda job: not job.files.layer,
        only="of a `folder`",
    )
    for key in ("files.include", "files.exclude")
)


def restarts_unless_elastic(why: str) -> Cannot:
    """Restarts of a job that is not elastic. torchrun itself restarts the ranks of an elastic job.

    A job with `restarts: 0` is expressible everywhere, as no launcher restarts it.
    """
    when, only = (lambda job: bool(job.restarts) and not job.elastic), "more than 0, of a job that is not elastic"
    return Cannot(key="restarts", why=why, when=when, only=only)


def whole_cpus(launcher: str) -> Cannot:
    """Parts of a CPU, under a launcher that counts whole CPUs."""
    when, only = (lambda job: cpus_of(job.resources.cpu or "1") % 1 != 0), "of parts of a CPU"
    return Cannot(key="resources.cpu", why=f"{launcher} counts whole CPUs", when=when, only=only)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """A key that a target requires; ``when`` limits it to some jobs."""

    key: str
    why: str
    when: Callable[[Job], bool] = lambda _: True


class Target(Protocol):
    """The interface of a module of ``targets``."""

    NAME: str
    ABOUT: str
    MOST_NODES: int
    CARRIES_FILES: bool  # the manifest holds the files of a folder
    CANNOT: tuple[Cannot, ...]
    NEEDS: tuple[Needs, ...]

    def render(self, task: Task) -> str:
        """Return the manifest, without the keys that the target cannot express."""


@runtime_checkable
class OfKubernetes(Target, Protocol):
    """A target whose manifest is objects of Kubernetes or of an operator."""

    def objects(self, task: Task) -> list[dict[str, Any]]:
        """Return the objects in the order in which they are applied."""


def unsupported_keys(job: Job, target: Target, kept_keys: frozenset[str] = frozenset()) -> list[Problem]:
    """Return the keys of this job that the target cannot express; without them it writes a manifest.

    ``kept_keys`` are keys that the caller implements itself.
    """
    return [
        (location, f"{target.NAME} cannot express this: {cannot.why}")
        for location, key in keys_of(job)
        for cannot in target.CANNOT
        if cannot.key == key and key not in kept_keys and cannot.when(job)
    ]


def impossible(job: Job, target: Target) -> list[Problem]:
    """Return the reasons why the target cannot write any manifest of this job."""
    problems: list[Problem] = []
    if job.most_nodes > target.MOST_NODES:
        text = f"{job.most_nodes} nodes are more than {target.NAME} takes, {target.MOST_NODES}"
        problems.append((("elastic" if job.elastic else "nodes",), text))
    keys = {key for _, key in keys_of(job)}
    for need in target.NEEDS:
        if need.key not in keys and need.when(job):
            text = f"is missing, and {target.NAME} needs it: {need.why}"
            problems.append((tuple(need.key.split(".")), text))
    return problems


def keys_of(job: Job) -> Iterator[tuple[Location, str]]:
    """Yield each key that the job's file sets: its location, and its key in the model (`volumes[].size`)."""
    return _keys(job, (), "")


def _keys(model: BaseModel, location: Location, path: str) -> Iterator[tuple[Location, str]]:
    for name, field in type(model).model_fields.items():
        if name not in model.model_fields_set or name == FORMAT_KEY:  # of the file, not of the job
            continue
        alias, value = field.alias or name, getattr(model, name)
        here, key = (*location, alias), path + alias
        yield here, key
        inner: list[tuple[Location, str, object]] = [((), "", value)]
        if isinstance(value, tuple):
            inner = [((place,), "[]", each) for place, each in enumerate(value)]
        elif isinstance(value, dict):
            inner = [((name,), ".*", each) for name, each in value.items()]
        for steps, mark, each in inner:
            if isinstance(each, BaseModel):
                yield from _keys(each, (*here, *steps), f"{key}{mark}.")


@cache
def known_keys() -> tuple[str, ...]:
    """Return every key of the model in its order, without that of the file's format."""
    schema = Job.model_json_schema()
    below = {path: schema["$defs"][name]["properties"] for name, path in places(schema)}
    return (
        *(key for key in schema["properties"] if key != FORMAT_KEY),
        *(f"{path}.{key}" for path, keys in below.items() for key in keys),
    )


def sayable(target: Target) -> list[str]:
    """Return the keys that a target can express for some jobs at least."""
    never = {cannot.key for cannot in target.CANNOT if not cannot.only} | ({*SECTIONS} - {target.NAME})
    return [key for key in known_keys() if not any(key == no or key.startswith((f"{no}.", f"{no}[")) for no in never)]
