"""The kinds of engines: which Debian suite each comes from, and how it starts. Data alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STEPS = ("build", "test", "publish", "validate", "reproduce")
SOCKET = "s"  # in the engine's folder; short, as a socket's path has at most 107 bytes
REGISTRY = "@REGISTRY@"  # HOST:PORT of one that speaks plain HTTP, in an engine's files
_CONTAINERD = {"features": {"containerd-snapshotter": True}}
_CLASSIC = {"features": {"containerd-snapshotter": False}, "storage-driver": "overlay2"}
_PODMAN_REGISTRIES = f"[[registry]]\nlocation = '{REGISTRY}'\ninsecure = true\n"
# There is no systemd in an engine's system.
_PODMAN_SETTINGS = """\
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
log_driver = "k8s-file"
# Podman 5 raises the limits of builds. That needs CAP_SYS_RESOURCE, which a container lacks. 4.3 swaps soft and hard.
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
[network]
network_backend = "netavark"
"""


_PODMAN_FILES = {
    "/etc/containers/containers.conf": _PODMAN_SETTINGS,
    "/etc/containers/registries.conf.d/torchbake.conf": _PODMAN_REGISTRIES,
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of engine.

    ``files`` are written into its system. ``command`` and ``address`` have {folder}, {bridge}, {cgroup}, {port} and
    {user} in them. ``works`` are the steps that must succeed; torchbake must refuse the others.

    With ``group`` the socket belongs to the group of an ordinary user, who runs torchbake. With ``inside`` torchbake
    runs in a container, with the engine's socket. With ``nested`` the engine is another container.
    """

    name: str
    about: str
    suite: str
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    works: tuple[str, ...] = STEPS
    rootless: bool = False
    group: bool = False
    inside: bool = False
    nested: bool = False
    ssh: bool = False
    buildkit: bool = False
    address: str = "unix://{folder}/" + SOCKET

    @property
    def by_user(self) -> bool:
        """Return whether an ordinary user runs torchbake."""
        return self.rootless or self.group

    @property
    def bridged(self) -> bool:
        """Return whether the engine needs a bridge; podman and rootless Docker make their own networks."""
        return "dockerd" in self.command


def _docker(settings: Mapping[str, object]) -> dict[str, str]:
    return {"/etc/docker/daemon.json": json.dumps({**settings, "insecure-registries": [REGISTRY]})}


def _dockerd(*more: str) -> tuple[str, ...]:
    """Docker with its own bridge. It sets no firewall rules, since these belong to this machine's engine."""
    return (
        "dockerd", "--data-root={folder}/data", "--host=unix://{folder}/" + SOCKET, "--bridge={bridge}",
        "--iptables=false", "--ip6tables=false", "--exec-opt=native.cgroupdriver=cgroupfs",
        "--cgroup-parent={cgroup}", *more,
    )  # fmt: skip


def _rootless() -> tuple[str, ...]:
    settings = "--config-file=/etc/docker/daemon.json"
    return ("dockerd-rootless.sh", settings, "--data-root={folder}/data", "--host=unix://{folder}/" + SOCKET)


def _podman() -> tuple[str, ...]:
    places = ("--root={folder}/data", "--runroot=/run/podman-storage")
    return (
        "env",
        "TMPDIR={folder}/tmp",
        "podman",
        *places,
        "system",
        "service",
        "--time=0",
        "unix://{folder}/" + SOCKET,
    )


def _beside(service: str, *command: str) -> tuple[str, ...]:
    """A command, and a service that runs in the same system."""
    return ("sh", "-c", f'{service} & exec "$@"', "sh", *command)


# The user's command `docker system dial-stdio`, which the docker command starts over ssh, asks /run/docker.sock.
_SSHD = (
    "mkdir -p /run/sshd && /usr/sbin/sshd -D -e -p {port} -o ListenAddress=127.0.0.1 -h {folder}/ssh/key"
    " -o AuthorizedKeysFile={folder}/ssh/key.pub -o StrictModes=no"
)
_BUILDKITD = "{folder}/buildkitd --addr=tcp://127.0.0.1:{port} --root={folder}/data/buildkitd"

KINDS: Sequence[Kind] = (
    Kind(
        name="docker-28", about="Docker 28, containerd store", suite="forky",
        command=_dockerd(), files=_docker(_CONTAINERD),
    ),
    Kind(
        name="docker-classic", about="Docker 26, classic store (overlay2)", suite="trixie",
        command=_dockerd(), files=_docker(_CLASSIC),
    ),
    Kind(
        name="userns", about="Docker 26, classic store, with userns-remap", suite="trixie",
        command=_dockerd(), files=_docker({**_CLASSIC, "userns-remap": "builder"}),
    ),
    Kind(
        name="rootless", about="rootless Docker 26, containerd store", suite="trixie", rootless=True,
        command=_rootless(), files=_docker(_CONTAINERD),
    ),
    Kind(
        name="group", about="Docker 26, an ordinary user in the socket's group", suite="trixie", group=True,
        command=_dockerd("--group={user}"), files=_docker(_CONTAINERD),
    ),
    Kind(
        name="socket", about="Docker 26, torchbake in a container with the engine's socket", suite="trixie",
        inside=True, command=_dockerd(), files=_docker(_CONTAINERD),
    ),
    Kind(
        name="nested", about="Docker 26 in Docker, torchbake in another container", suite="trixie", inside=True,
        nested=True, command=_dockerd(), files=_docker(_CONTAINERD),
    ),
    Kind(
        name="podman-4", about="podman 4.3, root's socket", suite="bookworm",
        command=_podman(), files=_PODMAN_FILES,
    ),
    Kind(
        name="podman-5", about="podman 5.8, root's socket", suite="forky",
        command=_podman(), files=_PODMAN_FILES,
    ),
    Kind(
        name="tcp", about="Docker 26 over TCP, containerd store", suite="trixie",
        command=_dockerd("--host=tcp://127.0.0.1:{port}", "--tls=false"), files=_docker(_CONTAINERD),
        address="tcp://127.0.0.1:{port}",
    ),
    Kind(
        name="ssh", about="Docker 26 over ssh, containerd store", suite="trixie", ssh=True,
        command=_beside(_SSHD, *_dockerd("--host=unix:///run/docker.sock")), files=_docker(_CONTAINERD),
        address="ssh://root@127.0.0.1:{port}",
    ),
    Kind(
        name="buildkit", about="Docker 28 and a remote BuildKit", suite="forky", buildkit=True,
        command=_beside(_BUILDKITD, *_dockerd()), files=_docker(_CONTAINERD),
    ),
)  # fmt: skip

# Not started: no engine answers at its address. buildah builds, and the verdict comes from another machine.
NO_ENGINE = Kind(
    name="none", about="no engine, with buildah", suite="", command=(),
    works=("build", "publish", "validate", "reproduce"),
    address="unix:///nonexistent/docker.sock",
)  # fmt: skip
