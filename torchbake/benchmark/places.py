"""Where experiments run: images of the engine and hosts, each with what it is known by, or why it cannot be used."""

import os
import platform
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torchbake.benchmark.commands import Container, host_words
from torchbake.benchmark.expand import Experiment, Named
from torchbake.benchmark.field_types import Docker, Host
from torchbake.benchmark.nodes import NETWORK, run_nodes, script
from torchbake.benchmark.outcome import Outcome, read_outcome
from torchbake.benchmark.records import Where
from torchbake.benchmark.sources import own_bench
from torchbake.benchmark.trial import Trial, try_image
from torchbake.build.plan import ref_of
from torchbake.checks.gpu import family_of, find_gpu
from torchbake.checks.smoke_run import Session, own_toolbox
from torchbake.core.job_variables import without_job
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.core.problem import Problem, unknown
from torchbake.core.processes import run_to_end
from torchbake.engine.client import Engine
from torchbake.engine.containers import undisturbed
from torchbake.engine.gpu import Gpu, gpu_of_host
from torchbake.engine.runner import RUN, Runner
from torchbake.errors import BenchmarkError, EngineError, MatrixError, SelectorError, UsageError
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.select import select
from torchbake.matrix.spec import pytorch_of
from torchbake.oci.reference import parse_reference

_UNSEEN = Gpu(how="runtime", reason="nobody was asked")


class Place(Protocol):
    """One of a plan's places."""

    @property
    def named(self) -> Named: ...

    @property
    def where(self) -> Where: ...

    def problem(self, experiment: Experiment) -> Problem | None:
        """Why an experiment is not run there; None where it can be."""

    def command(self, experiment: Experiment) -> str:
        """How it is started, as a shell takes it: one line, or several for several nodes."""

    def measure(self, experiment: Experiment, limit: int) -> Outcome:
        """Run it to its end. Raises KeyboardInterrupt once the run is stopped."""


@dataclass(frozen=True, kw_only=True)
class ImagePlace:
    """An image that the engine holds."""

    named: Named
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

    def measure(self, experiment: Experiment, limit: int) -> Outcome:
        if experiment.nodes == 1:
            words = self.container.words(experiment, self.labels)
            return read_outcome(run_to_end(words, env=os.environ, limit=limit, stopping=self.stopping))
        assert self.engine
        runner = Runner(self.engine, run=self.labels[RUN])
        try:
            commands = self._nodes(experiment, runner.labels, runner.network(internal=True))
            return run_nodes(commands, env=os.environ, limit=limit, stopping=self.stopping)
        except EngineError as error:
            return Outcome(reason=error.message)
        finally:
            with undisturbed():
                runner.remove_all()

    def _nodes(self, experiment: Experiment, labels: Mapping[str, str], network: str) -> list[list[str]]:
        """The command of each node: a container of this machine."""
        return [
            self.container.words(experiment, labels, node=node, network=network) for node in range(experiment.nodes)
        ]


@dataclass(frozen=True, kw_only=True)
class HostPlace:
    """A machine without a container: this one, or one behind ssh."""

    named: Named
    where: Where
    host: Host
    folder: Path
    timeout: int
    stopping: threading.Event
    gpu_mode: str = "auto"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def problem(self, experiment: Experiment) -> Problem | None:
        """Whether a machine behind ssh has a GPU is for its `bench` to say."""
        machines = len(self.host.ssh or (1,))
        if experiment.nodes > machines:
            return unknown(f"{self.named.name} names {machines} of {experiment.nodes} nodes")
        if not experiment.on_gpu:
            return None
        return (_UNSEEN if self.host.ssh else gpu_of_host()).problem(self.gpu_mode)

    def command(self, experiment: Experiment) -> str:
        variables = [] if self.host.ssh else [f"{name}={value}" for name, value in experiment.settings.env.items()]
        first, *others = self._nodes(experiment)
        return script([[*(["env", *variables] if variables else []), *first], *others])

    def measure(self, experiment: Experiment, limit: int) -> Outcome:
        env = without_job(self.environ) | (experiment.settings.env if not self.host.ssh else {})
        python = Path(self.host.python)
        if not self.host.ssh and python.is_absolute():  # what `bench` itself starts is to be this Python too
            env["PATH"] = f"{python.parent}:{env.get('PATH', os.defpath)}"
        commands = self._nodes(experiment)
        try:
            return run_nodes(commands, env=env, limit=limit + 30, stopping=self.stopping)
        except OSError as error:
            return Outcome(reason=f"{commands[0][0]} cannot be started: {error.strerror}.")

    def _nodes(self, experiment: Experiment) -> list[list[str]]:
        """The command of each node: another machine each."""
        return [
            host_words(self.host, experiment, limit=self.timeout, folder=self.folder, node=node)
            for node in range(experiment.nodes)
        ]


