"""The address of the container engine, resolved once in a process for the SDK and the docker command.

The two read different settings. So the address is resolved here by the rules of the docker command, and written into
this process's environment, which each docker command inherits.
Source: https://docs.docker.com/engine/manage-resources/contexts/
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torchbake.core.plain_text import last_line
from torchbake.core.tool_variables import inherited_variables
from torchbake.errors import EngineError
from torchbake.ui.command import Command

SOCKET = "/var/run/docker.sock"  # of the context `default`
Origin: TypeAlias = Literal["DOCKER_HOST", "DOCKER_CONTEXT", "current context", "default", "TORCHBAKE_ENGINE_DIR"]
_TLS = ("DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
_PLAIN = re.compile(r"unix://(/[^?#;@\s]+)")
_LOCAL = ("unix://", "npipe://")
_SECONDS = 20  # the limit of `docker context inspect`


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The files of a TLS connection, each None if missing. ``verify`` is whether the server's name is checked."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    verify: bool = True


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address of an engine, and the setting that names it. ``host`` has the form of DOCKER_HOST."""

    host: str
    origin: Origin
    context: str = "default"
    tls: Tls | None = None

    @property
    def text(self) -> str:
        """The address and its origin, for messages."""
        return f"{self.host} ({self.source})"

    @property
    def source(self) -> str:
        """The setting that names the address, for messages."""
        match self.origin:
            case "DOCKER_HOST" | "TORCHBAKE_ENGINE_DIR":
                return f"from {self.origin}"
            case "DOCKER_CONTEXT":
                return f"from DOCKER_CONTEXT: {self.context}"
            case "current context":
                return f"from docker's current context: {self.context}"
            case "default":
                return "docker's default"

    @property
    def local(self) -> bool:
        """True for a socket of this machine."""
        return self.host.startswith(_LOCAL)

    @property
    def socket(self) -> str | None:
        """The path of the Unix socket; None for any other kind of address."""
        match = _PLAIN.fullmatch(self.host)
        return match[1] if match else None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable by which a docker command uses this address, whatever its other settings are."""
        if self.origin in ("DOCKER_HOST", "TORCHBAKE_ENGINE_DIR"):
            return {"DOCKER_HOST": self.host}
        return {"DOCKER_CONTEXT": self.context}


DEFAULT = Address(host=f"unix://{SOCKET}", origin="default")


@functools.cache
def engine_address() -> Address:
    """Return this process's address, resolved at the first call, and set it for docker commands. Raises EngineError."""
    address = resolve(os.environ)
    os.environ.update(address.variables)
    for name in {"DOCKER_HOST", "DOCKER_CONTEXT"} - address.variables.keys():
        os.environ.pop(name, None)
    return address


def docker_command(*words: str) -> list[str]:
    """Return a docker command that uses this process's engine. Raises EngineError."""
    engine_address()
    return ["docker", *words]


def resolve(environ: Mapping[str, str], home: Path | None = None) -> Address:
    """Resolve the address by DOCKER_HOST, else DOCKER_CONTEXT, else docker's current context. Raises EngineError.

    The docker command reads the files of contexts.
    """
    if host := environ.get("DOCKER_HOST"):
        return Address(host=host, origin="DOCKER_HOST", tls=_tls_of(environ, home))
    with_tls = any(environ.get(name) for name in _TLS)  # docker's default is then another address
    context_name = environ.get("DOCKER_CONTEXT") or _current_context(environ, home)
    return DEFAULT if context_name == "default" and not with_tls else _of_context(environ)


def _current_context(environ: Mapping[str, str], home: Path | None) -> str | None:
    """Return the context in docker's settings; None if they cannot be read."""
    try:
        folder = Path(environ.get("DOCKER_CONFIG") or (home or Path.home()) / ".docker")
        return str(json.loads((folder / "config.json").read_bytes()).get("currentContext", "default"))
    except FileNotFoundError:
        return "default"
    except (OSError, ValueError, AttributeError, RuntimeError):  # RuntimeError: this user has no home
        return None


def _tls_of(environ: Mapping[str, str], home: Path | None) -> Tls | None:
    """Return the TLS settings for DOCKER_HOST. DOCKER_CERT_PATH alone does not enable TLS.

    Source: https://github.com/docker/cli/blob/master/cli/flags/options.go
    """
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    if not verify and not environ.get("DOCKER_TLS"):
        return None
    argument = environ.get("DOCKER_CERT_PATH") or environ.get("DOCKER_CONFIG")
    return replace(_tls_in(Path(argument) if argument else (home or Path.home()) / ".docker"), verify=verify)


def _tls_in(folder: Path) -> Tls:
    paths = {name: folder / name for name in ("ca.pem", "cert.pem", "key.pem") if (folder / name).exists()}
    return Tls(ca=paths.get("ca.pem"), certificate=paths.get("cert.pem"), key=paths.get("key.pem"))


def _of_context(environ: Mapping[str, str]) -> Address:
    """Return the address of docker's context. Raises EngineError."""
    matches = _inspect(environ)
    try:
        context, endpoint = str(matches["Name"]), matches["Endpoints"]["docker"]
        host, material = str(endpoint["Host"]), (matches.get("TLSMaterial") or {}).get("docker")
        folder = Path(str(matches["Storage"]["TLSPath"])) / "docker"
    except (LookupError, TypeError):
        raise EngineError("The docker context has no address of an engine.", hint="See: docker context ls") from None
    tls = replace(_tls_in(folder), verify=not endpoint.get("SkipTLSVerify")) if material else None
    if context == "default":  # docker's default with TLS has the settings of DOCKER_HOST
        return Address(host=host, origin="default", tls=_tls_of(environ, None))
    origin: Origin = "DOCKER_CONTEXT" if environ.get("DOCKER_CONTEXT") else "current context"
    return Address(host=host, origin=origin, context=context, tls=tls)


def _inspect(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the output of `docker context inspect` for docker's context. Raises EngineError."""
    context_name = environ.get("DOCKER_CONTEXT")
    where = f"{context_name!r}, which DOCKER_CONTEXT names" if context_name else "that `docker context use` chose"
    try:
        process = subprocess.run(
            ["docker", "context", "inspect"], env=inherited_variables("docker", environ), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
        (value,) = json.loads(process.stdout) if process.returncode == 0 else (None,)
    except FileNotFoundError:
        raise EngineError(
            f"Only the docker command can read the context {where}, and it is not installed.",
            hint=f"Run: {Command('setup')}; or name the engine's address by DOCKER_HOST.",
        ) from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"docker cannot read the context {where}: {error}") from None
    if isinstance(value, dict):
        return value
    reason = last_line(process.stderr)
    if re.search(r"not found|does not exist|no such", reason):
        raise EngineError(
            f"There is no docker context {where}.", hint="See: docker context ls; or unset DOCKER_CONTEXT."
        )
    raise EngineError(f"docker cannot read the context {where}: {reason}", hint="See: docker context ls")
