"""A Slurm cluster of several machines, with Apptainer. Jobs are submitted without root, as on a real cluster."""

import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.models.images import Image

from tests.e2e.launchers.boxes import Box, Network, network
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.run import command_of
from tests.e2e.launchers.tree import UID, USER
from tests.e2e.waiting import until

# No accounts and cgroups, because they differ between sites. pgid, because linuxproc would also send each signal to the
# process that serves the image's files to Apptainer.
_CONFIG = """\
ClusterName=test
SlurmctldHost={first}
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName={nodes} CPUs=4 RealMemory=8000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
"""

# For `srun --container`, as https://slurm.schedmd.com/containers.html has it for runc without root.
_RUNC = "runc --rootless=true --root=/run/user/%U"
_CONTAINER = "%n.%u.%j.%s.%t"
_OCI = f"""\
EnvExclude="^(SLURM_CONF|SLURM_CONF_SERVER)="
RunTimeEnvExclude="^(SLURM_CONF|SLURM_CONF_SERVER)="
RunTimeQuery="{_RUNC} state {_CONTAINER}"
RunTimeKill="{_RUNC} kill -a {_CONTAINER}"
RunTimeDelete="{_RUNC} delete --force {_CONTAINER}"
RunTimeRun="{_RUNC} run {_CONTAINER} -b %b"
"""

_AS_USER: dict[str, Any] = {"uid": UID, "home": f"/home/{USER}", "env": {"USER": USER}}
_OVER = "COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster's machines; the first accepts jobs.

    The folders ``shared`` and ``images`` belong to the user and have the same path on this host and on all machines.
    """

    boxes: tuple[Box, ...]
    shared: Path
    images: Path

    def user(self, *words: str, timeout: float = 300) -> str:
        """Run a command as the user on the first machine, in the shared folder. Raises AssertionError if it fails."""
        return self.boxes[0].ask(*self._there(words), **_AS_USER, timeout=timeout)

    def _there(self, words: Sequence[str]) -> list[str]:
        return ["sh", "-c", 'cd "$0" && exec "$@"', str(self.shared), *words]

    def tools(self, folder: Path) -> dict[str, str]:
        """Return the variables by which torchbake uses the cluster's Slurm; without accounts there is no sacct.

        Temporary files are in the shared folder, and the commands give them to the user.
        """
        moment = self.shared / "tmp"
        moment.mkdir()
        for name in ("sbatch", "scancel", "scontrol", "squeue"):
            words = shlex.join(self.boxes[0].command(*self._there([name]), **_AS_USER))
            command_of(name, words, folder, first=f"chown -R {UID} {shlex.quote(str(moment))}\n")
        return {"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(moment)}

    def run(self, script: str, seconds: float) -> Ended:
        """Submit a script by sbatch, and poll until it ends, because `sbatch --wait` polls at growing intervals."""
        (self.shared / "job.sbatch").write_text(script)
        began = time.monotonic()
        number = self.user("sbatch", "--parsable", "job.sbatch")
        over = re.compile(rf"JobState=(?:{_OVER}) .* ExitCode=(\d+):(\d+) .* StdOut=(\S+)")
        while not (match := over.search(self.user("scontrol", "--oneliner", "show", "job", number))):
            assert time.monotonic() - began < seconds, self.user("scontrol", "show", "job", number)
            time.sleep(0.2)
        took = time.monotonic() - began
        code, killed, answer = match.groups()
        return Ended(code=int(code) or int(killed), output=Path(answer).read_text(), seconds=took)

    def busy(self) -> str:
        """Return the unfinished jobs, the allocated nodes, and the user's processes."""
        first = self.boxes[0]
        left = [first.ask("squeue", "--noheader"), first.ask("sinfo", "--noheader", "--Node", "--states=alloc,comp")]
        return "".join([*left, *(box.run("pgrep", "--list-full", "--uid", USER).stdout for box in self.boxes)])


@contextmanager
def cluster(tree: Path, folder: Path, images: Path, *, nodes: int) -> Iterator[Cluster]:
    """Start a cluster that accepts jobs. Raises NoLauncherError."""
    shared = folder / "shared"
    for own in (shared, images):
        own.mkdir(parents=True, exist_ok=True)
        os.chown(own, UID, UID)
    with network(tree, folder / "machines") as net:
        for number in range(nodes):
            net.add(f"n{number + 1}", {own: str(own) for own in (shared, images)})
        net.introduce()
        _start(net)
        yield Cluster(boxes=tuple(net.boxes), shared=shared, images=images)


def _start(net: Network) -> None:
    first, key = net.boxes[0], secrets.token_hex(64)
    config = _CONFIG.format(first=first.name, nodes=",".join(box.name for box in net.boxes))
    for box in net.boxes:
        box.write("/etc/slurm/slurm.conf", config)
        box.write("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
        box.write("/etc/slurm/oci.conf", _OCI)
        box.write("/etc/munge/munge.key", key)
        box.ask("install", "-d", "-o", "munge", "-g", "munge", "/run/munge")
        box.ask("mkdir", "-p", "/var/spool/slurmctld", "/var/spool/slurmd", "/run/user")
        box.ask("install", "-d", "-o", USER, "-m", "700", f"/run/user/{UID}")
        box.start("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground")
    until(lambda: all(box.run("munge", "--no-input").returncode == 0 for box in net.boxes), 20)
    first.start("slurmctld", "-D")
    for box in net.boxes:
        box.start("slurmd", "-D")
    idle = ("sinfo", "--noheader", "--states=idle", "--format=%D")
    until(lambda: first.run(*idle).stdout.strip() == str(len(net.boxes)), 60)


def sif(where: Cluster, image: Image) -> Path:
    """Return an image of our engine as a SIF file, converted by the user and cached until another image replaces it."""
    path = where.images / f"{(image.id or '').removeprefix('sha256:')[:12]}.sif"
    if not path.exists():
        for old in where.images.glob("*.sif"):
            old.unlink()
        _make_sif(where, image.tags[0], path)
    return path


def _make_sif(where: Cluster, image: str, path: Path) -> None:
    """Convert an image with fast compression, which takes an eighth of the time of Apptainer's default."""
    archive, work = where.shared / "image.tar", where.shared / "work"
    subprocess.run(["docker", "save", "--output", archive, image], check=True, capture_output=True, timeout=300)
    archive.chmod(0o644)
    make = f"""
        mkdir {work}
        export APPTAINER_TMPDIR={work} APPTAINER_CACHEDIR={work}
        export APPTAINER_MKSQUASHFS_ARGS="-comp zstd -Xcompression-level 1"
        apptainer -s build {path}.part docker-archive:{archive}
        mv {path}.part {path}"""
    try:
        where.user("sh", "-euc", make, timeout=600)
    finally:
        archive.unlink()
        shutil.rmtree(work, ignore_errors=True)
