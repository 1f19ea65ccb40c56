"""Runs a job on the engine, as many containers as nodes, to its end; all that it made is gone afterwards."""

import re
import signal
import time
from collections.abc import Iterable, Mapping

from docker.models.containers import Container

from torchbake.engine.client import Engine
from torchbake.engine.containers import undisturbed
from torchbake.engine.gpu import Gpu, look_for_gpu
from torchbake.engine.image_check import pull_image
from torchbake.engine.runner import Ended, Runner
from torchbake.errors import EngineError, JobError
from torchbake.jobs.engine_options import options_of, permissions_of
from torchbake.jobs.foreign import is_ours, lacks_run
from torchbake.jobs.launchers import TIMED_OUT
from torchbake.jobs.output import Output
from torchbake.jobs.task import Task, grace_of, node_name
from torchbake.oci.reference import parse_reference
from torchbake.registry.credentials import login_for_engine
from torchbake.ui import console

_LOOK = 0.3  # seconds between two looks at what runs
# The words of runc and of crun: exec: "x": executable file not found in $PATH, or: executable file `x` not found.
_NO_PROGRAM = re.compile(r"""exec: "[^"]*": (stat \S+: no such file|executable file)|executable file \S+ not found""")
_KILL_SECONDS = 30.0  # that an engine gets to end what it was told to kill
_FIXING_SECONDS = 3600.0  # a volume may hold millions of files


def run_here(engine: Engine, task: Task, environ: Mapping[str, str], output: Output | None = None) -> int:
    """The job's exit code: that of node 0, which `run` ends with the code of the rank that failed first on any node.

    Ctrl-C and SIGTERM, as KeyboardInterrupt, give the nodes the time that a script has to save. Raises JobError for a
    secret that is not in ``environ``, and EngineError.
    """
    secrets = secrets_of(task, environ)
    gpu = _gpu(engine, task)
    image = _at_hand(engine, task.image)
    if not task.job.command and not is_ours(engine.config(image).get("Labels") or {}):
        raise JobError(f"{lacks_run(task.image)}.")
    runner = Runner(engine)
    try:
        if task.fixed:
            _fix_permissions(runner, task, _at_hand(engine, task.init_image))
        return Nodes(runner, task, output or Output()).run(image, secrets, gpu)
    finally:
        with undisturbed():
            runner.remove_all()


def secrets_of(task: Task, environ: Mapping[str, str]) -> dict[str, str]:
    """The job's secrets, as the shell has exported them. Raises JobError with all that are missing."""
    secrets = task.job.secrets
    missing = [f"{name} (the key {each.key} of {each.secret})" for name, each in secrets.items() if name not in environ]
    if missing:
        raise JobError(
            f"Secrets of the job are not set as variables of this shell: {', '.join(missing)}.", hint="Export them."
        )
    return {name: environ[name] for name in secrets}


def _gpu(engine: Engine, task: Task) -> Gpu | None:
    if not task.job.resources.gpu:
        return None
    gpu = look_for_gpu(engine)
    if not gpu.there:
        raise EngineError(f"The job wants GPUs, but {gpu.reason}.", hint="See docs/gpu.md.")
    return gpu


def _at_hand(engine: Engine, reference: str) -> str:
    """The image's id in the engine, pulled where it is not there: what a tag means cannot change from then on."""
    found = engine.find([reference])
    if found is None:
        name = parse_reference(reference)
        console.say(f"pulling {reference} …", style="dim")
        found = pull_image(engine, str(name.repository), name.key, login_for_engine(name.repository.host))
    return found


def _fix_permissions(runner: Runner, task: Task, image: str) -> None:
    words, options = permissions_of(task)
    container = runner.container(image, words, **options)
    runner.start(container)
    late = not runner.wait(container, _FIXING_SECONDS)
    ended = runner.ended(container, "volume-permissions", late=late)
    if not ended.good:
        raise JobError(
            f"volume-permissions {ended.how}: {ended.last_words}", hint="docs/env-contract.md has its exit codes."
        )


