"""The model of a job, and the message of each mistake: file, line, key, and the correction."""

from pathlib import Path

import pytest

from torchbake.core.job_variables import _module
from torchbake.errors import JobError
from torchbake.jobs import validators
from torchbake.jobs.load import load_job, read_job
from torchbake.jobs.model import Job

SMALL = "name: mnist\nimage: cpu\nscript: train.py\n"


def job_of(text: str) -> Job:
    return read_job(text, Path("job.yaml"))[0]


def problem(text: str) -> str:
    with pytest.raises(JobError) as caught:
        job_of(text)
    return caught.value.message


def test_the_smallest_job_has_the_defaults_of_a_careful_person() -> None:
    job = job_of(SMALL)
    assert not job.distributed
    assert (job.most_nodes, job.per_node, job.port) == (1, "1", 49875)
    assert (job.timeouts.rendezvous, job.timeouts.group, job.timeouts.stop, job.timeouts.job) == (900, 600, 30, None)
    assert job.restarts == 3
    assert job.words == ("run", "train.py")


@pytest.mark.parametrize(
    ("more", "nodes", "per_node"),
    [
        ("nodes: 4", 4, "1"),
        ("nodes: 4\nresources: {gpu: 8}", 4, "8"),
        ("processes: 1", 1, "1"),
        ("processes: auto\nresources: {gpu: 8}", 1, "auto"),
        ("elastic: 2:4", 4, "1"),
        ("mode: distributed", 1, "1"),
    ],
)
def test_a_job_of_several_is_distributed(more: str, nodes: int, per_node: str) -> None:
    job = job_of(SMALL + more)
    assert job.distributed
    assert (job.most_nodes, job.per_node) == (nodes, per_node)


def test_a_standalone_job_is_one_process_with_any_number_of_gpus() -> None:
    assert job_of(SMALL + "resources: {gpu: 8}").per_node == "1"


def test_values_are_the_text_that_was_written() -> None:
    job = job_of(SMALL + "args: [--lr, 0.10, --resume, yes]\nenv: {DAY: 2026-01-02}")
    assert job.args == ("--lr", "0.10", "--resume", "yes")
    assert job.env == {"DAY": "2026-01-02"}


def test_a_weight_is_a_number_as_kubernetes_wants_it() -> None:
    text = "affinity: {podAffinity: {preferred: [{weight: 100, term: {topologyKey: '7'}}]}}"
    assert job_of(SMALL + text).affinity.pod_affinity == {"preferred": [{"weight": 100, "term": {"topologyKey": "7"}}]}


