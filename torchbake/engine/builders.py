"""The builders of buildx."""

import re
import subprocess

from torchbake.core.plain_text import last_line
from torchbake.engine.address import docker_command
from torchbake.errors import EngineError
from torchbake.ui.tool_environment import environment_of


def builder_driver(builder: str | None) -> str:
    """The driver of a builder (``docker``, ``docker-container``, ``kubernetes``, ``remote``).

    Raises EngineError when there is no such builder.
    """
    command = docker_command("buildx", "inspect", *([builder] if builder else []))
    done = subprocess.run(command, env=environment_of("docker"), capture_output=True, text=True, check=False)
    match = re.search(r"^Driver:\s+(\S+)", done.stdout, flags=re.MULTILINE)
    if done.returncode or not match:
        reason = last_line(done.stderr)
        raise EngineError(f"No builder {builder or '(default)'!r}: {reason}", hint="See: docker buildx ls")
    return match[1]
