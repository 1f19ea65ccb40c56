"""An engine of one's own that is killed and started again: Docker 26 with the containerd store."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.engines.kinds import KINDS, Kind
from tests.engines.running import Running, running

_NAMES = {kind.name: kind for kind in KINDS}
KIND: Kind = replace(
    _NAMES["docker-28"], name="docker-26", about="Docker 26, containerd store", suite=_NAMES["docker-classic"].suite
)
_KNOWN_LEASES = ("containerd.io/gc.expire", "containerd.io/gc.flat", "-variants ")
_OF_CONTAINER = re.compile(r"[0-9a-f]{64} ")
_CONTAINERD = "run/docker/containerd/containerd.sock"


class KilledEngine:
    """The engine whose data are in ``folder``."""

    def __init__(self, folder: Path, tools: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._tools = folder, tools
        self._holder = contextlib.ExitStack()
        self._running: Running | None = None

    def __enter__(self) -> "KilledEngine":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.close()

    @property
    def variables(self) -> Mapping[str, str]:
        assert self._running
        return self._running.variables

    def start(self) -> None:
        """Start the engine on the data of the last one, and wait until it answers."""
        self._holder.close()
        self._running = self._holder.enter_context(running(KIND, self.folder, self._tools, "127.0.0.1:5000"))

    def kill(self) -> None:
        """Kill dockerd, containerd and all containers at once."""
        assert self._running
        os.kill(self._running.process, signal.SIGKILL)

    def names(self) -> dict[str, str]:
        """Return the digest of each image by its tags, and of one without a tag by its name and that digest.

        Docker 26 sometimes lists an image of a pull that was killed without its other column for a digest.
        """
        rows = self.docker("images", "--all", "--digests", "--no-trunc", "--format", "json").stdout.splitlines()
        images = [json.loads(line) for line in rows]
        return {f"{one['Repository']}:{one['Tag']}@{one['ID']}": one["ID"] for one in images}

    def tags(self, prefix: str) -> dict[str, str]:
        """Return the digest of each image by those of its tags that begin so."""
        tags = {name.partition("@")[0]: digest for name, digest in self.names().items()}
        return {name: digest for name, digest in tags.items() if name.startswith(prefix) and "<none>" not in name}

    def containers(self) -> list[str]:
        return self.docker("ps", "--all", "--quiet").stdout.split()

    def leases(self) -> list[str]:
        """List the leases that neither expire, as those of a killed pull, nor belong to records of the build cache.

        The lease of a container is left out: Docker keeps it if it is killed while it creates or removes one.
        """
        lines = self._ctr("leases", "ls").splitlines()[1:]
        others = [line for line in lines if not any(word in line for word in _KNOWN_LEASES)]
        return [line for line in others if not _OF_CONTAINER.match(line)]

    def ingests(self) -> int:
        """Return the number of unfinished downloads."""
        return len(self._ctr("content", "active").splitlines()[1:])

    def docker(self, *words: str) -> "subprocess.CompletedProcess[str]":
        env = {**os.environ, **self.variables}
        return subprocess.run(["docker", *words], env=env, capture_output=True, text=True, timeout=300, check=False)

    def _ctr(self, *words: str) -> str:
        assert self._running
        address = f"/proc/{self._running.process}/root/{_CONTAINERD}"
        command = ["ctr", "--address", address, "--namespace", "moby", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