class Nodes:
    """The containers of one job, by rank."""

    def __init__(self, runner: Runner, task: Task, output: Output) -> None:
        self._runner, self._task, self._job, self._output = runner, task, task.job, output
        self._containers: list[Container] = []
        self._ended: dict[int, Ended] = {}  # those that ended by themselves

    def run(self, image: str, secrets: Mapping[str, str], gpu: Gpu | None) -> int:
        network = self._runner.network(internal=False)
        for rank in range(self._job.most_nodes):
            options = options_of(self._task, rank, secrets, gpu)
            host = options["hostname"]
            options |= {"name": f"torchbake-{self._runner.id}-{host}", **self._runner.attached(network, host)}
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
        return self._code(late=late)

    def _start(self) -> None:
        """The others before node 0, which they wait for."""
        for rank in reversed(range(len(self._containers))):
            name, container = node_name(self._job, rank), self._containers[rank]
            self._output.show(self._runner.follow(container), name if len(self._containers) > 1 else "")
            self._runner.start(container)
            ended = self._runner.ended(container, name)
            if ended.problem:
                raise self._not_started(ended)

    def _not_started(self, ended: Ended) -> Exception:
        """An image without the program is the job's mistake, in words of ours; any other reason is the engine's."""
        if not _NO_PROGRAM.search(ended.problem):
            return EngineError(f"{ended.name} {ended.how}")
        return JobError(
            f"{self._task.image} has no program {self._job.words[0]}.",
            hint="Write another `command`, or the program's whole path in the image.",
        )

    def _watch(self) -> bool:
        """Until all have ended, or long enough after one failed or the first ended; False when the job's time is over.

        `run` ends its nodes together. What does not follow was lost before the nodes had met, and waits for nobody.
        """
        limit = self._job.timeouts.job
        deadline = time.monotonic() + limit if limit else None
        others_until = None
        while self._running():
            if self._ends() and others_until is None:
                others_until = time.monotonic() + grace_of(self._job)
            if others_until and time.monotonic() > others_until:
                return True
            if deadline and time.monotonic() > deadline:
                console.say(f"the job did not end within {limit} s, and is stopped", style="yellow")
                return False
            self._output.check()
            time.sleep(_LOOK)
        return True

    def _running(self) -> set[str]:
        """The ids of the nodes that run; how each of the others ended is kept, and told if it is bad."""
        running = self._runner.running()
        for rank, container in enumerate(self._containers):
            if str(container.id) not in running and rank not in self._ended:
                ended = self._runner.ended(container, node_name(self._job, rank))
                self._ended[rank] = ended
                if ended.out_of_memory or (not ended.good and len(self._containers) > 1):
                    console.say(f"{ended.name} {ended.how}", style="yellow")
        return running & {str(container.id) for container in self._containers}

    def _ends(self) -> bool:
        lost = any(not ended.good for ended in self._ended.values())
        return 0 in self._ended or (lost and not self._job.elastic)

    def _stop(self) -> None:
        """SIGTERM for what still runs, and SIGKILL after its time."""
        ids = {str(container.id) for container in self._containers}
        running = self._runner.running() & ids
        for number, seconds in ((signal.SIGTERM, float(grace_of(self._job))), (signal.SIGKILL, _KILL_SECONDS)):
            self._runner.kill(running, number)
            until = time.monotonic() + seconds
            while running and time.monotonic() < until:
                time.sleep(_LOOK)
                running = self._runner.running() & ids

    def _code(self, *, late: bool) -> int:
        if late:
            return TIMED_OUT
        return (self._ended[0] if 0 in self._ended else _first(self._ended.values())).code


def _first(ended: Iterable[Ended]) -> Ended:
    """The one that failed first."""
    return min((each for each in ended if not each.good), key=lambda each: each.at)
