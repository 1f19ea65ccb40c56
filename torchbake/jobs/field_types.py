"""What a value of job.yaml may be: the types of its model's fields, and the models that stand below the file's own."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from torchbake.jobs import validators
from torchbake.matrix import field_types


class Keys(field_types.Model):
    """A mapping of the file: every key is known, and written as Kubernetes writes its own."""

    model_config = ConfigDict(alias_generator=to_camel)


def _choice(*words: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^({'|'.join(words)})$"})


def _number(pattern: str) -> WithJsonSchema:
    """An editor reads `4` as a number; the toolkit reads every value as the text that was written."""
    return WithJsonSchema({"type": ["string", "number"], "pattern": pattern})


Text = Annotated[str, AfterValidator(validators.word)]
Public = Annotated[str, AfterValidator(validators.public)]
Name = Annotated[str, AfterValidator(validators.name)]
ObjectName = Annotated[str, AfterValidator(validators.object_name)]
Command = Annotated[
    tuple[Public, ...],
    BeforeValidator(validators.command_line),
    AfterValidator(validators.command),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Folder = Annotated[str, AfterValidator(validators.workdir)]
Account = Annotated[str, AfterValidator(validators.one_of("cluster")), _choice("cluster")]
Mode = Annotated[
    str, AfterValidator(validators.one_of("standalone", "distributed")), _choice("standalone", "distributed")
]
Processes = Annotated[
    str,
    Field(pattern=r"^(auto|[1-9][0-9]*)$"),
    AfterValidator(validators.processes),
    _number(r"^(auto|[1-9][0-9]*)$"),
]
Elastic = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}:[1-9][0-9]{0,8}$"), AfterValidator(validators.elastic)]
Cpu = Annotated[str, Field(pattern=validators.CPU), AfterValidator(validators.cpu), _number(validators.CPU)]
Quantity = Annotated[str, Field(pattern=validators.QUANTITY), _number(validators.QUANTITY)]
_Key = Annotated[str, AfterValidator(validators.label_key)]
Labels = dict[_Key, Annotated[str, AfterValidator(validators.label_value)]]
Annotations = dict[_Key, Public]
Values = dict[Annotated[str, Field(pattern=validators.VARIABLE), AfterValidator(validators.variable)], Public]
MOST_SECONDS = 10 * 365 * 86400  # what every launcher can count
_ACCESS = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


Pattern = Annotated[str, AfterValidator(validators.file_pattern)]


class Git(Keys):
    """A git repository that `run` fetches when the job starts, in each node."""

    repository: Annotated[str, AfterValidator(validators.repository)] = Field(
        description="its address, without a login; one with a login is a secret, GIT_REPOSITORY",
        examples=["https://example.com/team/job.git"],
    )
    revision: Text = Field("HEAD", description="a branch, tag or SHA", examples=["v1.2.0"])


class Files(Keys):
    """Where the script comes from: one of these. Without any it is in the image."""

    folder: Text | None = Field(
        None, description="a folder, from the job file's own; mounted read-only at /job", examples=["."]
    )
    config_map: ObjectName | None = Field(
        None, description="a ConfigMap that is there already; mounted read-only at /job", examples=["mnist-files"]
    )
    git: Git | None = Field(
        None,
        description="a git repository",
        examples=[{"repository": "https://example.com/team/job.git", "revision": "main"}],
    )
    include: tuple[Pattern, ...] = Field(
        (),
        description="of `folder`, if a manifest carries its files: only these, by the patterns of .dockerignore; an "
        "ignored file is taken if its path is in this list",
        examples=[["train.py", "configs"]],
    )
    exclude: tuple[Pattern, ...] = Field(
        (), description="of `folder`, if a manifest carries its files: none of these", examples=[["**/*.ipynb"]]
    )


class Volume(Keys):
    """Data that outlives the job: a claim that is there, one that is made (`size`), or a folder of the host."""

    claim: ObjectName | None = Field(
        None,
        description="the name of a claim that is there; with `size`, of the one that is made; of docker, a volume",
        examples=["team-data"],
    )
    size: Quantity | None = Field(
        None, description="makes a claim of this size; named NAME-data, NAME-data-2 … if `claim` is not set",
        examples=["8Gi"],
    )  # fmt: skip
    storage_class: ObjectName | None = Field(None, description="of the claim that is made", examples=["fast"])
    access_mode: Annotated[str, AfterValidator(validators.one_of(*_ACCESS)), _choice(*_ACCESS)] | None = Field(
        None,
        description="of the claim that is made; if not set: ReadWriteOnce, with several nodes ReadWriteMany",
        examples=["ReadWriteMany"],
    )
    host_path: Annotated[str, AfterValidator(validators.host_path)] | None = Field(
        None, description="a folder of each host", examples=["/srv/data"]
    )
    mount_path: Annotated[str, AfterValidator(validators.mount_path)] = Field(
        description="where the job finds it", examples=["/data"]
    )
    read_only: bool = Field(False, description="the job cannot write there", examples=[True])
    permissions: Annotated[str, AfterValidator(validators.one_of("fix")), _choice("fix")] | None = Field(
        None,
        description="fix: volume-permissions makes it writable for the job first, where the storage does not by itself",
        examples=["fix"],
    )


class SecretKey(Keys):
    """A value that is in a Secret, by names. Where there are none, as with docker, it is a variable of the shell."""

    secret: ObjectName = Field(description="the Secret's name", examples=["hub"])
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$"), AfterValidator(validators.secret_key)] = Field(
        description="the key in it", examples=["token"]
    )


class Resources(Keys):
    """What each node gets, no less and no more."""

    cpu: Cpu | None = Field(None, description="CPUs; 500m is half of one", examples=["4"])
    memory: Quantity | None = Field(None, description="memory, /dev/shm included", examples=["16Gi"])
    gpu: Annotated[int, Field(ge=0, le=64)] = Field(0, description="GPUs of NVIDIA", examples=[1])
    shm: Quantity | None = Field(
        None, description="/dev/shm, for loaders and NCCL; if not set: half of the memory, else 2Gi", examples=["4Gi"]
    )
    rdma: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$")] | None = Field(
        None,
        description="RDMA, by the name of the cluster's resource for it; elsewhere the host's InfiniBand devices",
        examples=["rdma/hca_shared_devices_a"],
    )


class Timeouts(Keys):
    """All in seconds."""

    rendezvous: Annotated[int, Field(ge=1, le=1209600)] = Field(
        900, description="for all nodes to come together: some may still pull the image", examples=[300]
    )
    group: Annotated[int, Field(ge=1, le=1209600)] = Field(600, description="a collective may wait", examples=[1800])
    stop: Annotated[int, Field(ge=0, le=86400)] = Field(
        30, description="for the script to save and end, when the job is told to stop", examples=[120]
    )
    job: Annotated[int, Field(ge=1, le=MOST_SECONDS)] | None = Field(
        None, description="for all of the job, then it is stopped; if not set, for ever", examples=[86400]
    )


class Toleration(Keys):
    """A taint of Kubernetes' nodes that the job may bear."""

    key: Text | None = Field(None, description="the taint's key; without it any", examples=["nvidia.com/gpu"])
    operator: Annotated[str, AfterValidator(validators.one_of("Equal", "Exists")), _choice("Equal", "Exists")] = Field(
        "Equal", description="whether `value` must be the taint's", examples=["Exists"]
    )
    value: str | None = Field(None, description="the taint's value", examples=["present"])
    effect: Annotated[str, AfterValidator(validators.one_of(*_EFFECTS)), _choice(*_EFFECTS)] | None = Field(
        None, description="the taint's effect; without it any", examples=["NoSchedule"]
    )
    toleration_seconds: Annotated[int, Field(ge=0)] | None = Field(
        None, description="for how long, of NoExecute", examples=[60]
    )


