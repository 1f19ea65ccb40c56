"""A Slurm cluster of several machines, with Apptainer: who submits to it is no root, as on any real one."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.launchers.boxes import Box, Network, network
from tests.e2e.launchers.tree import UID, USER
from tests.e2e.waiting import until

HOME = f"/home/{USER}"
IMAGES = "/srv/images"
# Without accounts and cgroups, which are its site's own.
_CONFIG = """\
ClusterName=test
SlurmctldHost={first}
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName={nodes} CPUs=8 RealMemory=8000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Its machines, the first of which takes jobs; ``home`` is the user's on all of them, here."""

    boxes: tuple[Box, ...]
    home: Path

    def user(self, *words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """What the user runs on the first machine, in a folder of all."""
        inside = ["sh", "-c", 'cd && exec "$@"', "sh", *words]
        return self.boxes[0].run(*inside, uid=UID, home=HOME, env={"USER": USER}, timeout=timeout)

    def busy(self) -> str:
        """The jobs that are not over, and the nodes that are not free."""
        first = self.boxes[0]
        return first.ask("squeue", "--noheader") + first.ask("sinfo", "--noheader", "--Node", "--states=alloc,comp")


@contextmanager
def cluster(tree: Path, folder: Path, images: Path, *, nodes: int) -> Iterator[Cluster]:
    """One that takes jobs; ``images`` are at /srv/images on all machines. Raises NoLauncherError."""
    home = folder / "home"
    for own in (home, images):
        own.mkdir(parents=True, exist_ok=True)
        os.chown(own, UID, UID)
    with network(tree, folder / "machines") as net:
        for number in range(nodes):
            net.add(f"n{number + 1}", {home: HOME, images: IMAGES})
        net.introduce()
        _start(net)
        yield Cluster(boxes=tuple(net.boxes), home=home)


def _start(net: Network) -> None:
    first, key = net.boxes[0], secrets.token_hex(64)
    config = _CONFIG.format(first=first.name, nodes=",".join(box.name for box in net.boxes))
    for box in net.boxes:
        box.write("/etc/slurm/slurm.conf", config)
        box.write("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
        box.write("/etc/munge/munge.key", key)
        box.ask("install", "-d", "-o", "munge", "-g", "munge", "/run/munge")
        box.ask("mkdir", "-p", "/var/spool/slurmctld", "/var/spool/slurmd")
        box.start("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground")
    for box in net.boxes:
        until(lambda box=box: box.run("munge", "--no-input").returncode == 0, 20)
    first.start("slurmctld", "-D")
    for box in net.boxes:
        box.start("slurmd", "-D")
    idle = ("sinfo", "--noheader", "--states=idle", "--format=%D")
    until(lambda: first.run(*idle).stdout.strip() == str(len(net.boxes)), 60)


def sif(where: Cluster, image: str, identity: str) -> str:
    """The path there of an image of our engine as Apptainer wants it, which the user makes; once made it is kept."""
    name = f"{identity.removeprefix('sha256:')[:12]}.sif"
    kept = where.boxes[0].run("test", "-e", f"{IMAGES}/{name}").returncode == 0
    if not kept:
        _make_sif(where, image, name)
    return f"{IMAGES}/{name}"


def _make_sif(where: Cluster, image: str, name: str) -> None:
    """Packed quickly rather than well: a fifth of the time that it takes by itself."""
    archive = where.home / "image.tar"
    subprocess.run(["docker", "save", "--output", archive, image], check=True, capture_output=True, timeout=300)
    archive.chmod(0o644)
    make = f"""
        export APPTAINER_TMPDIR=$HOME APPTAINER_CACHEDIR=$HOME/cache
        export APPTAINER_MKSQUASHFS_ARGS="-comp zstd -Xcompression-level 1"
        rm -f {IMAGES}/*.sif
        apptainer -s build {IMAGES}/part docker-archive:image.tar && mv {IMAGES}/part {IMAGES}/{name}"""
    done = where.user("sh", "-c", make, timeout=600)
    archive.unlink()
    shutil.rmtree(where.home / "cache", ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
