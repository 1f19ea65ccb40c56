"""Runs a job on the engine, one container for each node. Afterwards containers and network are removed."""

import re
import signal
import time
from collections.abc import Mapping

from docker.models.containers import Container

from torchbake.engine.client import Engine
from torchbake.engine.containers import shield
from torchbake.engine.gpu import GpuAccess, look_for_gpu
from torchbake.engine.image_check import pull_image
from torchbake.engine.runner import ContainerEnd, Runner
from torchbake.errors import EngineError, JobError
from torchbake.jobs.engine_options import options_of, permissions_of
from torchbake.jobs.foreign import is_ours, lacks_run
from torchbake.jobs.launchers import TIMED_OUT
from torchbake.jobs.output import Output
from torchbake.jobs.task import Task, grace_of, node_name
from torchbake.oci.reference import parse_reference
from torchbake.registry.credentials import login_for_engine
from torchbake.ui import console
from torchbake.ui.command import Command

_LOOK = 0.3  # seconds between two looks at the containers
# Messages of runc and of crun: exec: "x": executable file not found in $PATH, or: executable file `x` not found.
_NO_PROGRAM = re.compile(r"""exec: "[^"]*": (stat \S+: no such file|executable file)|executable file \S+ not found""")
_KILL_SECONDS = 30.0  # for the engine to kill containers
_FIXING_SECONDS = 3600.0  # a volume may hold millions of files


def run_here(engine: Engine, task: Task, environ: Mapping[str, str], output: Output | None = None) -> int:
    """Run a job and return its exit code: the code of node 0, which is that of the first rank that failed on any node.

    After Ctrl-C or SIGTERM, as KeyboardInterrupt, the nodes get the script's time to save. Raises EngineError, and
    JobError for a secret that is not in ``environ``.
    """
    secrets = secrets_of(task, environ)
    gpu = look_for_gpu(engine) if task.job.resources.gpu else None
    if gpu and not gpu.there:
        raise EngineError(f"The job wants GPUs, but {gpu.reason}.", hint=f"See {Command('help', 'gpu')}.")
    image = pulled(engine, task.image)
    if not task.job.command and not is_ours(engine.config(image).get("Labels") or {}):
        raise JobError(f"{lacks_run(task.image)}.")
    runner = Runner(engine)
    try:
        if task.fixed:
            _fix_permissions(runner, task, pulled(engine, task.init_image))
        return LocalNodes(runner, task, output or Output()).run(image, secrets, gpu)
    finally:
        with shield():
            runner.remove_all()


def secrets_of(task: Task, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the job's secrets from variables of the shell. Raises JobError with every missing variable."""
    secrets = task.job.secrets
    missing = [f"{name} (the key {each.key} of {each.secret})" for name, each in secrets.items() if name not in environ]
    if missing:
        raise JobError(
            f"Secrets of the job are not set as variables of this shell: {', '.join(missing)}.", hint="Export them."
        )
    return {name: environ[name] for name in secrets}


def pulled(engine: Engine, reference: str) -> str:
    """Return the id of the image in the engine, after a pull if needed. A later change of the tag has no effect."""
    text = engine.find([reference])
    if text is None:
        name = parse_reference(reference)
        console.say(f"pulling {reference} …", style="dim")
        text = pull_image(engine, str(name.repository), name.key, login_for_engine(name.repository.host))
    return text


def _fix_permissions(runner: Runner, task: Task, image: str) -> None:
    words, options = permissions_of(task)
    container = runner.container(image, words, **options)
    runner.start(container)
    late = not runner.wait(container, _FIXING_SECONDS)
    end = runner.wait_for_end(container, "volume-permissions", late=late)
    if not end.good:
        raise JobError(
            f"volume-permissions {end.how}: {end.last_words}",
            hint=f"Its exit codes: {Command('help', 'env-contract')}",
        )


class LocalNodes:
    """The containers of one job, by rank."""

    def __init__(self, runner: Runner, task: Task, output: Output) -> None:
        self._runner, self._task, self._job, self._output = runner, task, task.job, output
        self._containers: list[Container] = []
        self._ends: dict[int, ContainerEnd] = {}  # nodes that ended by themselves

    def run(self, image: str, secrets: Mapping[str, str], gpu: GpuAccess | None) -> int:
        network = self._runner.network(internal=False)
        for rank in range(self._job.most_nodes):
            options = options_of(self._task, rank, secrets, gpu)
            host = options["hostname"]
            options |= {"name": f"torchbake-{self._runner.id}-{host}", **self._runner.endpoint(network, host)}
            self._containers.append(self._runner.container(image, self._job.words, labels=self._job.labels, **options))
        try:
            self._start()
            late = not self._watch()
        except KeyboardInterrupt:
            console.say(f"cancelling; the nodes get {grace_of(self._job)} s to save and end …", style="yellow")
            self._stop()
            raise
        self._stop()
        self._output.end(_KILL_SECONDS)
        if late:
            return TIMED_OUT
        failed = (end for end in self._ends.values() if not end.good)
        return (self._ends[0] if 0 in self._ends else min(failed, key=lambda each: each.at)).code

    def _start(self) -> None:
        """Start the other nodes before node 0, since they wait for it."""
        for rank in reversed(range(len(self._containers))):
            name, container = node_name(self._job, rank), self._containers[rank]
            self._output.show(self._runner.follow(container), name if len(self._containers) > 1 else "")
            self._runner.start(container)
            end = self._runner.wait_for_end(container, name)
            if _NO_PROGRAM.search(end.problem):
                raise JobError(
                    f"{self._task.image} has no program {self._job.words[0]}.",
                    hint="Write another `command`, or the program's whole path in the image.",
                )
            if end.problem:
                raise EngineError(f"{end.name} {end.how}")

    def _watch(self) -> bool:
        """Wait for the end of all nodes. Returns False if the job's time is over.

        `run` ends all nodes that have met. A node that still runs after the others' time to save never met them, so
        the wait ends without it.
        """
        limit = self._job.timeouts.job
        deadline = time.monotonic() + limit if limit else None
        last_end = None
        while self._running():
            lost = any(not end.good for end in self._ends.values())
            if last_end is None and (0 in self._ends or (lost and not self._job.elastic)):
                last_end = time.monotonic() + grace_of(self._job)
            if last_end and time.monotonic() > last_end:
                return True
            if deadline and time.monotonic() > deadline:
                console.say(f"the job did not end within {limit} s, and is stopped", style="yellow")
                return False
            self._output.check()
            time.sleep(_LOOK)
        return True

    def _running(self) -> set[str]:
        """Return the ids of the running nodes. Keep how each of the others ended, and report a failure."""
        running = self._runner.running()
        for rank, container in enumerate(self._containers):
            if str(container.id) not in running and rank not in self._ends:
                end = self._runner.wait_for_end(container, node_name(self._job, rank))
                self._ends[rank] = end
                if end.out_of_memory or (not end.good and len(self._containers) > 1):
                    console.say(f"{end.name} {end.how}", style="yellow")
        return running & {str(container.id) for container in self._containers}

    def _stop(self) -> None:
        """Send SIGTERM to running nodes, and SIGKILL after their time to save."""
        ids = {str(container.id) for container in self._containers}
        running = self._runner.running() & ids
        for number, seconds in ((signal.SIGTERM, float(grace_of(self._job))), (signal.SIGKILL, _KILL_SECONDS)):
            self._runner.kill(running, number)
            until = time.monotonic() + seconds
            while running and time.monotonic() < until:
                time.sleep(_LOOK)
                running = self._runner.running() & ids
