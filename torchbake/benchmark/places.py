"""Places of experiments: images of the engine, and hosts."""

import os
import platform
import re
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torchbake.benchmark.commands import Container, host_words, limits
from torchbake.benchmark.expand import Experiment, PlaceName, own_bench
from torchbake.benchmark.field_types import Docker, PlanHost
from torchbake.benchmark.nodes import NETWORK, run_nodes, script
from torchbake.benchmark.outcome import DOCKER, RunOutcome, read_outcome, refusal_of
from torchbake.benchmark.records import Where
from torchbake.build.plan import refs_of
from torchbake.checks.gpu import family_of, find_gpu
from torchbake.checks.smoke_run import Session, own_toolbox
from torchbake.core.job_variables import without_job
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.core.problem import Problem, unknown
from torchbake.core.processes import run_to_end
from torchbake.engine.client import Engine, starting_docker
from torchbake.engine.containers import shield
from torchbake.engine.gpu import GpuAccess, gpu_of_host
from torchbake.engine.runner import RUN, Runner, run_words
from torchbake.errors import BenchmarkError, EngineError, MatrixError, SelectorError, UsageError
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.select import select
from torchbake.matrix.spec import TOOLBOX, pytorch_of
from torchbake.matrix.tags import engine_tags
from torchbake.oci.reference import is_reference, parse_reference
from torchbake.ui import console
from torchbake.ui.command import Command

_UNSEEN = GpuAccess(how="runtime", reason="nobody was asked")  # of a place that this machine cannot examine
_RLIMITS = {"3": "stack", "8": "memlock"}  # numbers in Linux's include/uapi/asm-generic/resource.h
_REFUSED = re.compile(r"rlimit type (\d+): operation not permitted")
_SECONDS = 60


class Place(Protocol):
    """A place of a plan."""

    @property
    def place_name(self) -> PlaceName: ...

    @property
    def where(self) -> Where: ...

    def problem(self, experiment: Experiment) -> Problem | None:
        """Return the reason why the place cannot run an experiment, or None."""

    def command(self, experiment: Experiment) -> str:
        """Return the shell command of an experiment: one line, or several for several nodes."""

    def measure(self, experiment: Experiment, limit: int) -> RunOutcome:
        """Run an experiment to its end. Raise KeyboardInterrupt once the run is stopped."""


@dataclass(frozen=True, kw_only=True)
class ImagePlace:
    """An image in the engine."""

    place_name: PlaceName
    where: Where
    container: Container
    gpu_mode: str
    labels: Mapping[str, str]
    stopping: threading.Event
    engine: Engine | None = None  # None if nothing is started

    def problem(self, experiment: Experiment) -> Problem | None:
        if not experiment.on_gpu:
            return None
        if self.container.family != "cuda":
            return unknown("a CPU image has no use for a GPU")
        return self.container.gpu.problem(self.gpu_mode)

    def command(self, experiment: Experiment) -> str:
        if experiment.nodes == 1:
            return shlex.join(self.container.words(experiment))
        return script(self._nodes(experiment, {}, NETWORK), network=NETWORK)

    def measure(self, experiment: Experiment, limit: int) -> RunOutcome:
        if experiment.nodes == 1:
            words = self.container.words(experiment, self.labels)
            return read_outcome(run_to_end(words, env=os.environ, limit=limit, stopping=self.stopping))
        assert self.engine
        runner = Runner(self.engine, run=self.labels[RUN])
        try:
            commands = self._nodes(experiment, runner.labels, runner.network(internal=True))
            return run_nodes(commands, env=os.environ, limit=limit, stopping=self.stopping)
        except EngineError as error:
            return RunOutcome(reason=error.message)
        finally:
            with shield():
                runner.remove_all()

    def _nodes(self, experiment: Experiment, labels: Mapping[str, str], network: str) -> list[list[str]]:
        nodes = range(experiment.nodes)
        return [self.container.words(experiment, labels, node=node, network=network) for node in nodes]