def _weights(value: Any) -> Any:
    """Kubernetes' own words, in which `weight` alone is a number."""
    if isinstance(value, dict):
        return {key: _weight(inner) if key == "weight" else _weights(inner) for key, inner in value.items()}
    return [_weights(inner) for inner in value] if isinstance(value, list) else value


def _weight(value: Any) -> int:
    if not (isinstance(value, str) and value.isdigit() and 1 <= int(value) <= 100):
        raise ValueError(f"weight {value!r} is not a whole number from 1 to 100")
    return int(value)


Terms = Annotated[dict[str, Any], AfterValidator(_weights)]


class Affinity(Keys):
    """Which nodes of Kubernetes the job wants, in Kubernetes' own words."""

    node_affinity: Terms | None = Field(
        None, description="by labels of nodes", examples=[{"requiredDuringSchedulingIgnoredDuringExecution": {}}]
    )
    pod_affinity: Terms | None = Field(
        None, description="near these pods", examples=[{"preferredDuringSchedulingIgnoredDuringExecution": []}]
    )
    pod_anti_affinity: Terms | None = Field(
        None, description="away from these pods", examples=[{"preferredDuringSchedulingIgnoredDuringExecution": []}]
    )


_SCHEDULERS = ("coscheduling", "volcano")


class Gang(Keys):
    """All pods of the job are placed together, or none is (`gang: {}`). The cluster needs a scheduler of gangs."""

    schedule_timeout_seconds: Annotated[int, Field(ge=1, le=MOST_SECONDS)] | None = Field(
        None, description="seconds that the pods may wait for each other's places", examples=[300]
    )
    queue: ObjectName | None = Field(
        None, description="the queue of the scheduler, such as Volcano's", examples=["vision"]
    )
    scheduler: Annotated[str, AfterValidator(validators.one_of(*_SCHEDULERS)), _choice(*_SCHEDULERS)] | None = Field(
        None, description="of trainjob: which one; if not set: coscheduling", examples=["volcano"]
    )


