"""A second engine without images, as on a new machine."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import command

_START = 30  # seconds, at most


@contextmanager
def second_engine(*, containerd_store: bool) -> Iterator[str]:
    """Start an engine without images, and yield its address; at the end it is removed with its images.

    Its containers have no network: they need ``--network none``. Only root can start it.
    """
    with tempfile.TemporaryDirectory(prefix="tb-") as folder:
        settings = Path(folder, "engine.json")
        settings.write_text(json.dumps({"features": {"containerd-snapshotter": containerd_store}}))
        socket = f"unix://{folder}/s"
        places = [f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid"]
        # An engine without a bridge setting would remove the bridge of the first engine.
        network = ["--bridge=docker0", "--iptables=false"]
        with Path(folder, "log").open("wb") as log, subprocess.Popen(
            ["dockerd", f"--config-file={settings}", f"--host={socket}", *network, *places],
            stdout=log, stderr=log, start_new_session=True,
        ) as engine:  # fmt: skip
            try:
                _wait(socket)
                yield socket
            finally:
                engine.terminate()


def _wait(socket: str) -> None:
    end = time.monotonic() + _START
    while time.monotonic() < end:
        if not subprocess.run(["docker", "-H", socket, "info"], capture_output=True, check=False).returncode:
            return
        time.sleep(0.2)
    command("docker", "-H", socket, "info")  # prints the reason, and ends the benchmark