VOLUME = "volumes:\n  - mountPath: /data\n"
BROKEN = {
    "unknown key": ("node: 4", "job.yaml:4: node: unknown key 'node'; did you mean 'nodes'?"),
    "unknown key below": (
        "resources: {memroy: 1Gi}",
        "4: resources.memroy: unknown key 'memroy'; did you mean 'memory'",
    ),
    "snake case": (VOLUME + "    mount_path: /x", "unknown key 'mount_path'; did you mean 'mountPath'?"),
    "key twice": ("name: other", "job.yaml:4: name: duplicate key, first on line 1."),
    "mode": ("mode: distribute", "mode: 'distribute' is unknown; did you mean 'distributed'?"),
    "nodes no number": ("nodes: many", "nodes: should be a whole number"),
    "no nodes": ("nodes: 0", "nodes: should be at least 1 (got '0')"),
    "too many nodes": ("nodes: 100001", "nodes: should be at most 100000"),
    "processes": ("processes: all", "processes: 'all' does not fit the form ^(auto|[1-9][0-9]*)$; an example: auto"),
    "too many processes": ("processes: 5000", "processes: 5000 processes on a node are more than 4096"),
    "elastic form": ("elastic: 4", "elastic: '4' does not fit the form"),
    "elastic goes down": ("elastic: 4:2", "elastic: 4:2 goes down: write it as MIN:MAX, such as 2:4"),
    "elastic with ranks": ("nodes: 4\nelastic: 2:4", "job.yaml:5: elastic: lets nodes come and go, and `nodes` gives"),
    "elastic alone": ("mode: standalone\nelastic: 1:2", "mode: standalone is one process, and `elastic` asks for"),
    "nodes alone": ("mode: standalone\nnodes: 2", "mode: standalone is one process, and `nodes` asks for 2"),
    "processes alone": (
        "mode: standalone\nprocesses: 2",
        "mode: standalone is one process, and `processes` asks for 2",
    ),
    "script and module": ("module: a.b", "job.yaml:4: module: is named besides `script`: keep one of them"),
    "script and command": ("command: ls", "job.yaml:4: command: is named besides `script`: keep one of them"),
    "no module": ("module: a-b", "module: 'a-b' is not the name of a module, such as package.train"),
    "two sources": ("files: {folder: ., configMap: x}", "files: names several sources, folder and configMap: keep one"),
    "secret and git": (
        "files: {git: {repository: https://h/r}}\nsecrets: {GIT_REPOSITORY: {secret: a, key: b}}",
        "job.yaml:5: secrets.GIT_REPOSITORY: is the repository that `files.git` names too",
    ),
    "secret and folder": (
        "files: {folder: .}\nsecrets: {GIT_REPOSITORY: {secret: a, key: b}}",
        "secrets.GIT_REPOSITORY: is a second source of files besides `files`",
    ),
    "login in a repository": (
        "files: {git: {repository: 'https://ann:hunter2@h/r'}}",
        "files.git.repository: holds a login, which all who read the manifest would see",
    ),
    "option as repository": ("files: {git: {repository: --upload-pack=x}}", "reads as an option of git"),
    "variable of the job": ("env: {NNODES: 2}", "env.NNODES: NNODES is set by the key `nodes`: remove it here"),
    "variable of a launcher": ("env: {SLURM_NODEID: 2}", "env.SLURM_NODEID: SLURM_NODEID is set by the launcher"),
    "variable of torchrun": ("env: {PET_NNODES: 2}", "env.PET_NNODES: PET_NNODES is set by the launcher"),
    "no variable": ("env: {MY-VAR: 2}", "env.MY-VAR: 'MY-VAR' does not fit the form"),
    "secret in env": ("env: {HF_TOKEN: hf_x}", "env.HF_TOKEN: HF_TOKEN looks like a secret, which all who read"),
    "token in env": (f"env: {{HUB: hf_{'a' * 34}}}", "job.yaml:4: env.HUB: holds a key, a token or a password"),
    "password in args": ("args: [--db, 'pg://ann:hunter2@h/x']", "job.yaml:4: args.1: holds a key, a token or"),
    "env and secret": ("env: {A: b}\nsecrets: {A: {secret: a, key: b}}", "env.A: is a variable of `secrets` too"),
    "secret without key": ("secrets: {A: {secret: a}}", "secrets.A.key: is missing"),
    "memory": ("resources: {memory: 8GB}", "resources.memory: '8GB' does not fit the form"),
    "cpu": ("resources: {cpu: four}", "resources.cpu: 'four' does not fit the form"),
    "gpu": ("resources: {gpu: -1}", "resources.gpu: should be at least 0"),
    "shm of memory": ("resources: {memory: 1Gi, shm: 2Gi}", "resources.shm: 2Gi is part of the memory, which is 1Gi"),
    "port of root": ("port: 80", "port: should be at least 1024"),
    "timeout": ("timeouts: {rendezvous: 5m}", "timeouts.rendezvous: should be a whole number"),
    "nothing mounted": (VOLUME, "volumes.0.mountPath: /data has no source: set `claim`, `size` or `hostPath`"),
    "claim and host": (VOLUME + "    claim: a\n    hostPath: /b", "volumes.0.hostPath: is a folder of the host, and"),
    "class of nothing": (
        VOLUME + "    claim: a\n    storageClass: b",
        "7: volumes.0.storageClass: is for a claim that the job creates",
    ),
    "fix what is read": (
        VOLUME + "    claim: a\n    readOnly: true\n    permissions: fix",
        "volumes.0.permissions: makes the volume writable, and `readOnly` forbids to write",
    ),
    "no fix": (VOLUME + "    claim: a\n    permissions: fixed", "permissions: 'fixed' is unknown; did you mean 'fix'?"),
    "same place": (
        "volumes: [{claim: a, mountPath: /data}, {claim: b, mountPath: /data/}]",
        "volumes.1.mountPath: /data is the place of another volume: name another",
    ),
    "over the image": ("volumes: [{claim: a, mountPath: /opt/x}]", "'/opt/x' would hide the image's Python and `run`"),
    "over the image's libraries": ("volumes: [{claim: a, mountPath: /usr/lib}]", "would hide the image's system"),
    "over what is sized": ("volumes: [{claim: a, mountPath: //dev/shm}]", "would hide the memory that `resources"),
    "within read-only files": ("volumes: [{claim: a, mountPath: /job/data}]", "would hide the job's files"),
    "quoted mount": ("volumes: [{claim: a, mountPath: '/da\"ta'}]", "is not an absolute path"),
    "no cpu": ("resources: {cpu: '0.000'}", "resources.cpu: '0.000' is not a number of CPUs"),
    "for ever": ("timeouts: {job: 99999999999999999999}", "timeouts.job: should be at most"),
    "two dots": ("pullSecrets: [a..b]", "pullSecrets.0: 'a..b' is not the name of an object of Kubernetes"),
    "label's prefix": ("labels: {a..b/c: d}", "labels.a..b/c: 'a..b/c' is not the key of a label"),
    "no secret's key": ("secrets: {A: {secret: a, key: ..}}", "secrets.A.key: '..' is not the key of a Secret"),
    "relative mount": ("volumes: [{claim: a, mountPath: data}]", "'data' is not an absolute path"),
    "access mode": (VOLUME + "    size: 1Gi\n    accessMode: RWX", "accessMode: 'RWX' is unknown; write ReadWriteOnce"),
    "label": ("labels: {team: a b}", "labels.team: 'a b' is not the value of a label"),
    "label's key": ("labels: {-x: a}", "labels.-x: '-x' is not the key of a label"),
    "effect": ("tolerations: [{operator: Exists, effect: NoScheduel}]", "did you mean 'NoSchedule'?"),
    "value of Exists": ("tolerations: [{key: a, operator: Exists, value: b}]", "tolerations.0.value: has no effect"),
    "any key": (
        "tolerations: [{effect: NoSchedule}]",
        "tolerations.0: tolerates any taint only with the operator Exists",
    ),
    "weight": ("affinity: {podAffinity: {x: [{weight: 101}]}}", "weight '101' is not a whole number from 1 to 100"),
    "runtime": ("slurm: {runtime: apptaner}", "slurm.runtime: 'apptaner' is unknown; did you mean 'apptainer'?"),
    "bundle": ("slurm: {runtime: oci}", "job.yaml:4: slurm.runtime: starts a bundle, a folder with config.json and"),
    "relative bundle": ("slurm: {image: bundle}", "slurm.image: 'bundle' is not an absolute path"),
    "partition": ("slurm: {partition: gpu\\ncpu}", "slurm.partition: 'gpu\\\\ncpu' does not fit the form"),
    "constraint": ("slurm: {constraint: 'a\"; b'}", "slurm.constraint: 'a\"; b' does not fit the form"),
    "exclusive": ("slurm: {exclusive: maybe}", "slurm.exclusive: should be true or false"),
    "api": ("kubernetes: {api: '1.26'}", "kubernetes.api: '1.26' is unknown; did you mean '1.20'?"),
    "unknown key of kubernetes": ("kubernetes: {version: '1.20'}", "kubernetes.version: unknown key 'version'"),
    "unknown key of slurm": ("slurm: {queue: gpu}", "slurm.queue: unknown key 'queue'"),
    "claim's name": (VOLUME + "    claim: My_Data", "claim: 'My_Data' is not the name of an object of Kubernetes"),
}


