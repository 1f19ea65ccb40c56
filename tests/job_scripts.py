"""The shell scripts of `job show`, for shellcheck: of every case of the tests, and of values that a shell misreads.

`python -m tests.job_scripts FOLDER` writes each into a file there, and nothing of an earlier time stays.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.jobs import cases
from torchbake.jobs.load import read_job
from torchbake.jobs.targets import TARGETS
from torchbake.jobs.task import SplitImage, Task

HOSTILE = 'it\'s "$HOME" `id` $(id) \\ * ;&|<> #\n{{.Task.Slot}} ${X} %d \u00e4'
JOB: dict[str, Any] = {
    "name": "hostile",
    "image": "registry.example.com/team/pytorch:cpu@sha256:" + "0" * 64,
    "script": "odd $name's.py",
    "args": [HOSTILE, "", "--", "-x"],
    "nodes": 2,
    "env": {"ODD": HOSTILE, "EMPTY": ""},
    "secrets": {"HF_TOKEN": {"secret": "hub", "key": "token"}},
    "resources": {"cpu": 2, "memory": "2Gi", "gpu": 1},
    "labels": {"example.com/team": "vision"},
    "timeouts": {"job": 3600},
}
FOLDER = Path('/srv/it\'s, "a $folder"')
RUNTIMES: dict[str, dict[str, Any]] = {
    "apptainer": {"constraint": "a100&nvlink", "exclusive": True},
    "pyxis": {"runtime": "pyxis", "partition": "gpu"},
    "oci": {"runtime": "oci", "image": "/srv/it's a $bundle"},
}


def scripts() -> Iterator[tuple[str, str]]:
    """The name of each script, and its text."""
    for case in cases.ALL_CASES:
        for name in ("docker", "torchrun", "slurm"):
            yield f"{name}-{case}", TARGETS[name].render(cases.task_of(cases.text_of(case)))
    for name in ("docker", "torchrun"):
        yield name, TARGETS[name].render(task_of({}))
    split = SplitImage(base=str(JOB["image"]), code=str(JOB["image"]))
    yield "slurm-code", TARGETS["slurm"].render(replace(cases.task_of(cases.text_of("layer")), split=split))
    for runtime, lines in RUNTIMES.items():
        yield f"slurm-{runtime}", TARGETS["slurm"].render(task_of({"slurm": lines}))
    for name, lines in (
        ("docker", {}),
        ("torchrun", {}),
        *((f"slurm-{name}", lines) for name, lines in RUNTIMES.items()),
    ):
        yield (
            f"{name}-hostile-command",
            TARGETS[name.partition("-")[0]].render(commanded({"slurm": lines} if lines else {})),
        )


def task_of(more: dict[str, Any]) -> Task:
    """The hostile job with more keys; Pyxis refuses such a folder, so that it gets the files by git."""
    runtime = more.get("slurm", {}).get("runtime", "apptainer")
    folder = FOLDER if runtime == "apptainer" else None
    files = {"folder": "."} if folder else {"git": {"repository": "https://example.com/it's/$job.git"}}
    job, _ = read_job(json.dumps(JOB | {"files": files} | more), Path("job.yaml"))
    return Task(job=job, image=job.image, folder=folder)


def commanded(more: dict[str, Any]) -> Task:
    """The hostile job as a command of an image that is not ours."""
    job = {key: value for key, value in JOB.items() if key not in ("script", "args")}
    job |= {"command": ["torchrun", *JOB["args"]], "workdir": "/it's a $folder", **more}
    read, _ = read_job(json.dumps(job), Path("job.yaml"))
    return Task(job=read, image=read.image, ours=False)


def write(folder: Path) -> None:
    for old in folder.glob("job-*.sh"):
        old.unlink()
    for name, text in scripts():
        (folder / f"job-{name}.sh").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
