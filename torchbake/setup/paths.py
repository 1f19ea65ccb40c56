"""Where an engine that setup starts by hand listens, stores and logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchbake.errors import UsageError

ENGINE_DIR = "TORCHBAKE_ENGINE_DIR"


@dataclass(frozen=True, kw_only=True)
class EnginePaths:
    """One engine's socket, data, state (gone at a reboot, as the engine is) and log."""

    socket: Path = Path("/var/run/docker.sock")
    data_root: Path = Path("/var/lib/torchbake/engine")
    state: Path = Path("/run/torchbake")
    log: Path = Path("/var/log/torchbake/engine.log")
    own_folder: bool = False

    @property
    def exec_root(self) -> Path:
        return self.state / "engine"

    @property
    def pidfile(self) -> Path:
        return self.state / "engine.pid"

    @property
    def config(self) -> Path:
        return self.state / "engine.json"

    @property
    def units(self) -> Path:
        """The list of systemd units that setup started, where it started the engine that way."""
        return self.state / "units"

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    @classmethod
    def under(cls, folder: Path) -> "EnginePaths":
        """Everything below one folder, the socket included."""
        return cls(
            socket=folder / "docker.sock",
            data_root=folder / "data",
            state=folder / "run",
            log=folder / "engine.log",
            own_folder=True,
        )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "EnginePaths":
        """The usual places, or those under TORCHBAKE_ENGINE_DIR. Raises UsageError."""
        folder = env.get(ENGINE_DIR)
        if not folder:
            return cls()
        if not Path(folder).is_absolute():
            raise UsageError(f"{ENGINE_DIR}={folder} is not an absolute path.", hint="Give a full path: /…")
        # The kernel cuts socket names at 107 bytes; the longest one is that of the engine's own containerd.
        if len(f"{folder}/run/engine/containerd/containerd.sock.ttrpc".encode()) > 107:
            raise UsageError(f"{ENGINE_DIR}={folder} is too long for a socket.", hint="Use at most 60 bytes.")
        return cls.under(Path(folder))
