"""``job.yaml`` as a validated model: one training job, for every launcher.

Every problem in the file is reported at once, each with file, line and key.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from torchbake.errors import JobError, MatrixError
from torchbake.jobs import validators
from torchbake.jobs.field_types import (
    MOST_SECONDS,
    Account,
    Affinity,
    Annotations,
    Command,
    Elastic,
    Files,
    Folder,
    Gang,
    Keys,
    Kubernetes,
    Labels,
    Mode,
    Name,
    ObjectName,
    Processes,
    Public,
    Resources,
    SecretKey,
    Slurm,
    Text,
    Timeouts,
    Toleration,
    TrainJob,
    Values,
    Volume,
)
from torchbake.matrix.problems import explain, problems
from torchbake.matrix.yaml_source import Document, Location, parse_document, read_document

STANDALONE, DISTRIBUTED = "standalone", "distributed"
SECTIONS = ("slurm", "kubernetes", "trainjob")  # keys named as a target: they are said to that one alone
MOST_NODES = 100_000  # as `run` has it, and as Kubernetes takes


class Job(Keys):
    """The whole of job.yaml."""

    name: Name = Field(
        description="what its objects, containers and hosts are called; RFC 1123, as Kubernetes wants it",
        examples=["mnist"],
    )
    image: Text = Field(
        description="a selector or a tag of the matrix, which must mean one image, or any reference",
        examples=["2.10.0-cuda12.8-cudnn9-runtime-debian12"],
    )
    script: Annotated[str, AfterValidator(validators.script)] | None = Field(
        None,
        description="the script, within `files` or the image; this, `module` or `command`",
        examples=["train.py"],
    )
    module: Annotated[str, AfterValidator(validators.module)] | None = Field(
        None, description="a module that is started in place of a script, as by python -m", examples=["package.train"]
    )
    command: Command = Field(
        (),
        description="any program in place of a script: a list of words, or a line for the shell (`sh -c`); `run` does "
        "not start it",
        examples=["cd examples/mnist && python main.py"],
    )
    workdir: Folder | None = Field(
        None,
        description="the working folder: absolute, or within `files`; if not set: the image's, of a `command` with "
        "`files` theirs",
        examples=["/app/examples/mnist"],
    )
    args: tuple[Public, ...] = Field((), description="the words that the script gets", examples=[["--epochs", "3"]])
    mode: Mode | None = Field(
        None,
        description="standalone or distributed; if not set: distributed with several nodes, with `processes` or "
        "`elastic`, else standalone",
        examples=["distributed"],
    )
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(
        1, description="how many; the first is the master, all start the same script", examples=[4]
    )
    processes: Processes | None = Field(
        None,
        description="on each node: a number, or auto for those of its GPUs; if not set: one for each GPU, else 1",
        examples=["auto"],
    )
    elastic: Elastic | None = Field(
        None, description="MIN:MAX nodes that may come and go, in place of `nodes`", examples=["2:4"]
    )
    files: Files = Field(Files(), description="where the script comes from", examples=[{"folder": "."}])
    volumes: tuple[Volume, ...] = Field(
        (), description="data that outlives the job", examples=[[{"claim": "team-data", "mountPath": "/data"}]]
    )
    env: Values = Field(
        default_factory=dict, description="variables of the job; no secret", examples=[{"HF_HOME": "/data/hub"}]
    )
    secrets: dict[
        Annotated[str, Field(pattern=validators.VARIABLE), AfterValidator(validators.secret_variable)], SecretKey
    ] = Field(
        default_factory=dict,
        description="variables whose values are in Secrets; JOB_TOKEN keeps strangers out",
        examples=[{"HF_TOKEN": {"secret": "hub", "key": "token"}}],
    )
    resources: Resources = Field(
        Resources(), description="what each node gets", examples=[{"cpu": "4", "memory": "16Gi", "gpu": 1}]
    )
    port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        49875, description="of the master: the one that nodes must reach; from 1024 on, as no node is root",
        examples=[29500],
    )  # fmt: skip
    timeouts: Timeouts = Field(Timeouts(), description="how long things may take", examples=[{"job": 86400}])
    restarts: Annotated[int, Field(ge=0, le=100)] = Field(
        3,
        description="how often it is started again after a node was lost; a script that fails is not",
        examples=[0],
    )
    priority: ObjectName | None = Field(None, description="a PriorityClass", examples=["research"])
    node_selector: Labels = Field(
        default_factory=dict, description="labels that a node of Kubernetes must have", examples=[{"zone": "a"}]
    )
    tolerations: tuple[Toleration, ...] = Field(
        (), description="taints that it may bear", examples=[[{"key": "nvidia.com/gpu", "operator": "Exists"}]]
    )
    affinity: Affinity = Field(
        Affinity(),
        description="which nodes of Kubernetes it wants",
        examples=[{"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}],
    )
    labels: Labels = Field(default_factory=dict, description="of all that is made", examples=[{"team": "vision"}])
    annotations: Annotations = Field(
        default_factory=dict, description="of all that is made", examples=[{"example.com/owner": "ann"}]
    )
    service_account: ObjectName | None = Field(
        None, description="a ServiceAccount; without it the job has no token of the cluster's", examples=["trainer"]
    )
    pull_secrets: tuple[ObjectName, ...] = Field(
        (), description="Secrets with logins to the image's registry", examples=[["registry-login"]]
    )
    account: Account | None = Field(
        None,
        description="cluster: the cluster chooses uid and groups, as OpenShift does; if not set: the image's user",
        examples=["cluster"],
    )
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=MOST_SECONDS)] | None = Field(
        None, description="seconds after its end until the cluster removes the job", examples=[3600]
    )
    suspend: bool = Field(False, description="the job waits until somebody, such as Kueue, resumes it", examples=[True])
    managed_by: Annotated[str, AfterValidator(validators.manager)] | None = Field(
        None,
        description="the controller that runs the job in place of the usual one",
        examples=["kueue.x-k8s.io/multikueue"],
    )
    queue: ObjectName | None = Field(
        None, description="the LocalQueue of Kueue, as the label kueue.x-k8s.io/queue-name", examples=["team-a"]
    )
    gang: Gang | None = Field(
        None,
        description="place all pods together, or none",
        examples=[{"scheduleTimeoutSeconds": 300}],
    )
    slurm: Slurm = Field(Slurm(), description="what Slurm alone is told", examples=[{"partition": "gpu"}])
    kubernetes: Kubernetes = Field(
        Kubernetes(), description="what the target kubernetes alone is told", examples=[{"api": "1.20"}]
    )
    trainjob: TrainJob = Field(
        TrainJob(), description="keys of the target trainjob alone", examples=[{"runtimeRef": {"name": "torch"}}]
    )

    @property
    def distributed(self) -> bool:
        if self.mode:
            return self.mode == DISTRIBUTED
        return self.nodes > 1 or self.processes is not None or self.elastic is not None

    @property
    def most_nodes(self) -> int:
        """How many containers are started."""
        return int(self.elastic.partition(":")[2]) if self.elastic else self.nodes

    @property
    def per_node(self) -> str:
        """Processes on each node: a number, or auto."""
        return self.processes or str(max(1, self.resources.gpu) if self.distributed else 1)

    @property
    def words(self) -> tuple[str, ...]:
        """What the container runs."""
        if self.command:
            return self.command
        what = ("-m", self.module) if self.module else (self.script or "",)
        return ("run", *what, *self.args)


def load_job(path: Path) -> tuple[Job, Document]:
    """Read and validate; raises JobError that lists every problem with file, line and key."""
    try:
        document = read_document(path, named_by="FILE of `job`")
    except MatrixError as error:
        raise JobError(error.message, hint=error.hint) from None
    return validate_job(document), document


def read_job(text: str, path: Path) -> tuple[Job, Document]:
    """A job of this text; ``path`` only names it in messages. Raises JobError."""
    try:
        document = parse_document(text, path)
    except MatrixError as error:
        raise JobError(error.message, hint=error.hint) from None
    return validate_job(document), document


def validate_job(document: Document) -> Job:
    """The model behind a document, its keys checked together. Raises JobError."""
    from torchbake.jobs.cross_checks import cross_checks  # noqa: PLC0415 - it speaks of the model

    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of keys"
        raise JobError(
            f"{document.path}:1: {what}.", hint="It needs at least: name, image, and script, module or command."
        )
    try:
        job = Job.model_validate(document.data)
    except ValidationError as error:
        raise job_problems(document, [explain(found, Job) for found in error.errors()]) from None
    wrong = cross_checks(job)
    if wrong:
        raise job_problems(document, wrong)
    return job


def job_problems(document: Document, found: list[tuple[Location, str]]) -> JobError:
    """One error for all that is wrong with a job, in the file's order."""
    message = problems(document, found).message
    return JobError(message, hint=f"Correct {document.path}; docs/job.md has every key.")