_RUNTIMES = ("apptainer", "pyxis", "oci")
_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:@+-]+$")]


class Slurm(Keys):
    """What Slurm alone is told; every other launcher passes over it."""

    runtime: Annotated[str, AfterValidator(validators.one_of(*_RUNTIMES)), _choice(*_RUNTIMES)] = Field(
        "apptainer", description="what starts containers there; oci is `srun --container`", examples=["pyxis"]
    )
    image: Annotated[str, AfterValidator(validators.host_path)] | None = Field(
        None,
        description="the image as a file that all nodes see: SIF, squashfs, or the folder of an OCI bundle; "
        "if not set: `image`, which Apptainer converts once, and Pyxis pulls on each node",
        examples=["/shared/images/pytorch.sif"],
    )
    partition: _Word | None = Field(None, description="one or several, with commas", examples=["gpu"])
    account: _Word | None = Field(None, description="whom the time is charged to", examples=["vision"])
    qos: _Word | None = Field(None, description="a quality of service, Slurm's word for priority", examples=["high"])
    constraint: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:&|*()\[\]+-]+$")] | None = Field(
        None, description="features that a node must have", examples=["a100&nvlink"]
    )
    exclusive: bool = Field(False, description="whole machines", examples=[True])


class Kubernetes(Keys):
    """What the target kubernetes alone is told; every other launcher passes over it."""

    api: Annotated[str, AfterValidator(validators.one_of("1.20")), _choice("1.20")] | None = Field(
        None,
        description="1.20 for clusters before 1.26: what the target kubernetes-1.20 writes",
        examples=["1.20"],
    )


_REFERRED = ("ClusterTrainingRuntime", "TrainingRuntime")


class RuntimeRef(Keys):
    """A runtime of Kubeflow's Trainer that is in the cluster already."""

    name: ObjectName = Field(description="its name", examples=["torch-distributed"])
    kind: Annotated[str, AfterValidator(validators.one_of(*_REFERRED)), _choice(*_REFERRED)] = Field(
        "ClusterTrainingRuntime", description="its kind; a TrainingRuntime is of the job's namespace",
        examples=["TrainingRuntime"],
    )  # fmt: skip


class TrainJob(Keys):
    """Keys of the target trainjob; every other launcher ignores them."""

    runtime_ref: RuntimeRef | None = Field(
        None,
        description="the runtime that the TrainJob uses; if not set, a TrainingRuntime of the job's own is written",
        examples=[{"name": "torch-distributed"}],
    )