def test_a_mistake_is_reported_with_file_line_and_key() -> None:
    for more, expected in BROKEN.values():
        message = problem(SMALL + more)
        assert message.startswith("job.yaml:")
        assert expected in message
        assert "\n" not in message


def test_required_keys_of_a_job() -> None:
    for text, expected in (
        ("", "job.yaml:1: is empty."),
        ("- a", "job.yaml:1: is not a mapping of keys."),
        ("name: [", "job.yaml:2:1: YAML syntax:"),
        ("name: x\nimage: cpu\n", "job.yaml:1: has none of `script`, `module` and `command`: name the program"),
        ("image: cpu\nscript: x\n", "job.yaml:1: name: is missing"),
        (SMALL.replace("mnist", "MNIST_1"), "name: 'MNIST_1' is not a name for Kubernetes (RFC 1123)"),
        (SMALL.replace("mnist", "m" * 64), f"name: '{'m' * 64}' has 64 characters, and Kubernetes takes 63"),
        (SMALL.replace("train.py", "--help"), "script: '--help' reads as an option of `run`"),
        (SMALL.replace("train.py", "../x.py"), "script: '../x.py' leads out of the job's files"),
        (SMALL.replace("image: cpu", "image: ''"), "job.yaml:2: image: is empty: write a value"),
    ):
        assert expected in problem(text), (text, expected)