def names_of(images: Sequence[str], hosts: Sequence[Host], project: Project | None) -> list[tuple[Named, str | Host]]:
    """The places of a plan, each with its reference or its host. Raises SelectorError and UsageError.

    Words of a selector may mean several images; a reference has a colon, a slash or an @.
    """
    found: dict[str, tuple[Named, str | Host]] = {}
    for word in images:
        for name, reference in _images(word, project):
            found.setdefault(name, (Named(kind="image", word=word, name=name), reference))
    for host in hosts:
        found.setdefault(host.name, (Named(kind="host", word=host.word, name=host.name), host))
    return list(found.values())


def _images(word: str, project: Project | None) -> list[tuple[str, str]]:
    if set(word) & set("/:@"):
        parse_reference(word)
        return [(word, word)]
    if project is None:
        raise UsageError(
            f"{word!r} names an image of a matrix, but there is no matrix here.", hint="Name it by --matrix FILE."
        )
    specs = pytorch_of(project.expansion.specs)
    holder = [spec for spec in specs if word in project.tags[spec.id]]
    chosen = holder or pytorch_of(select(project.expansion.specs, word.split(), project.tags).specs)
    if not chosen:
        raise SelectorError(f"{word!r} selects no PyTorch image.", hint="`nox -s list -- all` shows them.")
    return [(spec.id, ref_of(spec, project.tags[spec.id])) for spec in chosen]


@dataclass(frozen=True, kw_only=True)
class Finder:
    """Finds places. ``engine`` is None where none is needed, or for a dry run where none answers.

    ``dry``: start nothing. ``own``: mount this toolkit's `bench` into every image, so that all have the same.
    """

    engine: Engine | None
    session: Session
    folder: Path
    timeout: int
    gpu: str = "auto"
    dry: bool = False
    own: bool = False
    docker: Docker = field(default_factory=Docker)

    def place(self, named: Named, what: str | Host) -> Place:
        """Raises BenchmarkError where the engine has no such image, and EngineError."""
        if isinstance(what, Host):
            bench = "" if what.ssh or what.bench else own_bench()
            where = Where(kind="host", name=named.name, host=what.word if what.ssh else platform.node(), bench=bench)
            return HostPlace(
                named=named, where=where, host=what, folder=self.folder, timeout=self.timeout,
                stopping=self.session.stopping, gpu_mode=self.gpu,
            )  # fmt: skip
        if self.engine is None:
            return self._unseen(named, what)
        return self._held(self.engine, named, what)

    def _unseen(self, named: Named, reference: str) -> Place:
        """An image that nobody could look into: for a dry run."""
        toolbox = OWN_TOOLBOX if self.own else None
        container = Container(image=reference, family="cuda", gpu=_UNSEEN, folder=self.folder, toolbox=toolbox)
        return self._image(named, container, Where(kind="image", name=named.name, host=platform.node()), {})

    def _held(self, engine: Engine, named: Named, reference: str) -> Place:
        digest = engine.find([reference])
        if digest is None and self.dry:
            return self._unseen(named, reference)
        if digest is None:
            how = f"nox -s build -- {named.name}" if reference != named.name else f"docker pull {reference}"
            raise BenchmarkError(f"{reference} is not in the engine.", hint=how)
        config = engine.config(digest)
        family = family_of(None, config)
        labels = Runner(engine, run=self.session.id).labels
        host = str(engine.info.get("Name") or platform.node())
        tried = Trial(has_bench=True) if self.dry else try_image(digest, self.docker, labels, self.session.stopping)
        container = Container(
            image=reference if self.dry else digest, family=family, folder=self.folder,
            gpu=find_gpu(engine, digest, family, self.gpu, self.session, dry=self.dry),
            toolbox=self._toolbox(engine, config.get("Labels") or {}, tried), without=tried.without,
        )  # fmt: skip
        bench = own_bench() if container.toolbox else ""
        where = Where(kind="image", name=named.name, digest=digest, host=host, bench=bench)
        return self._image(named, container, where, labels)

    def _image(self, named: Named, container: Container, where: Where, labels: Mapping[str, str]) -> ImagePlace:
        return ImagePlace(
            named=named, where=where, container=container, gpu_mode=self.gpu, labels=labels,
            stopping=self.session.stopping, engine=self.engine,
        )  # fmt: skip

    def _toolbox(self, engine: Engine, labels: Mapping[str, str], tried: Trial) -> Path | None:
        """What is mounted where an image has no `bench` of its own, as the engine can see it."""
        if not engine.address.local:
            return None
        return OWN_TOOLBOX if self.own or not tried.has_bench or own_toolbox(engine, labels) else None


def project_of(matrix: Path, images: Sequence[str]) -> Project | None:
    """The matrix, where words of it are asked for. Raises MatrixError."""
    if all(set(word) & set("/:@") for word in images):
        return None
    if not matrix.exists():
        raise MatrixError(f"{matrix}: no such file.", hint="Name it by --matrix FILE, or name images by references.")
    return load_project(matrix)