@dataclass(frozen=True, kw_only=True)
class HostPlace:
    """A host without containers: this machine, or machines that ssh reaches."""

    place_name: PlaceName
    where: Where
    host: PlanHost
    folder: Path
    timeout: int
    stopping: threading.Event
    gpu_mode: str = "auto"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def problem(self, experiment: Experiment) -> Problem | None:
        """Return the reason why the host cannot run an experiment; the GPU of a remote machine is not checked here."""
        machines = len(self.host.ssh or (1,))
        if experiment.nodes > machines:
            return unknown(f"{self.place_name.name} names {machines} of {experiment.nodes} nodes")
        if not experiment.on_gpu:
            return None
        return (_UNSEEN if self.host.ssh else gpu_of_host()).problem(self.gpu_mode)

    def command(self, experiment: Experiment) -> str:
        variables = [] if self.host.ssh else [f"{name}={value}" for name, value in experiment.settings.env.items()]
        first, *others = self._nodes(experiment)
        return script([[*(["env", *variables] if variables else []), *first], *others])

    def measure(self, experiment: Experiment, limit: int) -> RunOutcome:
        env = without_job(self.environ) | (experiment.settings.env if not self.host.ssh else {})
        python = Path(self.host.python)
        if not self.host.ssh and python.is_absolute():  # processes that `bench` starts must be this Python, too
            env["PATH"] = f"{python.parent}:{env.get('PATH', os.defpath)}"
        commands = self._nodes(experiment)
        try:
            return run_nodes(commands, env=env, limit=limit + 30, stopping=self.stopping)
        except OSError as error:
            return RunOutcome(reason=f"{commands[0][0]} cannot be started: {error.strerror}.")

    def _nodes(self, experiment: Experiment) -> list[list[str]]:
        return [
            host_words(self.host, experiment, limit=self.timeout, folder=self.folder, node=node)
            for node in range(experiment.nodes)
        ]


def names_of(
    images: Sequence[str], hosts: Sequence[PlanHost], project: Project | None
) -> list[tuple[PlaceName, str | PlanHost]]:
    """Return the places of a plan, each with its image reference or its host. Raise SelectorError and UsageError.

    Words of a selector can select several images; a reference has a colon, a slash or an @.
    """
    matches: dict[str, tuple[PlaceName, str | PlanHost]] = {}
    for word in images:
        for name, reference in _images(word, project):
            matches.setdefault(name, (PlaceName(kind="image", word=word, name=name), reference))
    for host in hosts:
        matches.setdefault(host.name, (PlaceName(kind="host", word=host.word, name=host.name), host))
    return list(matches.values())