COMMAND = "name: a\nimage: b\n"


def test_a_command_is_a_list_of_words_or_a_line_of_the_shell() -> None:
    for line, words in {
        "command: cd mnist && python main.py": ("sh", "-c", "cd mnist && python main.py"),
        "command: [python, main.py, --lr, 0.10]": ("python", "main.py", "--lr", "0.10"),
    }.items():
        assert job_of(COMMAND + line).words == words


def test_keys_that_contradict_a_command_are_reported() -> None:
    for more, expected in {
        "command: ''": "3: command: is empty: write a program",
        "command: {a: b}": "3: command: should be a list",
        "command: [mail, 'pg://ann:hunter2@h/x']": "3: command.1: holds a key, a token or a password",
        "command: a\nargs: [b]": "4: args: are arguments of a script: write them in `command`",
        "command: a\nfiles: {git: {repository: b}}": "4: files.git: is fetched by `run`",
        "command: a\ntimeouts: {group: 5}": "4: timeouts.group: is a limit of `run`",
        "command: a\nworkdir: b": "4: workdir: b is relative, and no `files` are at /job",
        "command: a\nworkdir: /b/../c": "4: workdir: '/b/../c' is not a folder without ..",
        "command: a\nmanagedBy: kueue": "4: managedBy: 'kueue' is not DOMAIN/NAME",
        "command: a\naccount: me": "4: account: 'me' is unknown",
        "command: a\ngang: {scheduler: kueue}": "4: gang.scheduler: 'kueue' is unknown",
        "script: a\naccount: cluster\nvolumes: [{claim: a, mountPath: /a, permissions: fix}]": (
            "5: volumes.0.permissions: makes a volume writable for a uid, and `account: cluster` leaves"
        ),
    }.items():
        assert expected in problem(COMMAND + more), more


def test_all_mistakes_are_reported_at_once_in_the_files_order() -> None:
    message = problem(SMALL + "port: 80\nlabels: {x: a b}\nmoed: x\n")
    lines = message.splitlines()
    assert lines[0] == "3 problems:"
    assert [line.split(":")[1] for line in lines[1:]] == ["4", "5", "6"]


def test_a_missing_file_is_a_mistake_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no such file") as caught:
        load_job(tmp_path / "job.yaml")
    assert "--matrix" not in (caught.value.hint or "")


def test_variables_of_run_are_refused_in_env_and_secrets() -> None:
    """Names that the launchers' half adds must be refused here without anybody remembering to."""
    for name in sorted(_module("contract")._OF_THE_JOB - {"JOB_TOKEN"}):
        assert problem(f"{SMALL}env: {{{name}: 1}}")
        assert problem(f"{SMALL}secrets: {{{name}: {{secret: a, key: b}}}}")
    assert set(validators.BY_A_SECRET) <= set(job_of(SMALL + _SECRETS).secrets)


_SECRETS = "secrets: {JOB_TOKEN: {secret: a, key: b}, GIT_REPOSITORY: {secret: a, key: c}}"
