"""An engine that is reached by ssh: a socket on this machine, whose connections each go through an ssh of their own.

The SDK's own way needs paramiko, which reads other settings than ssh does. This is the way of the docker command.
Source: https://github.com/docker/cli/blob/master/cli/connhelper/connhelper.go
"""

import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from torchbake.errors import EngineError
from torchbake.ui.tool_environment import environment_of


@functools.cache
def relayed(host: str) -> str:
    """The address of a socket that leads to an ``ssh://`` address for as long as this process runs.

    Raises EngineError.
    """
    command = ssh_command(host)
    folder = Path(tempfile.mkdtemp(prefix="torchbake-"))  # only this user may enter it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "docker.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    threading.Thread(target=_relay, args=(server, command), name="engine by ssh", daemon=True).start()
    return f"unix://{path}"


def ssh_command(host: str) -> list[str]:
    """The ssh that joins its stdin and stdout to an engine. Raises EngineError."""
    if shutil.which("ssh") is None:
        raise EngineError(f"The ssh command is not installed, and {host} needs it.")
    try:
        url, port = urlsplit(host), urlsplit(host).port
    except ValueError as error:
        raise EngineError(f"{host} is no address of an engine: {error}.") from None
    if not url.hostname or url.password or url.query or url.fragment:
        raise EngineError(f"{host} is no address of an engine.", hint="Write ssh://USER@HOST, or ssh://USER@HOST:PORT.")
    options = [*(["-l", url.username] if url.username else []), *(["-p", str(port)] if port else [])]
    there = ["--host", f"unix://{url.path}"] if url.path.strip("/") else []
    return [
        *("ssh", "-o", "ConnectTimeout=30", "-T", *options, "--", _name_in(url.netloc)),
        *("docker", *there, "system", "dial-stdio"),
    ]


def _name_in(place: str) -> str:
    """The host of USER@HOST:PORT as it is written: ssh's settings tell upper and lower case apart."""
    host = place.rpartition("@")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _relay(server: socket.socket, command: list[str]) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            # Ctrl-C must not end the connection over which containers are removed then.
            both = connection.fileno()
            subprocess.Popen(
                command, env=environment_of("docker"), stdin=both, stdout=both, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
