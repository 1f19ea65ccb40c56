"""The types of job.yaml's values, and the models of its inner mappings."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from torchbake.jobs import validators
from torchbake.matrix import field_types


class Keys(field_types.Model):
    """A mapping of the file that refuses unknown keys. Its keys are in camel case, as Kubernetes' own are."""

    model_config = ConfigDict(alias_generator=to_camel)


def _number(pattern: str) -> WithJsonSchema:
    """An editor reads `4` as a number; torchbake reads every value as the text in the file."""
    return WithJsonSchema({"type": ["string", "number"], "pattern": pattern})


MOST_SECONDS = 10 * 365 * 86400  # a number that every launcher can count
_PROCESSES = r"^(auto|[1-9][0-9]*)$"
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
Account = Literal["cluster"]
Mode = Literal["standalone", "distributed"]
Processes = Annotated[str, Field(pattern=_PROCESSES), AfterValidator(validators.processes), _number(_PROCESSES)]
Elastic = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}:[1-9][0-9]{0,8}$"), AfterValidator(validators.elastic)]
Cpu = Annotated[str, Field(pattern=validators.CPU), AfterValidator(validators.cpu), _number(validators.CPU)]
Quantity = Annotated[str, Field(pattern=validators.QUANTITY), _number(validators.QUANTITY)]
HostPath = Annotated[str, AfterValidator(validators.host_path)]
Pattern = Annotated[str, AfterValidator(validators.file_pattern)]
Seconds = Annotated[int, Field(ge=1, le=MOST_SECONDS)]
_Key = Annotated[str, AfterValidator(validators.label_key)]
Labels = dict[_Key, Annotated[str, AfterValidator(validators.label_value)]]
Annotations = dict[_Key, Public]
Values = dict[Annotated[str, Field(pattern=validators.VARIABLE), AfterValidator(validators.variable)], Public]


class Git(Keys):
    """A git repository that `run` fetches on each node when the job starts."""

    repository: Annotated[str, AfterValidator(validators.repository)] = Field(
        description="the address, without a login; an address with a login belongs in the secret GIT_REPOSITORY",
        examples=["https://example.com/team/job.git"],
    )
    revision: Text = Field("HEAD", description="a branch, tag or SHA", examples=["v1.2.0"])


class Files(Keys):
    """The source of the script: `folder`, `layer`, `configMap` or `git`. Without any, the script is in the image."""

    folder: Text | None = Field(
        None, description="a folder, relative to the job file; mounted read-only at /job", examples=["."]
    )
    layer: Text | None = Field(
        None,
        description="a folder, relative to the job file; becomes one more layer of the image, at /job",
        examples=["src"],
    )
    config_map: ObjectName | None = Field(
        None, description="an existing ConfigMap; mounted read-only at /job", examples=["mnist-files"]
    )
    git: Git | None = Field(
        None, description="a git repository", examples=[{"repository": "https://example.com/team/job.git"}]
    )
    include: tuple[Pattern, ...] = Field(
        (),
        description="take only these files, by patterns of .dockerignore (for `layer`, and for a `folder` that the "
        "manifest carries). An ignored file is taken if its very path is in this list",
        examples=[["train.py", "configs"]],
    )
    exclude: tuple[Pattern, ...] = Field(
        (),
        description="leave out these files, by the same patterns and for the same keys",
        examples=[["**/*.ipynb"]],
    )

    @property
    def mounted(self) -> bool:
        """Return whether a container has the files as a mount."""
        return bool(self.folder or self.config_map)

    @property
    def at_job(self) -> bool:
        """Return whether a container has the files at /job, as a mount or in its image."""
        return self.mounted or bool(self.layer)


class Volume(Keys):
    """Data that outlives the job: an existing claim, a claim that the job creates (`size`), or a folder of the host."""

    claim: ObjectName | None = Field(
        None,
        description="the name of an existing claim, or with `size` of the claim to create; for docker, of a volume",
        examples=["team-data"],
    )
    size: Quantity | None = Field(
        None, description="creates a claim of this size, named `claim`, else NAME-data, NAME-data-2 …", examples=["8Gi"]
    )
    storage_class: ObjectName | None = Field(None, description="the class of the created claim", examples=["fast"])
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"] | None = Field(
        None,
        description="the access mode of the created claim; if not set: ReadWriteOnce, with several nodes ReadWriteMany",
        examples=["ReadWriteMany"],
    )
    host_path: HostPath | None = Field(None, description="a folder of each host", examples=["/srv/data"])
    mount_path: Annotated[str, AfterValidator(validators.mount_path)] = Field(
        description="the mount point in the container", examples=["/data"]
    )
    read_only: bool = Field(False, description="the job cannot write to the volume", examples=[True])
    permissions: Literal["fix"] | None = Field(
        None, description="fix: volume-permissions makes the volume writable before the job starts", examples=["fix"]
    )


class SecretKey(Keys):
    """A key of a Secret. Launchers without Secrets, such as docker, take the value from a variable of the shell."""

    secret: ObjectName = Field(description="the Secret's name", examples=["hub"])
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$"), AfterValidator(validators.secret_key)] = Field(
        description="the key in the Secret", examples=["token"]
    )


