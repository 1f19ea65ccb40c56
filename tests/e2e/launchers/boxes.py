"""Machines without an engine: kernel namespaces over one file system, joined by an isolated network.

Each machine has one root process, which ends with this process in every case. The machine's processes, network, mounts
and written files end with it; only the mounted folders remain.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.launchers.tree import NoLauncherError
from tests.e2e.waiting import until

_PROGRAMS = ("ip", "nsenter", "setpriv", "unshare")
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private")
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# $1 is the tree, $2 an empty folder, $3 the name; pairs of mount source and target follow.
_UP = """
set -eu
tree=$1 top=$2 name=$3; shift 3
hostname "$name"
mount -t tmpfs -o size=1g tmpfs "$top"
mkdir "$top/upper" "$top/work" "$top/root"
root=$top/root
mount -t overlay -o "lowerdir=$tree,upperdir=$top/upper,workdir=$top/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
  mknod -m 666 "$root/dev/${device%% *}" c ${device#* }
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
while [ $# -gt 0 ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  shift 2
done
mkdir "$root/old"
cd "$root"
pivot_root . old
umount -l /old
ip link set lo up
touch /run/ready
exec sh -c 'sleep infinity & wait'  # the first process buries all whose parents are gone
"""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A machine; ``pid`` is the first process, in the host's numbering."""

    name: str
    address: str
    pid: int
    log: Path

    def command(
        self, *words: str, uid: int = 0, home: str = "/root", env: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the host's command line that runs ``words`` in the machine."""
        inside = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "--root", "--wd"]
        variables = {**_ENV, "HOME": home, **(env or {})}
        who = ["--setuid", str(uid), "--setgid", str(uid)] if uid else []
        return [*inside, *who, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *words]

    def run(self, *words: str, timeout: float = 300, **how: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; the exit code is not checked."""
        command = self.command(*words, **how)  # type: ignore[arg-type]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def ask(self, *words: str, **how: object) -> str:
        """Run a command and return its stdout. Raises AssertionError if it fails."""
        process = self.run(*words, **how)  # type: ignore[arg-type]
        assert process.returncode == 0, (
            f"{self.name}: {' '.join(words)}: {process.returncode}\n{process.stdout}{process.stderr}"
        )
        return process.stdout.strip()

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a service, which ends with the machine; its output goes to the machine's log."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def write(self, path: str, text: str) -> None:
        (Path(f"/proc/{self.pid}/root") / path.lstrip("/")).write_text(text)


@dataclass
class Network:
    """Machines that reach each other and nobody else."""

    tree: Path
    folder: Path
    stack: ExitStack
    switch: int
    boxes: list[Box] = field(default_factory=list)

    def add(self, name: str, mounts: Mapping[Path, str] | None = None) -> Box:
        """Add a machine with these host folders mounted. Raises NoLauncherError."""
        top, log = self.folder / name, self.folder / f"{name}.log"
        top.mkdir(parents=True)
        pairs = [str(word) for source, target in (mounts or {}).items() for word in (source, target)]
        words = ["unshare", *_NAMESPACES, "sh", "-c", _UP, "sh", str(self.tree), str(top), name, *pairs]
        pid = self.stack.enter_context(_keep(words, log, "/run/ready"))
        place = len(self.boxes) + 1
        box = Box(name=name, address=f"10.251.0.{place}", pid=pid, log=log)
        self._plug_in(box)
        self.boxes.append(box)
        return box

    def introduce(self) -> None:
        """Write the names of all machines into the hosts file of each."""
        lines = ["127.0.0.1 localhost", *(f"{box.address} {box.name}" for box in self.boxes), ""]
        for box in self.boxes:
            box.write("/etc/hosts", "\n".join(lines))
            box.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")  # nothing listens there, so look-ups fail at once

    def _plug_in(self, box: Box) -> None:
        port = f"port{len(self.boxes)}"
        for pid, words in (
            (self.switch, f"link add {port} type veth peer name eth0 netns {box.pid}"),
            (self.switch, f"link set {port} master switch up"),
            (box.pid, f"addr add {box.address}/24 dev eth0"),
            (box.pid, "link set eth0 up"),
        ):
            _ip(pid, words)


@contextmanager
def network(tree: Path, folder: Path) -> Iterator[Network]:
    """Create a network without machines; at the end all added machines end too. Raises NoLauncherError."""
    lacking = [name for name in _PROGRAMS if not shutil.which(name)]
    if os.geteuid() != 0 or lacking:
        raise NoLauncherError(f"a machine wants {', '.join(lacking) or 'root'}")
    with ExitStack() as stack:
        folder.mkdir(parents=True)
        words = ["unshare", "--net", "--fork", "--kill-child", "sleep", "infinity"]
        switch = stack.enter_context(_keep(words, folder / "switch.log", "/"))
        _ip(switch, "link add switch type bridge")
        _ip(switch, "link set switch up")
        yield Network(tree=tree, folder=folder, stack=stack, switch=switch)


@contextmanager
def _keep(words: list[str], log: Path, sign: str) -> Iterator[int]:
    """Yield the first process in new namespaces, once it sees the file ``sign``; kill all of them at the end."""
    with log.open("wb") as answer:
        holder = subprocess.Popen([*_WITH_US, *words], stdin=subprocess.DEVNULL, stdout=answer, stderr=answer)
    try:
        until(lambda: holder.poll() is not None or _first(holder.pid, sign), 20)
        if holder.poll() is not None:
            raise NoLauncherError(f"this kernel gives no machine: {log.read_text(errors='replace').strip()}")
        yield _first(holder.pid, sign)
    finally:
        holder.kill()
        holder.wait()


def _first(holder: int, sign: str) -> int:
    """Return the holder's child that sees the file ``sign``; 0 if there is none yet."""
    for child in Path(f"/proc/{holder}/task/{holder}/children").read_text().split():
        own = Path(f"/proc/{child}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        if own and (Path(f"/proc/{child}/root") / sign.lstrip("/")).exists():
            return int(child)
    return 0


def _ip(pid: int, words: str) -> None:
    subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", *words.split()], check=True, capture_output=True, text=True)
