"""What a value of a plan may be: the types of its model's fields, and the models that stand below the file's own."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from torchbake.benchmark.variables import KEYS, NAME
from torchbake.core.secret_values import secret_text
from torchbake.jobs import validators as of_jobs
from torchbake.matrix import field_types
from torchbake.matrix.settings import VARIABLE

PHASES = ("training", "inference", "data_ingestion")
DTYPES = ("float32", "float16", "bfloat16")
DEVICES = ("gpu", "cpu")
BACKENDS = ("caffe_lmdb", "image_folder")
LEAST_INTERVAL = 0.2  # seconds between two looks of `bench`
SIZE = r"^[1-9][0-9]*[bkmg]?$"  # as docker takes --shm-size
LIMIT = r"^(-1|[0-9]+)$"  # of an ulimit in bytes; -1: none


class Model(field_types.Model):
    """A mapping of the file: every key is known."""


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _schema(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


def _full_name(text: str) -> str:
    """`float` is the field's other word for `float32`."""
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


Text = Annotated[str, AfterValidator(of_jobs.word)]
Words = Annotated[
    tuple[Text, ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    AfterValidator(_unique),
    _schema({"type": "string"}),
]
Positive = Annotated[int, Field(ge=1)]
Sizes = Annotated[
    tuple[Positive, ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    AfterValidator(_unique),
    _schema({"type": "integer", "minimum": 1}),
]
Gpus = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    AfterValidator(_unique),
    _schema({"type": "integer", "minimum": 0}),
]
Phases = Annotated[
    tuple[Annotated[str, AfterValidator(of_jobs.one_of(*PHASES))], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    AfterValidator(_unique),
    _schema({"type": "string", "pattern": f"^({'|'.join(PHASES)})$"}),
]
Dtypes = Annotated[
    tuple[Annotated[str, AfterValidator(_full_name)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    AfterValidator(_unique),
    _schema({"type": "string", "pattern": f"^(float|{'|'.join(DTYPES)})$"}),
]
Backend = Annotated[
    str,
    AfterValidator(of_jobs.one_of(*BACKENDS)),
    WithJsonSchema({"type": "string", "pattern": f"^({'|'.join(BACKENDS)})$"}),
]
Device = Annotated[
    str,
    AfterValidator(of_jobs.one_of(*DEVICES)),
    WithJsonSchema({"type": "string", "pattern": f"^({'|'.join(DEVICES)})$"}),
]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_interval)]
Variable = Annotated[str, Field(pattern=NAME), AfterValidator(_free_name)]
VariableValue = Annotated[
    str | tuple[str, ...],
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number", "boolean"]},
                {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
            ]
        }
    ),
]
Limit = Annotated[
    str, Field(pattern=LIMIT), WithJsonSchema({"type": ["string", "integer"], "pattern": LIMIT, "minimum": -1})
]
Variables = dict[Annotated[str, Field(pattern=VARIABLE)], Annotated[str, AfterValidator(_public)]]


class Docker(Model):
    """How containers are started. Torch's loader workers and NCCL die in docker's own 64 MB of shared memory."""

    shm_size: Annotated[str, Field(pattern=SIZE)] = Field(
        "1g", description="size of `/dev/shm`: a limit, not a use", examples=["8g"]
    )
    memlock: Limit = Field(
        "-1", description="bytes that may be locked in memory, which GPUs and RDMA want; -1: all", examples=["-1"]
    )
    stack: Limit = Field("67108864", description="bytes of a thread's stack", examples=["67108864"])
    network: Text = Field(
        "none", description="as of `docker run --network`; a benchmark needs its loopback alone", examples=["host"]
    )
    options: tuple[Text, ...] = Field(
        (), description="more words of `docker run`", examples=[["--cpuset-cpus=0-7", "--cap-add=SYS_NICE"]]
    )


class Host(Model):
    """A machine without a container, or several of them: over ssh, or this machine by its Python."""

    ssh: Words | None = Field(
        None,
        description="where to, for ssh: an alias of ~/.ssh/config, or user@host; of `nodes` a list, node 0 first",
        examples=["foo_bar"],
    )
    address: Text | None = Field(
        None,
        description="where the other nodes reach the first; if not set: what `ssh` says of it",
        examples=["10.0.0.1"],
    )
    bench: Text | None = Field(
        None,
        description="the file `bench` there; if not set: on this machine the toolkit's own, over ssh that in the PATH",
        examples=["/opt/torchbake/bench"],
    )
    python: Text = Field(
        "python3",
        description="its Python that has torch; over ssh with `bench` alone",
        examples=["/home/pytorch/pytorch/sandbox/bin/python"],
    )

    @field_validator("python")
    @classmethod
    def _starts_something(cls, python: str, info: ValidationInfo) -> str:
        """Asked only where the key is written. ``bench`` stands above it, so that it is known here."""
        if info.data.get("ssh") and not info.data.get("bench"):
            raise ValueError("starts nothing over ssh without `bench`: name that file too, or leave `python` out")
        return python

    @property
    def word(self) -> str:
        """What a plan's rules call it: where it is, or by which Python where it is this machine."""
        return ", ".join(self.ssh) if self.ssh else self.python

    @property
    def master(self) -> str:
        """Where the other nodes reach node 0."""
        return self.address or (self.ssh[0].rpartition("@")[2] if self.ssh else "127.0.0.1")

    @property
    def name(self) -> str:
        """What it is called in results, with all by which two on one machine differ."""
        python = [self.python] if self.ssh and "python" in self.model_fields_set else []
        return " ".join([self.word, *python, *([self.bench] if self.bench else [])])


class Conditions(Model):
    """A rule's choice of experiments: all of its keys must hold."""

    model: Words | None = Field(None, description="of these models", examples=["vgg19"])
    batch_size: Sizes | None = Field(None, description="with these batch sizes", examples=[[64, 128]])
    dtype: Dtypes | None = Field(None, description="with these types", examples=["float16"])
    phase: Phases | None = Field(None, description="in these phases", examples=["training"])
    gpus: Gpus | None = Field(None, description="on so many GPUs", examples=[0])
    nodes: Sizes | None = Field(None, description="on so many nodes", examples=[2])


class Exclude(Conditions):
    """Experiments that are not run: those for which all of the keys here hold."""

    reason: Annotated[str, Field(min_length=8)] = Field(
        description="why, for whoever reads the results", examples=["does not fit into 16 GB"]
    )
    image: Words | None = Field(
        None, description="in these images: words of `images`, or the ids that they mean", examples=["cpu runtime"]
    )
    host: Words | None = Field(None, description="on these hosts, by `ssh`, or by `python`", examples=["foo_bar"])