class Resources(Keys):
    """The resources of each node: both its request and its limit."""

    cpu: Cpu | None = Field(None, description="CPUs; 500m is half of one", examples=["4"])
    memory: Quantity | None = Field(None, description="memory, /dev/shm included", examples=["16Gi"])
    gpu: Annotated[int, Field(ge=0, le=64)] = Field(0, description="GPUs of NVIDIA", examples=[1])
    shm: Quantity | None = Field(
        None, description="the size of /dev/shm; if not set: half of the memory, else 2Gi", examples=["4Gi"]
    )
    rdma: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$")] | None = Field(
        None,
        description="RDMA: the name of the cluster's resource; other launchers mount the host's InfiniBand devices",
        examples=["rdma/hca_shared_devices_a"],
    )


class Timeouts(Keys):
    """Limits of time, all in seconds."""

    rendezvous: Annotated[int, Field(ge=1, le=1209600)] = Field(
        900, description="limit until all nodes have met; some may still pull the image", examples=[300]
    )
    group: Annotated[int, Field(ge=1, le=1209600)] = Field(
        600, description="limit for each collective", examples=[1800]
    )
    stop: Annotated[int, Field(ge=0, le=86400)] = Field(
        30, description="time for the script to save and end, after the job was asked to stop", examples=[120]
    )
    job: Seconds | None = Field(None, description="limit for the whole job; if not set, none", examples=[86400])


class Toleration(Keys):
    """A taint of Kubernetes' nodes that the job tolerates."""

    key: Text | None = Field(None, description="the taint's key; if not set, any", examples=["nvidia.com/gpu"])
    operator: Literal["Equal", "Exists"] = Field(
        "Equal", description="Equal: the taint must have `value`; Exists: it may have any", examples=["Exists"]
    )
    value: str | None = Field(None, description="the taint's value", examples=["present"])
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="the taint's effect; if not set, any", examples=["NoSchedule"]
    )
    toleration_seconds: Annotated[int, Field(ge=0)] | None = Field(
        None, description="for NoExecute: the seconds that the pod may stay", examples=[60]
    )


def _weights(value: Any) -> Any:
    """Turn each `weight` into a number; every other value of Kubernetes' affinities stays a text."""
    if isinstance(value, dict):
        return {key: _weight(inner) if key == "weight" else _weights(inner) for key, inner in value.items()}
    return [_weights(inner) for inner in value] if isinstance(value, list) else value


def _weight(value: Any) -> int:
    if not (isinstance(value, str) and value.isdigit() and 1 <= int(value) <= 100):
        raise ValueError(f"weight {value!r} is not a whole number from 1 to 100")
    return int(value)


Terms = Annotated[dict[str, Any], AfterValidator(_weights)]


class Affinity(Keys):
    """Rules for the choice of nodes, in the terms of Kubernetes."""

    node_affinity: Terms | None = Field(
        None, description="labels of nodes", examples=[{"requiredDuringSchedulingIgnoredDuringExecution": {}}]
    )
    pod_affinity: Terms | None = Field(
        None, description="pods to be near to", examples=[{"preferredDuringSchedulingIgnoredDuringExecution": []}]
    )
    pod_anti_affinity: Terms | None = Field(
        None, description="pods to be away from", examples=[{"preferredDuringSchedulingIgnoredDuringExecution": []}]
    )


class Gang(Keys):
    """Place all pods of the job together, or none (`gang: {}`). The cluster needs a scheduler of gangs."""

    schedule_timeout_seconds: Seconds | None = Field(
        None, description="the seconds that a pod may wait until all pods have a place", examples=[300]
    )
    queue: ObjectName | None = Field(None, description="the scheduler's queue, as of Volcano", examples=["vision"])
    scheduler: Literal["coscheduling", "volcano"] | None = Field(
        None, description="for trainjob: the scheduler; if not set: coscheduling", examples=["volcano"]
    )


_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:@+-]+$")]


class SlurmKeys(Keys):
    """Keys of the target slurm; every other launcher ignores them."""

    runtime: Literal["apptainer", "pyxis", "oci"] = Field(
        "apptainer", description="the container runtime; oci is `srun --container`", examples=["pyxis"]
    )
    image: HostPath | None = Field(
        None,
        description="the image as a file that all nodes see: SIF, squashfs, or the folder of an OCI bundle; if not "
        "set: `image`, which Apptainer converts once, and Pyxis pulls on each node",
        examples=["/shared/images/pytorch.sif"],
    )
    partition: _Word | None = Field(None, description="one partition, or several with commas", examples=["gpu"])
    account: _Word | None = Field(None, description="the account that is charged for the job", examples=["vision"])
    qos: _Word | None = Field(None, description="a quality of service, Slurm's form of priority", examples=["high"])
    constraint: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:&|*()\[\]+-]+$")] | None = Field(
        None, description="features that a node must have", examples=["a100&nvlink"]
    )
    exclusive: bool = Field(False, description="use whole machines", examples=[True])


class KubernetesKeys(Keys):
    """Keys of the target kubernetes; every other launcher ignores them."""

    api: Literal["1.20"] | None = Field(
        None, description="1.20 for clusters before 1.26: as the target kubernetes-1.20", examples=["1.20"]
    )


class RuntimeRef(Keys):
    """A runtime of Kubeflow's Trainer that exists in the cluster."""

    name: ObjectName = Field(description="the runtime's name", examples=["torch-distributed"])
    kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = Field(
        "ClusterTrainingRuntime",
        description="the runtime's kind; a TrainingRuntime is in the job's namespace",
        examples=["TrainingRuntime"],
    )


class TrainJob(Keys):
    """Keys of the target trainjob; every other launcher ignores them."""

    runtime_ref: RuntimeRef | None = Field(
        None,
        description="the runtime that the TrainJob uses; if not set, the manifest has a TrainingRuntime for the job",
        examples=[{"name": "torch-distributed"}],
    )
