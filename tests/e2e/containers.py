"""The output of commands in containers."""

from collections.abc import Sequence
from typing import Any

import docker


def output_of(
    engine: docker.DockerClient, ref: str, command: Sequence[str], *, stderr: bool = False, **options: Any
) -> str:
    """Run a command in a container, and return its stdout, with `stderr` also its stderr, as they are.

    The log is read after the end: one that is followed may lack the words of a process that ended at once.

    Raises:
        AssertionError: the command failed; its stderr is the reason.
    """
    container = engine.containers.run(ref, list(command), detach=True, **options)
    try:
        code = container.wait(timeout=600)["StatusCode"]
        assert code == 0, f"exit code {code}: {container.logs(stdout=False).decode()}"
        return str(container.logs(stderr=stderr).decode())
    finally:
        container.remove(force=True)
