"""The socket, folders and log of an engine that setup starts by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchbake.errors import UsageError

ENGINE_DIR = "TORCHBAKE_ENGINE_DIR"


@dataclass(frozen=True, kw_only=True)
class EnginePaths:
    """The paths of one engine. Its ``state`` is lost at a reboot, as the engine itself is."""

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
        """The list of the systemd units that setup started; the file exists only if systemd runs the engine."""
        return self.state / "units"

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    @classmethod
    def under(cls, folder: Path) -> "EnginePaths":
        """Return paths that are all below one folder."""
        socket, log = folder / "docker.sock", folder / "engine.log"
        return cls(socket=socket, data_root=folder / "data", state=folder / "run", log=log, own_folder=True)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "EnginePaths":
        """Return the default paths, or paths below TORCHBAKE_ENGINE_DIR. Raises UsageError."""
        folder = env.get(ENGINE_DIR)
        if not folder:
            return cls()
        if not Path(folder).is_absolute():
            raise UsageError(f"{ENGINE_DIR}={folder} is not an absolute path.", hint="Give a full path: /…")
        # The kernel cuts socket names at 107 bytes; the engine's containerd has the longest name.
        if len(f"{folder}/run/engine/containerd/containerd.sock.ttrpc".encode()) > 107:
            raise UsageError(f"{ENGINE_DIR}={folder} is too long for a socket.", hint="Use at most 60 bytes.")
        return cls.under(Path(folder))
