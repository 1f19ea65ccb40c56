"""A program for a host and the Python of its sandbox: unpacks an archive, runs a command, and removes the files.

It is sent as text, so it imports only the standard library. It reads a line of JSON (`Request` in
torchbake/hosts/ssh.py) and an archive from stdin. The end of stdin ends the command.
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from typing import Any

# Debian 12's Python 3.11.2 has no `filter=` (added in 3.11.4). The archive is torchbake's, so it is safe without.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def facts() -> dict[str, Any]:
    """Collect versions without importing torch, the address of the ssh connection, a free port, and GPUs."""
    sandbox = pathlib.Path(sys.executable).parent.parent
    record, torch = sandbox / "torchbake.json", importlib.util.find_spec("torch")
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    devices = [*pathlib.Path("/dev").glob("nvidia[0-9]*"), *pathlib.Path("/dev").glob("dxg")]  # dxg is the GPU in WSL
    return {
        "python": platform.python_version(),
        "torch": pathlib.Path(torch.origin).with_name("version.py").read_text() if torch and torch.origin else "",
        "record": json.loads(record.read_text()) if record.exists() else {},
        "address": (os.environ.get("SSH_CONNECTION", "").split() + [""] * 3)[2],
        "port": port,
        "gpus": sorted(map(str, devices)),
    }


def run(request: dict[str, Any], folder: str) -> int:
    """Run the command and return its exit code as a shell does."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    env = {**os.environ, **request["env"], "PATH": path, "TMPDIR": folder}
    child = subprocess.Popen(
        [sys.executable, *request["command"]], cwd=folder, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    )
    threading.Thread(target=end_with_connection, args=(child, request["grace"]), daemon=True).start()
    code = child.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def end_with_connection(child: "subprocess.Popen[bytes]", grace: float) -> None:
    while os.read(0, 4096):
        pass
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace)
    child.kill()


def main() -> int:
    stream = sys.stdin.buffer
    request = json.loads(stream.readline())
    if request["command"] is None:
        print(json.dumps(facts()))
        return 0
    with tempfile.TemporaryDirectory(prefix="torchbake-") as folder:
        with tarfile.open(fileobj=io.BytesIO(stream.read(request["size"]))) as archive:
            archive.extractall(folder, **_FILTER)
        return run(request, folder)


if __name__ == "__main__":
    sys.exit(main())
