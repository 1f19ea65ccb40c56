"""What `bench` has measured: its last line, read as a model. Pure."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from torchbake.core.json_text import NotJsonError, read_object
from torchbake.core.processes import Finished

START = '{"bench":'  # how the last line begins
_CONTRACT = 1
_KILLED, _NO_PROGRAM, _NOT_RUNNABLE, DOCKER, _SSH = 137, 127, 126, 125, 255


class _Part(BaseModel):
    """Newer tools may say more than is read here."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class Times(_Part):
    """Seconds of a batch."""

    mean: float
    median: float
    std: float
    min: float
    max: float
    p95: float
    p5: float | None = None
    p99: float | None = None


class Memory(_Part):
    """The most that was used, in bytes."""

    peak_rss_bytes: int | None = None
    peak_gpu_bytes: int | None = None


class Data(_Part):
    """Where samples came from; ``bound``: batches waited for them."""

    backend: str = "synthetic"
    loader_threads: int | None = None
    shuffle: bool = False
    bound: bool = False


class Machine(_Part):
    """Where it ran; in a container its name is the container's."""

    name: str = ""
    cpu: str = ""
    cores: int | None = None
    threads: int | None = None


class Series(_Part):
    """The resources of a run over time: a value of each figure for each moment, in seconds since its start.

    CPU is in percent of one core, and with memory that of rank 0 and its loaders; the GPU is that of rank 0.
    """

    seconds: tuple[float, ...]
    cpu_percent: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]
    gpu_percent: tuple[float | None, ...] = ()
    gpu_memory_bytes: tuple[float | None, ...] = ()
    gpu_watts: tuple[float | None, ...] = ()

    @property
    def figures(self) -> dict[str, tuple[float | None, ...]]:
        """The known figures by name, without the moments."""
        return {name: values for name, values in self if name != "seconds" and any(each is not None for each in values)}

    @model_validator(mode="after")
    def _is_even(self) -> Self:
        if {len(values) for _, values in self if values} - {len(self.seconds)}:
            raise ValueError("its lists differ in length")
        return self


class Result(_Part):
    """One successful run. ``times`` are seconds of each batch, ``throughput`` samples a second of all devices.

    ``data_times`` are the part of these that each batch waited for samples. Older records lack what has a default.
    """

    status: Literal["success"]
    model_title: str
    parameters: int | None = None
    device: str
    devices: tuple[str, ...] = ()
    world: int = 1
    nodes: int = 1
    effective_batch: int
    times: tuple[float, ...] = Field(min_length=1)
    data_times: tuple[float, ...] = ()
    warmup_times: tuple[float, ...] = ()
    time: Times
    throughput: float
    memory: Memory = Memory()
    power: dict[str, float] | None = None
    clocks: dict[str, Any] | None = None
    data: Data = Data()
    notes: tuple[str, ...] = ()
    versions: dict[str, str | None] = Field(default_factory=dict)
    host: Machine = Machine()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run: a result, or in one sentence the reason why there is no result.

    ``out_of_memory``: a batch did not fit. ``monitor`` is there for a run that failed, too.
    """

    result: Result | None = None
    reason: str = ""
    out_of_memory: bool = False
    monitor: Series | None = None


def read_outcome(done: Finished) -> Outcome:
    """Read the last line of `bench`; without such a line, find the reason in how it ended."""
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith(START)), None)
    if done.late:
        return Outcome(reason=f"It did not end within {done.seconds:.0f} s.")
    if line is None:
        return Outcome(reason=_without_a_word(done), out_of_memory=done.code == _KILLED)
    try:
        return _judged(read_object(line.encode()), done)
    except NotJsonError as error:
        return Outcome(reason=f"Its last line cannot be read: {error}.")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "monitor"
        return Outcome(reason=f"Its result has an invalid {where}: {first['msg']}.")


def _judged(said: dict[str, Any], done: Finished) -> Outcome:
    """Raises ValidationError."""
    if said.get("bench") != _CONTRACT:
        found = said.get("bench")
        return Outcome(reason=f"Its `bench` speaks version {found!r} of the contract, and this toolkit {_CONTRACT}.")
    monitor = Series.model_validate(said["monitor"]) if said.get("monitor") else None
    if said.get("status") != "success" or done.code:
        reason = str(said.get("reason") or f"bench ended with {done.code}: {done.last_words}")
        return Outcome(reason=reason, out_of_memory=said.get("out_of_memory") is True, monitor=monitor)
    return Outcome(result=Result.model_validate(said), monitor=monitor)


def _without_a_word(done: Finished) -> str:
    known = {
        _KILLED: "It was killed, most often for lack of memory.",
        _NO_PROGRAM: f"There is no `bench`: {done.last_words}",
        _NOT_RUNNABLE: f"`bench` cannot be started: {done.last_words}",
        DOCKER: f"The engine did not start it: {refusal_of(done)}",
        _SSH: f"ssh cannot connect: {done.last_words}",
    }
    return known.get(done.code, f"It ended with {done.code} and no result: {done.last_words}")


def refusal_of(done: Finished) -> str:
    """Why docker started nothing: below its own words it only names its help."""
    said = [line.removeprefix("docker: ") for line in done.stderr.splitlines() if line.startswith("docker: ")]
    return said[0][:400] if said else done.last_words
