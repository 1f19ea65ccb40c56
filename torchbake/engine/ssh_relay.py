"""Connect to an engine by ssh: a socket on this machine that starts one ssh for each connection.

The SDK would need paramiko, which reads other settings than ssh. The docker command uses ssh in the same manner.
Source: https://github.com/docker/cli/blob/master/cli/connhelper/connhelper.go
"""

import atexit
import contextlib
import functools
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from torchbake.core.plain_text import last_line
from torchbake.errors import EngineError
from torchbake.ui.tool_environment import environment_of

_SOCKET, _ERRORS = "docker.sock", "errors"
_LONGEST = 300  # characters of a message


@functools.cache
def relay(host: str) -> str:
    """Return a socket that relays to an ``ssh://`` address while this process runs. Raises EngineError."""
    command = ssh_command(host)
    folder = Path(tempfile.mkdtemp(prefix="torchbake-"))  # only this user may enter it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path, errors = folder / _SOCKET, folder / _ERRORS
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    threading.Thread(target=_relay, args=(server, command, errors), name="engine by ssh", daemon=True).start()
    return f"unix://{path}"


def ssh_command(host: str) -> list[str]:
    """Return the ssh command that connects its stdin and stdout to an engine. Raises EngineError."""
    if shutil.which("ssh") is None:
        raise EngineError(f"The ssh command is not installed, and {host} needs it.")
    try:
        url, port = urlsplit(host), urlsplit(host).port
    except ValueError as error:
        raise EngineError(f"{host} is no address of an engine: {error}.") from None
    if not url.hostname or url.password or url.query or url.fragment:
        raise EngineError(f"{host} is no address of an engine.", hint="Write ssh://USER@HOST, or ssh://USER@HOST:PORT.")
    # Not url.hostname, which is in lower case: names in ssh's settings are case-sensitive.
    name = url.netloc.rpartition("@")[2]
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    options = [*(["-l", url.username] if url.username else []), *(["-p", str(port)] if port else [])]
    remote = ["--host", f"unix://{url.path}"] if url.path.strip("/") else []
    return [
        *("ssh", "-o", "ConnectTimeout=30", "-T", *options, "--", name),
        *("docker", *remote, "system", "dial-stdio"),
    ]


def last_message(address: str) -> str:
    """Return the last message of ssh for an address of `relay`; empty if there is none, or for any other address."""
    path = Path(address.removeprefix("unix://")).with_name(_ERRORS)
    with contextlib.suppress(OSError):
        return last_line(path.read_text(errors="replace"), _LONGEST, nothing="")
    return ""


def _relay(server: socket.socket, command: list[str], errors: Path) -> None:
    while True:
        connection, _ = server.accept()
        with connection, errors.open("ab") as stderr:
            # In a new session: after Ctrl-C the connection is still needed to remove containers.
            both = connection.fileno()
            subprocess.Popen(
                command, env=environment_of("docker"), stdin=both, stdout=both, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip
