"""Model of the last line of `bench`, which has its result or the reason for a failure. Pure."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from torchbake.core.json_text import NotJsonError, read_object
from torchbake.core.processes import ProcessResult

START = '{"bench":'  # of the last line
_CONTRACT = 1
_KILLED, _NO_PROGRAM, _NOT_RUNNABLE, DOCKER, _SSH = 137, 127, 126, 125, 255


class ResultPart(BaseModel):
    """A part of a result or record; keys of newer versions are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class Times(ResultPart):
    """Seconds of a batch."""

    mean: float
    median: float
    std: float
    min: float
    max: float
    p95: float
    p5: float | None = None
    p99: float | None = None


class Memory(ResultPart):
    """Peak use in bytes."""

    peak_rss_bytes: int | None = None
    peak_gpu_bytes: int | None = None


class Data(ResultPart):
    """The source of samples; ``bound``: batches waited for them."""

    backend: str = "synthetic"
    loader_threads: int | None = None
    shuffle: bool = False
    bound: bool = False


class Machine(ResultPart):
    """The machine of a run; ``name`` is the container's, if it ran in a container."""

    name: str = ""
    cpu: str = ""
    cores: int | None = None
    threads: int | None = None


class Series(ResultPart):
    """Resources of a run over time: each figure has a value for each moment, in seconds since the start.

    CPU (in percent of one core) and memory are those of rank 0 and its loaders; the GPU is that of rank 0.
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


class BenchResult(ResultPart):
    """A successful run. ``times`` are seconds of each batch, of which it waited ``data_times`` for samples.

    ``throughput`` is samples per second of all devices. Older records have no value for fields with a default.
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
class RunOutcome:
    """The end of a run: a result, or a sentence with the reason why there is none.

    ``out_of_memory``: a batch did not fit. A run that failed can have ``monitor``, too.
    """

    result: BenchResult | None = None
    reason: str = ""
    out_of_memory: bool = False
    monitor: Series | None = None


def read_outcome(process: ProcessResult) -> RunOutcome:
    """Read the last line of `bench`; without such a line, the exit code gives the reason."""
    line = next((line for line in reversed(process.stdout.splitlines()) if line.startswith(START)), None)
    if process.late:
        return RunOutcome(reason=f"It did not end within {process.seconds:.0f} s.")
    if line is None:
        return RunOutcome(reason=_reason_of_code(process), out_of_memory=process.code == _KILLED)
    try:
        return _parse(read_object(line.encode()), process)
    except NotJsonError as error:
        return RunOutcome(reason=f"Its last line cannot be read: {error}.")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "monitor"
        return RunOutcome(reason=f"Its result has an invalid {where}: {first['msg']}.")


def _parse(line: dict[str, Any], result: ProcessResult) -> RunOutcome:
    """Raise ValidationError."""
    if (version := line.get("bench")) != _CONTRACT:
        return RunOutcome(
            reason=f"Its `bench` speaks version {version!r} of the contract, and this toolkit {_CONTRACT}."
        )
    monitor = Series.model_validate(line["monitor"]) if line.get("monitor") else None
    if line.get("status") != "success" or result.code:
        reason = str(line.get("reason") or f"bench ended with {result.code}: {result.last_words}")
        return RunOutcome(reason=reason, out_of_memory=line.get("out_of_memory") is True, monitor=monitor)
    return RunOutcome(result=BenchResult.model_validate(line), monitor=monitor)


def _reason_of_code(result: ProcessResult) -> str:
    known_names = {
        _KILLED: "It was killed, most often for lack of memory.",
        _NO_PROGRAM: f"There is no `bench`: {result.last_words}",
        _NOT_RUNNABLE: f"`bench` cannot be started: {result.last_words}",
        DOCKER: f"The engine did not start it: {refusal_of(result)}",
        _SSH: f"ssh cannot connect: {result.last_words}",
    }
    return known_names.get(result.code, f"It ended with {result.code} and no result: {result.last_words}")


def refusal_of(process: ProcessResult) -> str:
    """Return docker's reason for starting nothing; its last line only names its help."""
    lines = [line.removeprefix("docker: ") for line in process.stderr.splitlines() if line.startswith("docker: ")]
    return lines[0][:400] if lines else process.last_words
