"""Types of the fields of a plan, and the models below its top level."""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from torchbake.benchmark.variables import KEYS, NAME
from torchbake.core.secret_values import secret_text
from torchbake.jobs import validators as of_jobs
from torchbake.matrix import field_types
from torchbake.matrix.field_types import one_or_many
from torchbake.matrix.settings import VARIABLE

PHASES = ("training", "inference", "data_ingestion")
DTYPES = ("float32", "float16", "bfloat16")
DEVICES = ("gpu", "cpu")
BACKENDS = ("caffe_lmdb", "image_folder")
LEAST_INTERVAL = 0.2  # seconds between two samples of `bench`
SIZE = r"^[1-9][0-9]*[bkmg]?$"  # of docker's --shm-size
LIMIT = r"^(-1|[0-9]+)$"  # bytes of an ulimit; -1: no limit


class PlanMapping(field_types.Model):
    """A mapping of the file; unknown keys are errors."""


def _word_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^({'|'.join(words)})$"}


def _full_name(text: str) -> str:
    """Accept `float` as another name of `float32`."""
    return of_jobs.one_of(*DTYPES)("float32" if text == "float" else text)


def _interval(seconds: float) -> float:
    if 0 < seconds < LEAST_INTERVAL:
        raise ValueError(f"should be 0 or at least {LEAST_INTERVAL} seconds")
    return seconds


def _free_name(name: str) -> str:
    if name in KEYS:
        raise ValueError(f"{name!r} is a key of an experiment: choose another name")
    return name


def _public(text: str) -> str:
    if secret_text(text):
        raise ValueError("holds a key, a token or a password, which all who read the results would see: leave it out")
    return text


T = TypeVar("T")
# A key takes a single value or a list; a value that is repeated counts once.
_UNIQUE = AfterValidator(lambda values: tuple(dict.fromkeys(values)))
_LIST = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])
Many = Annotated[tuple[T, ...], _LIST, Field(min_length=1), _UNIQUE]
Text = Annotated[str, AfterValidator(of_jobs.word)]
Words = Annotated[Many[Text], one_or_many({"type": "string"})]
Positive = Annotated[int, Field(ge=1)]
Sizes = Annotated[Many[Positive], one_or_many({"type": "integer", "minimum": 1})]
Gpus = Annotated[Many[Annotated[int, Field(ge=0)]], one_or_many({"type": "integer", "minimum": 0})]
Phases = Annotated[Many[Annotated[str, AfterValidator(of_jobs.one_of(*PHASES))]], one_or_many(_word_of(*PHASES))]
Dtypes = Annotated[Many[Annotated[str, AfterValidator(_full_name)]], one_or_many(_word_of("float", *DTYPES))]
Backend = Annotated[str, AfterValidator(of_jobs.one_of(*BACKENDS)), WithJsonSchema(_word_of(*BACKENDS))]
Device = Annotated[str, AfterValidator(of_jobs.one_of(*DEVICES)), WithJsonSchema(_word_of(*DEVICES))]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_interval)]
Variable = Annotated[str, Field(pattern=NAME), AfterValidator(_free_name)]
_SCALAR = {"type": ["string", "number", "boolean"]}
VariableValue = Annotated[
    str | tuple[str, ...], WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]})
]
Size = Annotated[str, Field(pattern=SIZE)]
_LIMIT_SCHEMA = WithJsonSchema({"type": ["string", "integer"], "pattern": LIMIT, "minimum": -1})
Limit = Annotated[str, Field(pattern=LIMIT), _LIMIT_SCHEMA]
Variables = dict[Annotated[str, Field(pattern=VARIABLE)], Annotated[str, AfterValidator(_public)]]


class Docker(PlanMapping):
    """Options of containers. Docker's default of 64 MB shared memory is too small for torch's workers and NCCL."""

    shm_size: Size = Field("1g", description="maximal size of `/dev/shm`", examples=["8g"])
    memlock: Limit = Field("-1", description="bytes of locked memory, for GPUs and RDMA; -1: no limit", examples=["-1"])
    stack: Limit = Field("67108864", description="bytes of a thread's stack", examples=["67108864"])
    network: Text = Field("none", description="network; a benchmark on one node only needs loopback", examples=["host"])
    options: tuple[Text, ...] = Field(
        (), description="further options of `docker run`", examples=[["--cpuset-cpus=0-7", "--cap-add=SYS_NICE"]]
    )


class PlanHost(PlanMapping):
    """One or several machines without containers: over ssh, or this machine by its Python."""

    ssh: Words | None = Field(
        None, description="alias of ~/.ssh/config, or user@host; a list for `nodes`, node 0 first", examples=["foo_bar"]
    )
    address: Text | None = Field(
        None, description="address of node 0 for the others; if not set: its host in `ssh`", examples=["10.0.0.1"]
    )
    bench: Text | None = Field(
        None,
        description="path of `bench`; if not set: the toolkit's own on this machine, over ssh the one in its PATH",
        examples=["/opt/torchbake/bench"],
    )
    python: Text = Field(
        "python3", description="Python with torch; over ssh it needs `bench`", examples=["/opt/pytorch/bin/python"]
    )

    @field_validator("python")
    @classmethod
    def _starts_something(cls, python: str, info: ValidationInfo) -> str:
        """Run only if the key is set. ``bench`` is defined above ``python``, so it is validated before."""
        if info.data.get("ssh") and not info.data.get("bench"):
            raise ValueError("starts nothing over ssh without `bench`: name that file too, or leave `python` out")
        return python

    @property
    def word(self) -> str:
        """The host's name in a plan's rules: the address for ssh, or on this machine its Python."""
        return ", ".join(self.ssh) if self.ssh else self.python

    @property
    def master(self) -> str:
        """The address of node 0 for the other nodes."""
        return self.address or (self.ssh[0].rpartition("@")[2] if self.ssh else "127.0.0.1")

    @property
    def name(self) -> str:
        """The host's name in results, which differs between two hosts on one machine."""
        python = [self.python] if self.ssh and "python" in self.model_fields_set else []
        return " ".join([self.word, *python, *([self.bench] if self.bench else [])])


class Conditions(PlanMapping):
    """Conditions of a rule: an experiment matches if it meets all keys that are set."""

    model: Words | None = Field(None, description="of these models", examples=["vgg19"])
    batch_size: Sizes | None = Field(None, description="with these batch sizes", examples=[[64, 128]])
    dtype: Dtypes | None = Field(None, description="with these types", examples=["float16"])
    phase: Phases | None = Field(None, description="in these phases", examples=["training"])
    gpus: Gpus | None = Field(None, description="with these numbers of GPUs", examples=[0])
    nodes: Sizes | None = Field(None, description="with these numbers of nodes", examples=[2])


class ExperimentExclude(Conditions):
    """A rule that excludes the experiments that meet all its keys."""

    reason: Annotated[str, Field(min_length=8)] = Field(
        description="reason, which the results show", examples=["does not fit into 16 GB"]
    )
    image: Words | None = Field(
        None, description="in these images: words of `images`, or ids", examples=["cpu runtime"]
    )
    host: Words | None = Field(None, description="on these hosts: their `ssh` or `python`", examples=["foo_bar"])
