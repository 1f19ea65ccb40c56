"""The files that a Slurm script makes for Apptainer: the script runs with stand-ins for Slurm and Apptainer."""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.conftest import START
from tests.unit.jobs.cases import LEAST, task_of
from torchbake.code.node_files import list_node_files
from torchbake.jobs.targets import slurm
from torchbake.jobs.task import SplitImage, Task

BASE, FIRST, SECOND = (f"h:5000/team/pytorch:x@sha256:{letter * 64}" for letter in "bcd")
# A conversion writes the source into the file, and what happens then is the test's choice.
APPTAINER = """\
#!/bin/bash
echo "$@" >> "$LOG"
[ "$1" != --silent ] || shift
case "$1" in
build)
    [ "$2" != --disable-cache ] || { mkdir -p "$4/job"; echo "$5" > "$4/job/source"; exit; }
    echo "$4" > "$3"; eval "${ON_BUILD:-:}" ;;
exec) case "$*" in *exit*) exit "${IN_JOB:-0}" ;; *) echo "ran $*" ;; esac ;;
esac
"""
MKSQUASHFS = """\
#!/bin/bash
cp "$1/source" "$2"; eval "${ON_PACK:-:}"
"""
SRUN = """\
#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""


class Site:
    """A folder of submission, and stand-ins for the programs of a node."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.bin, self.log = folder / 'a "shared", folder', folder / "bin", folder / "log"
        self.runs.mkdir()
        self.bin.mkdir()
        for name, text in {"apptainer": APPTAINER, "mksquashfs": MKSQUASHFS, "srun": SRUN}.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def start(self, task: Task, number: int, **env: str) -> subprocess.Popen[str]:
        own = {"SLURM_SUBMIT_DIR": str(self.runs), "SLURM_JOB_ID": str(number), "LOG": str(self.log)}
        path = {"PATH": env.pop("PATH", f"{self.bin}:{os.environ['PATH']}")}
        return subprocess.Popen(
            ["/bin/bash", "-c", slurm.render(task)], env={**path, **own, **env}, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, task: Task, number: int = 1, *, code: int = 0, **env: str) -> str:
        process = self.start(task, number, **env)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == code, output
        return output

    @property
    def builds(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split()[-1].rpartition(":")[2][0] for line in lines if " build " in f" {line}"]

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.runs.iterdir()}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(subprocess.Popen, "__init__", START)  # the only processes are bash and what it starts
    return Site(tmp_path)


def split(code: str = FIRST) -> Task:
    task = task_of(LEAST + "files: {layer: src}\n")  # with restarts, the script has more variables
    return dataclasses.replace(task, image=code, split=SplitImage(base=BASE, code=code))


def whole() -> Task:
    return dataclasses.replace(task_of(LEAST + "restarts: 0\n"), image=BASE)


SIF = f"pytorch-sha256-{'b' * 64}.sif"
CODE = f"code-sha256-{'c' * 64}.squashfs"
FILES = {SIF, f"{SIF}.free", CODE}


def test_an_edit_converts_the_code_alone(site: Site) -> None:
    for task in (split(), split(), split(SECOND), whole()):
        site.run(task)
    assert site.builds == ["b", "c", "d"]
    assert [path.read_text() for path in sorted(site.runs.glob("code-*"))] == [
        f"docker://h:5000/team/pytorch@sha256:{letter * 64}\n" for letter in "cd"
    ]


def test_the_code_is_mounted_by_its_path(site: Site) -> None:
    output = site.run(split())
    path = str(site.runs / CODE).replace('"', '""')
    assert f'--mount type=bind,"source={path}",destination=/job,image-src=/,ro {site.runs}/pytorch-' in output


@pytest.mark.parametrize("lock", [True, False])
def test_two_jobs_at_once_use_whole_files(site: Site, lock: bool) -> None:
    if not lock:
        (site.bin / "flock").write_text("#!/bin/sh\nexit 1\n")
        (site.bin / "flock").chmod(0o755)
    jobs = [site.start(split(), number, ON_BUILD="sleep 0.3", ON_PACK="sleep 0.3") for number in (1, 2)]
    for job in jobs:
        assert "ran exec" in job.communicate(timeout=60)[0]
        assert job.returncode == 0
    assert (sorted(site.builds) == ["b", "c"]) is lock
    assert site.names == FILES


def test_a_killed_conversion_is_done_again(site: Site) -> None:
    for stop in ({"ON_BUILD": "kill -9 0"}, {"ON_PACK": "kill -9 0"}):
        site.start(split(), 1, **stop).communicate(timeout=60)
        assert [path.name for path in site.runs.iterdir() if ".part-" in path.name]
        assert len(list_node_files(site.runs, now=0)) == len([*site.runs.iterdir()])
    assert "ran exec" in site.run(split(), 2)
    assert site.names == FILES


@pytest.mark.parametrize("step", ["ON_BUILD", "ON_PACK"])
def test_a_full_disk_ends_the_job_with_a_sentence(site: Site, step: str) -> None:
    output = site.run(split(), 1, code=1, **{step: "echo no space left; exit 1"})
    assert "no space left" in output
    assert "cannot be made: the reason is above. Free there: " in output
    assert "ran exec" not in output
    assert not [path for path in site.runs.iterdir() if path.name.endswith((".squashfs", ".part-1"))]
    assert "ran exec" in site.run(split())


def test_an_image_with_files_in_the_folder_is_refused(site: Site) -> None:
    """A layer would be added to them, and a mount hides them."""
    for _ in range(2):
        output = site.run(split(), code=1, IN_JOB="3")
        assert "has files in /job, which the code would hide" in output
        assert "ran exec" not in output
    assert "ran exec" in site.run(whole())


def test_a_folder_that_takes_no_file_ends_the_job(site: Site) -> None:
    shutil.rmtree(site.runs)
    assert "cannot be made" in site.run(whole(), code=1)


def test_each_use_makes_a_file_young_again(site: Site) -> None:
    site.run(split())
    for path in site.runs.iterdir():
        os.utime(path, (0, 0))
    site.run(split())
    assert min(path.stat().st_mtime for path in site.runs.iterdir()) > 0