def _images(word: str, project: Project | None) -> list[tuple[str, str]]:
    if is_reference(word):
        parse_reference(word)
        return [(word, word)]
    if project is None:
        problem = f"{word!r} names an image of a matrix, but there is no matrix here."
        raise UsageError(problem, hint="Name it by --matrix FILE.")
    specs = project.expansion.specs
    holders = [spec for spec in pytorch_of(specs) if word in engine_tags(spec, project.tags[spec.id])]
    image_specs = holders or pytorch_of(select(specs, word.split(), project.tags).specs)
    if not image_specs:
        raise SelectorError(f"{word!r} selects no PyTorch image.", hint=f"`{Command('list', 'all')}` shows them.")
    return [*refs_of(image_specs, project.tags).items()]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a first container. ``without`` are limits that the engine cannot set, as in a container itself."""

    has_bench: bool
    without: frozenset[str] = frozenset()


def try_image(image: str, docker: Docker, labels: Mapping[str, str], stopping: threading.Event) -> Trial:
    """Start a container, again without each limit that is refused; limits that the plan sets are never left out.

    Raise BenchmarkError if no container starts, and EngineError if there is no docker command.
    """
    without = frozenset[str]()
    while True:
        words = [*run_words(labels), *limits(docker, without), image, "test", "-x", f"{TOOLBOX}/bench"]
        with starting_docker():
            result = run_to_end(words, env=os.environ, limit=_SECONDS, stopping=stopping)
        if result.code != DOCKER:
            return Trial(has_bench=result.code == 0, without=without)
        refused = _RLIMITS.get(match[1]) if (match := _REFUSED.search(result.stderr)) else None
        if refused is None or refused in without or refused in docker.model_fields_set:
            raise BenchmarkError(f"{image} does not start: {refusal_of(result)}", hint="Correct `docker` in the plan.")
        console.say(f"this engine may not raise the limit {refused}: containers are started without", style="yellow")
        without |= {refused}


@dataclass(frozen=True, kw_only=True)
class Finder:
    """Finder of places. ``engine`` is None if no image is needed, or if no engine answers a dry run.

    ``dry``: start nothing. ``own``: mount this toolkit's `bench` into every image, so that all have the same one.
    """

    engine: Engine | None
    session: Session
    folder: Path
    timeout: int
    gpu: str = "auto"
    dry: bool = False
    own: bool = False
    docker: Docker = field(default_factory=Docker)

    def place(self, place_name: PlaceName, what: str | PlanHost) -> Place:
        """Return the place. Raise BenchmarkError if the engine does not have the image, and EngineError."""
        if isinstance(what, PlanHost):
            bench = "" if what.ssh or what.bench else own_bench()
            where = Where(
                kind="host", name=place_name.name, host=what.word if what.ssh else platform.node(), bench=bench
            )
            return HostPlace(
                place_name=place_name, where=where, host=what, folder=self.folder, timeout=self.timeout,
                stopping=self.session.stopping, gpu_mode=self.gpu,
            )  # fmt: skip
        digest = self.engine.find([what]) if self.engine else None
        if self.engine and digest:
            return self._present(self.engine, place_name, what, digest)
        if self.engine and not self.dry:
            how = str(Command("build", place_name.name)) if what != place_name.name else f"docker pull {what}"
            raise BenchmarkError(f"{what} is not in the engine.", hint=how)
        toolbox = OWN_TOOLBOX if self.own else None
        container = Container(image=what, family="cuda", gpu=_UNSEEN, folder=self.folder, toolbox=toolbox)
        return self._image(place_name, container, Where(kind="image", name=place_name.name, host=platform.node()), {})

    def _present(self, engine: Engine, place_name: PlaceName, reference: str, digest: str) -> Place:
        config = engine.config(digest)
        family = family_of(None, config)
        labels = Runner(engine, run=self.session.id).labels
        trial = Trial(has_bench=True) if self.dry else try_image(digest, self.docker, labels, self.session.stopping)
        lacks_bench = self.own or not trial.has_bench or own_toolbox(engine, config.get("Labels") or {})
        toolbox = OWN_TOOLBOX if lacks_bench and engine.address.local else None
        container = Container(
            image=reference if self.dry else digest, family=family, folder=self.folder,
            gpu=find_gpu(engine, digest, family, self.gpu, self.session, dry=self.dry),
            toolbox=toolbox, without=trial.without,
        )  # fmt: skip
        host, bench = str(engine.info.get("Name") or platform.node()), own_bench() if toolbox else ""
        where = Where(kind="image", name=place_name.name, digest=digest, host=host, bench=bench)
        return self._image(place_name, container, where, labels)

    def _image(
        self, place_name: PlaceName, container: Container, where: Where, labels: Mapping[str, str]
    ) -> ImagePlace:
        return ImagePlace(
            place_name=place_name, where=where, container=container, gpu_mode=self.gpu, labels=labels,
            stopping=self.session.stopping, engine=self.engine,
        )  # fmt: skip


def project_of(matrix: Path, images: Sequence[str]) -> Project | None:
    """Return the project of a matrix, or None if all images are references. Raise MatrixError."""
    if all(map(is_reference, images)):
        return None
    if not matrix.exists():
        raise MatrixError(f"{matrix}: no such file.", hint="Name it by --matrix FILE, or name images by references.")
    return load_project(matrix)
