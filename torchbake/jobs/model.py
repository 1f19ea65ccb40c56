"""The model of ``job.yaml``: one training job, for every launcher."""

from typing import Annotated

from pydantic import AfterValidator, Field

from torchbake.jobs import field_types as fields
from torchbake.jobs import validators
from torchbake.matrix import field_types

STANDALONE, DISTRIBUTED = "standalone", "distributed"
SECTIONS = ("slurm", "kubernetes", "trainjob")  # keys named after a target: every other target ignores them
MOST_NODES = 100_000  # the limit of `run` and of Kubernetes


class Job(fields.Keys):
    """The whole of job.yaml."""

    format: field_types.Format
    name: fields.Name = Field(
        description="the name of all objects, containers and hosts of the job (RFC 1123)", examples=["mnist"]
    )
    image: fields.Text = Field(
        description="a selector or a tag of the matrix that means exactly one image, or any image reference",
        examples=["2.10.0-cuda12.8-cudnn9-runtime-debian12"],
    )
    script: Annotated[str, AfterValidator(validators.script)] | None = Field(
        None,
        description="the script, in `files` or in the image; a job has one of `script`, `module` and `command`",
        examples=["train.py"],
    )
    module: Annotated[str, AfterValidator(validators.module)] | None = Field(
        None, description="a module to start in place of a script, as by python -m", examples=["package.train"]
    )
    command: fields.Command = Field(
        (),
        description="any program in place of a script: a list of words, or a line for the shell (`sh -c`); it is "
        "started without `run`",
        examples=["cd examples/mnist && python main.py"],
    )
    workdir: fields.Folder | None = Field(
        None,
        description="the working folder: an absolute path, or a path within `files`; if not set: the folder of `files` "
        "for a `command` that has them, else the image's",
        examples=["/app/examples/mnist"],
    )
    args: tuple[fields.Public, ...] = Field((), description="the arguments of the script", examples=[["--epochs", "3"]])
    mode: fields.Mode | None = Field(
        None,
        description="standalone or distributed; if not set: distributed with several nodes, with `processes` or "
        "`elastic`, else standalone",
        examples=["distributed"],
    )
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(
        1, description="the number of nodes; the first is the master, and all start the same script", examples=[4]
    )
    processes: fields.Processes | None = Field(
        None,
        description="the processes on each node: a number, or auto for one on each GPU of the node; if not set: one "
        "for each GPU, else 1",
        examples=["auto"],
    )
    elastic: fields.Elastic | None = Field(
        None, description="MIN:MAX nodes that may come and go, in place of `nodes`", examples=["2:4"]
    )
    files: fields.Files = Field(fields.Files(), description="the source of the script", examples=[{"folder": "."}])
    volumes: tuple[fields.Volume, ...] = Field(
        (), description="data that outlives the job", examples=[[{"claim": "team-data", "mountPath": "/data"}]]
    )
    env: fields.Values = Field(
        default_factory=dict, description="variables of the job; no secret", examples=[{"HF_HOME": "/data/hub"}]
    )
    secrets: dict[
        Annotated[str, Field(pattern=validators.VARIABLE), AfterValidator(validators.secret_variable)], fields.SecretKey
    ] = Field(
        default_factory=dict,
        description="variables with values from Secrets; with JOB_TOKEN, nodes accept only connections of the job",
        examples=[{"HF_TOKEN": {"secret": "hub", "key": "token"}}],
    )
    resources: fields.Resources = Field(
        fields.Resources(), description="resources of each node", examples=[{"cpu": "4", "memory": "16Gi", "gpu": 1}]
    )
    port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        49875, description="the port of the master, 1024 or more, that all nodes must reach", examples=[29500]
    )
    timeouts: fields.Timeouts = Field(fields.Timeouts(), description="limits of time", examples=[{"job": 86400}])
    restarts: Annotated[int, Field(ge=0, le=100)] = Field(
        3, description="how often the job starts again after it lost a node; a failed script ends the job", examples=[0]
    )
    priority: fields.ObjectName | None = Field(None, description="a PriorityClass", examples=["research"])
    node_selector: fields.Labels = Field(
        default_factory=dict, description="labels that a node of Kubernetes must have", examples=[{"zone": "a"}]
    )
    tolerations: tuple[fields.Toleration, ...] = Field(
        (), description="taints that the job tolerates", examples=[[{"key": "nvidia.com/gpu", "operator": "Exists"}]]
    )
    affinity: fields.Affinity = Field(
        fields.Affinity(),
        description="rules for the choice of Kubernetes' nodes",
        examples=[{"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}],
    )
    labels: fields.Labels = Field(
        default_factory=dict, description="labels of all objects of the job", examples=[{"team": "vision"}]
    )
    annotations: fields.Annotations = Field(
        default_factory=dict, description="annotations of all objects", examples=[{"example.com/owner": "ann"}]
    )
    service_account: fields.ObjectName | None = Field(
        None, description="a ServiceAccount; if not set, the job has no token of the cluster", examples=["trainer"]
    )
    pull_secrets: tuple[fields.ObjectName, ...] = Field(
        (), description="Secrets with logins to the image's registry", examples=[["registry-login"]]
    )
    account: fields.Account | None = Field(
        None,
        description="cluster: the cluster chooses uid and groups, as OpenShift does; if not set: the image's user",
        examples=["cluster"],
    )
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=fields.MOST_SECONDS)] | None = Field(
        None, description="the seconds after which the cluster removes the ended job", examples=[3600]
    )
    suspend: bool = Field(False, description="the job waits until a person or Kueue resumes it", examples=[True])
    managed_by: Annotated[str, AfterValidator(validators.manager)] | None = Field(
        None, description="a controller for the job in place of the usual one", examples=["kueue.x-k8s.io/multikueue"]
    )
    queue: fields.ObjectName | None = Field(
        None, description="the LocalQueue of Kueue, as the label kueue.x-k8s.io/queue-name", examples=["team-a"]
    )
    gang: fields.Gang | None = Field(
        None, description="place all pods together, or none", examples=[{"scheduleTimeoutSeconds": 300}]
    )
    slurm: fields.SlurmKeys = Field(
        fields.SlurmKeys(), description="keys of the target slurm alone", examples=[{"partition": "gpu"}]
    )
    kubernetes: fields.KubernetesKeys = Field(
        fields.KubernetesKeys(), description="keys of the target kubernetes alone", examples=[{"api": "1.20"}]
    )
    trainjob: fields.TrainJob = Field(
        fields.TrainJob(), description="keys of the target trainjob alone", examples=[{"runtimeRef": {"name": "torch"}}]
    )

    @property
    def distributed(self) -> bool:
        if self.mode:
            return self.mode == DISTRIBUTED
        return self.nodes > 1 or self.processes is not None or self.elastic is not None

    @property
    def most_nodes(self) -> int:
        """The number of containers that are started."""
        return int(self.elastic.partition(":")[2]) if self.elastic else self.nodes

    @property
    def per_node(self) -> str:
        """The processes on each node: a number, or auto."""
        return self.processes or str(max(1, self.resources.gpu) if self.distributed else 1)

    @property
    def words(self) -> tuple[str, ...]:
        """The command line of the container."""
        if self.command:
            return self.command
        program = ("-m", self.module) if self.module else (self.script or "",)
        return ("run", *program, *self.args)
