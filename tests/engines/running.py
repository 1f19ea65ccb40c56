"""Start an engine in its own namespaces, and end it with all its containers."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.clusters import groups
from tests.engines.bridge import CGROUP, bridge, name_of_bridge
from tests.engines.containers import in_container
from tests.engines.kinds import REGISTRY, SOCKET, Kind
from tests.engines.system import UID, USER, NotRunError, system

BUILDER = "engines"  # what the builder of a remote BuildKit is called
_PORTS = 23750  # the number of an engine's bridge is added
_START, _STOP = 60, 30  # seconds, at most
_PROGRAMS = ("docker", "ip", "iptables", "mmdebstrap", "setpriv", "unshare")
_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
# $1 is the system, $2 the engine's folder; the engine's command follows. The folder has the same path inside.
_UP = """
set -eu
system=$1 folder=$2; shift 2
top=$folder/top
mkdir -p "$top"
mount -t tmpfs -o size=1g tmpfs "$top"
mkdir "$top/upper" "$top/work" "$top/root"
root=$top/root
mount -t overlay -o "lowerdir=$system,upperdir=$top/upper,workdir=$top/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/pts" "$root/dev/shm"
for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229" "net/tun 10 200"; do
  mknod -m 666 "$root/dev/${device%% *}" c ${device#* }
done
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount --rbind /sys "$root/sys"
# crun refuses a machine with both versions of cgroups; Docker uses the first version there.
if [ -d "$root/sys/fs/cgroup/unified" ]; then umount "$root/sys/fs/cgroup/unified"; fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -R "$folder/files/." "$root/"
mkdir -p "$root$folder" "$root/old"
mount --bind "$folder" "$root$folder"
cd "$root"
pivot_root . old
umount -l /old
exec sh -c 'trap "kill \\$!" TERM; "$@" & wait; wait' sh "$@"  # the first process buries all whose parents are gone
"""


@dataclass(frozen=True, kw_only=True)
class Running:
    """An engine that answers. ``variables`` are how commands find it: DOCKER_HOST and what else its kind needs.

    ``process`` is this machine's number of the engine's first process. All others end with it. ``client`` are the words
    that run a command in the container of torchbake; without them it runs on this machine.
    """

    kind: Kind
    folder: Path
    variables: Mapping[str, str]
    process: int
    client: Sequence[str] = ()


@contextmanager
def running(kind: Kind, folder: Path, tools: Path, registry: str) -> Iterator[Running]:
    """Start an engine, wait until it answers, and end it. Its data stays in ``folder``. Raises NotRunError.

    It takes images from ``registry`` (HOST:PORT), which speaks plain HTTP.
    """
    _check(kind)
    root = system(tools, kind.suite)
    _write(kind, folder, registry)
    with bridge() if kind.bridged else nullcontext(0) as number, (folder / "log").open("ab") as log:
        places = {
            "folder": str(folder),
            "bridge": name_of_bridge(),
            "cgroup": f"/{CGROUP}{os.getpid()}",
            "port": str(_PORTS + number),
            "user": USER,
        }
        command = [word.format(**places) for word in _command(kind)]
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, "sh", "-c", _UP, "sh", root, folder, *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            variables = _variables(kind, places)
            _wait(process, variables, folder)
            if kind.buildkit:
                _name_builder(places["port"], variables)
            here = nullcontext(((), variables))
            there = in_container(root, folder, variables, nested=kind.nested)
            with there if kind.inside else here as (client, matches):
                _wait(process, matches, folder)
                yield Running(kind=kind, folder=folder, variables=matches, process=_first(process), client=client)
        finally:
            _stop(process)
            if kind.bridged:
                groups.remove(f"{CGROUP}{os.getpid()}")


def _check(kind: Kind) -> None:
    if os.geteuid() != 0:
        raise NotRunError("only root can start an engine of another kind")
    programs = (*_PROGRAMS, *(["podman"] if "podman" in kind.command else []))
    if lacking := [name for name in programs if not shutil.which(name)]:
        raise NotRunError(f"not installed: {', '.join(lacking)}")


def _variables(kind: Kind, places: Mapping[str, str]) -> dict[str, str]:
    """How commands find the engine. Its ssh key and the name of its builder are in its own folder."""
    folder = places["folder"]
    matches = {"DOCKER_HOST": kind.address.format(**places), "BUILDX_CONFIG": f"{folder}/buildx"}
    return matches | ({"PATH": f"{folder}/ssh:{os.environ['PATH']}"} if kind.ssh else {})


def _name_builder(port: str, variables: Mapping[str, str]) -> None:
    create = ("docker", "buildx", "create", "--name", BUILDER, "--driver", "remote", f"tcp://127.0.0.1:{port}")
    subprocess.run(create, env={**os.environ, **variables}, check=True, capture_output=True)


def _write(kind: Kind, folder: Path, registry: str) -> None:
    shutil.rmtree(folder / "files", ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    (folder / SOCKET).unlink(missing_ok=True)
    for path, text in kind.files.items():
        target = folder / "files" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(REGISTRY, registry))
    for name in ("data", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    shutil.rmtree(folder / "buildx", ignore_errors=True)
    if kind.ssh:
        _write_ssh(folder / "ssh")
    if kind.buildkit:
        shutil.copy(_buildkitd(), folder / "buildkitd")
    if kind.by_user:
        os.chown(folder, UID, UID)
    if kind.rootless:
        os.chown(folder / "data", UID, UID)


def _write_ssh(folder: Path) -> None:
    """A key for both ends, and an ``ssh`` that uses it: the program takes no settings from variables."""
    folder.mkdir(exist_ok=True)
    if not (folder / "key").exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    options = f"-i {folder}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    (folder / "ssh").chmod(0o755)


def _buildkitd() -> str:
    if text := shutil.which("buildkitd"):
        return text
    raise NotRunError("no buildkitd in PATH; no Debian suite has it (https://github.com/moby/buildkit/releases)")


def _command(kind: Kind) -> tuple[str, ...]:
    if not kind.rootless:
        return kind.command
    runtime = "/run/user"
    path = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/share/docker.io/contrib"
    variables = (f"XDG_RUNTIME_DIR={runtime}", "HOME={folder}", f"PATH={path}")
    script = f'mkdir -m 700 {runtime} && chown {UID} {runtime} && exec "$@"'
    user = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
    return ("sh", "-c", script, "sh", *user, "env", "-i", *variables, *kind.command)


def _wait(process: "subprocess.Popen[bytes]", variables: Mapping[str, str], folder: Path) -> None:
    end, env = time.monotonic() + _START, {**os.environ, **variables}
    while subprocess.run(["docker", "version"], env=env, capture_output=True, check=False).returncode:
        tail = "\n".join((folder / "log").read_text(errors="replace").splitlines()[-8:])
        if process.poll() is not None:
            raise NotRunError(f"the engine ended with {process.returncode}:\n{tail}")
        if time.monotonic() > end:
            raise NotRunError(f"the engine does not answer within {_START} s:\n{tail}")
        time.sleep(0.2)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the engine in good order, then by force. All its processes are in its namespace and end with it."""
    with suppress(OSError, LookupError):
        os.kill(_first(process), signal.SIGTERM)
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first(process: "subprocess.Popen[bytes]") -> int:
    """Return the number of the first process in an engine's namespace."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
