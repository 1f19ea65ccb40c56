"""Facts about an image: its layers and the output of probes in containers. Each is gathered once, in parallel."""

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from testinfra.host import Host

from tests.images.containers import STAYING, ContainerError, Containers
from tests.images.layers import Layer, read_layers
from tests.images.originals import Originals, find_originals
from tests.images.subject import Subject
from torchbake.core.plain_text import last_line
from torchbake.engine.runner import ContainerEnd
from torchbake.lock.project_content import added_content
from torchbake.matrix.added_files import expected_files
from torchbake.render.installers import CONSTRAINTS

PROBES = Path(__file__).with_name("probe")
STOP_LIMIT = 15  # seconds that a container gets to end after SIGTERM
STOP_TARGET = 3.0  # seconds after SIGTERM, of a command without a handler
PART_LIMIT = 240  # and the probe of a part, beside the others
FS_GROUP = 2000
STRANGER = "54321:54321"  # an unknown uid, outside group 0.
# The options of a container for each way to run an image, and its writable folders. `home` and `workdir` are the
# user's.
WAYS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, ("workdir", "home", "/tmp")),
    "arbitrary": ({"user": "54321:0"}, ("workdir", "/tmp")),
    "fsgroup": (
        {"user": "1002:1002", "group_add": [FS_GROUP], "tmpfs": {"/data": f"uid=0,gid={FS_GROUP},mode=2775"}},
        ("/data", "/tmp"),
    ),
    "read-only": ({"read_only": True, "tmpfs": {"/tmp": "mode=1777"}}, ("/tmp",)),
    "hardened": ({"cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}, ("/tmp",)),
}
# Modules of packages that are trimmed; importing these themselves does not import them.
BELOW = {
    "cuda-bindings": ("cuda.bindings.driver", "cuda.bindings.nvrtc", "cuda.bindings.runtime"),
    "mpmath": ("mpmath.libmp",),
    "networkx": ("networkx.algorithms", "networkx.utils"),
    "numpy": ("numpy.f2py", "numpy.testing"),
    "sympy": ("sympy.testing",),
    "torch": ("torch.testing", "torch.utils.cpp_extension"),
    "triton": ("triton.profiler",),
}
_UNREAPED = """
(sleep 0.2 &)
(sleep 0.3 &)
sleep 1
for stat in /proc/[0-9]*/stat; do read -r line < "$stat" && case $line in *") Z "*) echo "${line%%)*})";; esac; done
true
"""
ENDINGS: dict[str, tuple[tuple[str, ...], int]] = {
    "a command that ends well": (("true",), 0),
    "exit 42": (("sh", "-c", "exit 42"), 42),
    "a file that cannot run": (("/etc/passwd",), 126),
    "a command that is not there": (("no-such-command",), 127),
    "a command ended by SIGKILL": (("sh", "-c", "kill -KILL $$"), 137),  # SIGTERM's 143 is process.signals'
}


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """How a container ended that was told to: its code, None if it did not; seconds from the signal."""

    code: int | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a command ended: its code, and seconds from its start."""

    code: int
    seconds: float


class Facts:
    """Facts by name, each gathered at most once. `get` raises the error that gathering a fact has raised."""

    def __init__(self, subject: Subject, client: docker.DockerClient, containers: Containers, cache: Path) -> None:
        self._subject, self._client, self._containers, self._cache = subject, client, containers, cache
        self._pool = ThreadPoolExecutor(max_workers=12)
        self._futures: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def start(self, names: Iterable[str]) -> None:
        """Gather these already, in this order as far as there are threads."""
        for name in names:
            self._future(name)

    def get(self, name: str) -> Any:
        return self._future(name).result()

    def close(self) -> None:
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _future(self, name: str) -> Future[Any]:
        with self._lock:
            if name not in self._futures:
                self._futures[name] = self._pool.submit(GATHERERS[name], self)
            return self._futures[name]

    def layers(self) -> list[Layer]:
        """Its layers, lowest first."""
        return read_layers(self._client, self._subject.digest, self._subject.diff_ids, self._cache)

    def tree(self) -> dict[str, Any]:
        matches: dict[str, Any] = ask(self._containers.host("root"), "tree")
        return matches

    def originals(self) -> Originals:
        """The hashes of NVIDIA's files as the locked wheels have them. Raises TorchbakeError."""
        row = self._subject.row
        return find_originals(row, self._closing) if row else {}

    def packages(self) -> dict[str, Any]:
        matches: dict[str, Any] = ask(self._containers.host(), "packages")
        return matches

    def processes(self) -> list[dict[str, Any]]:
        """List the processes of the long-running container, as its user: root may not read another user's program."""
        matches: list[dict[str, Any]] = ask(self._containers.host(), "processes", json.dumps(STAYING))
        return matches

    def endings(self) -> dict[str, Ending]:
        """How commands end that the image's ENTRYPOINT starts."""
        entrypoint = self._subject.config.get("Entrypoint") or []
        commands = {name: command for name, (command, _) in ENDINGS.items()}
        value = ask(self._containers.host(), "endings", json.dumps(entrypoint), json.dumps(commands))
        return {name: Ending(code=one["code"], seconds=one["seconds"]) for name, one in value.items()}

    def environments(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the variables of commands that `docker exec` starts, as the image's own user and as an unknown uid.

        The containers have no entrypoint, but the same environment. The long-running container would already have a
        home of the unknown user.
        """
        script, entrypoint = (PROBES / "environments.py").read_text(), self._subject.config.get("Entrypoint") or []
        matches = {}
        for who, user in {"as its own user": None, "as an unknown uid": STRANGER}.items():
            words = ("-I", "-S", "-c", script, json.dumps(entrypoint))
            matches[who] = _answer(self._containers.run(*words, entrypoint=["python3"], user=user), "environments", who)
        return matches

    def trust(self) -> dict[str, Any]:
        """Return the certificates that Python trusts, and the certificates that were added to the system's."""
        matches: dict[str, Any] = ask(self._containers.host(), "trust")
        return matches

    def constraints(self) -> str | None:
        """Return the text of the constraints file, or None if the image has no such file."""
        state = self._containers.host().run(f"cat {CONSTRAINTS}")
        return None if state.rc else str(state.stdout)

    def contents(self) -> dict[str, Any]:
        """Return the owner, mode and content of the files that the row adds."""
        row = self._subject.row
        paths = expected_files(row.project.root, added_content(row.spec, row.lock)) if row else {}
        matches: dict[str, Any] = ask(self._containers.host("root"), "contents", json.dumps(list(paths)))
        return matches

    def linking(self) -> dict[str, Any]:
        matches: dict[str, Any] = ask(self._containers.host(), "linking")
        return matches

    def imports(self) -> dict[str, Any]:
        """Import every module of every package except NVIDIA's, which have hardly any, and return the results.

        The probe runs through the image's entrypoint, which sets how torch reads a stack.
        """
        packages = [one for one in self.get("packages")["packages"] if not one["name"].startswith("nvidia")]
        below = [module for one in packages for module in BELOW.get(one["name"], ())]
        modules = sorted({module for one in packages for module in one["modules"]} | set(below))
        matches: dict[str, Any] = _answer(self._probe("imports", json.dumps(modules)), "imports", "inside")
        return matches

    def part(self, name: str) -> list[str]:
        """Return the problems of a part."""
        end = self._probe("parts", name)
        if end.code:
            return [f"exit {end.code}: {end.last_words}"]
        matches: list[str] = json.loads(end.stdout)
        return matches

    def _probe(self, name: str, argument: str) -> ContainerEnd:
        """Run a probe in a new container, because it may write into temporary folders."""
        script = (PROBES / f"{name}.py").read_text()
        return self._containers.run("python3", "-c", script, argument, timeout=PART_LIMIT)

    def ways(self) -> dict[str, ContainerEnd]:
        """Run the image in each way; stdout is the output of probe/user.py."""
        script = (PROBES / "user.py").read_text()

        def run(way: str) -> ContainerEnd:
            options, names = WAYS[way]
            options = {**options, **self._group_volume()} if way == "fsgroup" and self._containers.podman else options
            folders = [getattr(self._subject.user, name, name) for name in names]
            return self._containers.run("python3", "-c", script, json.dumps(folders), **options)

        return _side_by_side(run, WAYS)

    def _group_volume(self) -> dict[str, Any]:
        """A volume of the group, for podman, whose tmpfs takes no group."""
        mount = {str(self._containers.volume().name): {"bind": "/data", "mode": "rw"}}
        # Podman gives an empty volume to the user of the next container.
        script = f"touch /data/kept && chgrp {FS_GROUP} /data && chmod 2775 /data"
        end = self._containers.run("sh", "-c", script, user="0:0", volumes=mount)
        if end.code:
            raise ContainerError(f"no volume can be given to a group: {end.last_words}")
        return {"tmpfs": {}, "volumes": mount}

    def zombies(self) -> ContainerEnd:
        """Run a command that leaves orphaned processes; stdout lists the zombies among them."""
        return self._containers.run("sh", "-c", _UNREAPED)

    def stopped(self) -> Stopped:
        """How a command ends that handles no signal, when the container is told to stop: the fastest of three ends.

        An end that is slow may be the fault of a busy host, so it is tried again.
        """
        ends = [self._stop()]
        while ends[-1].code == 143 and ends[-1].seconds >= STOP_TARGET * self._containers.patience and len(ends) < 3:
            ends.append(self._stop())
        return min(ends, key=lambda end: end.seconds)

    def _stop(self) -> Stopped:
        with self._containers.started("sh", "-c", "echo ready; exec sleep 600") as container:
            for _ in range(200 * self._containers.patience):
                if b"ready" in container.logs(stdout=True, stderr=False):
                    break
                time.sleep(0.05)
            else:
                raise ContainerError("the command did not start within 10 s")
            time.sleep(0.1)  # from the shell's word to its exec
            start = time.monotonic()
            container.kill("SIGTERM")
            try:
                code: int | None = self._containers.end(container, STOP_LIMIT).code
            except ContainerError:
                code = None
            return Stopped(code=code, seconds=time.monotonic() - start)


GATHERERS: dict[str, Callable[[Facts], Any]] = {
    "originals": Facts.originals,
    "layers": Facts.layers,
    "ways": Facts.ways,
    "tree": Facts.tree,
    "processes": Facts.processes,
    "endings": Facts.endings,
    "environments": Facts.environments,
    "packages": Facts.packages,
    "imports": Facts.imports,
    "linking": Facts.linking,
    "trust": Facts.trust,
    "contents": Facts.contents,
    "constraints": Facts.constraints,
    "stopped": Facts.stopped,
    "zombies": Facts.zombies,
    "traces": lambda facts: facts.get("imports")["traces"],
    "triton": lambda facts: facts.part("triton"),
    "nvidia": lambda facts: facts.part("nvidia"),
}


def ask(host: Host, probe: str, *arguments: str) -> Any:
    """Run a probe inside the long-running container. Raises ContainerError with the last line of its stderr."""
    script = (PROBES / f"{probe}.py").read_text()
    state = host.run(shlex.join(["python3", "-c", script, *arguments]))
    if state.rc:
        last = last_line(state.stderr, 300)
        raise ContainerError(f"the probe {probe} cannot run inside (exit {state.rc}): {last}")
    return json.loads(state.stdout)


def _answer(end: ContainerEnd, probe: str, how: str) -> Any:
    """Parse a probe's output from its own container. Raises ContainerError with its last words."""
    if end.code:
        raise ContainerError(f"the probe {probe} cannot run {how} (exit {end.code}): {end.last_words}")
    return json.loads(end.stdout)


def _side_by_side(run: Callable[[str], ContainerEnd], names: Mapping[str, object]) -> dict[str, ContainerEnd]:
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))
