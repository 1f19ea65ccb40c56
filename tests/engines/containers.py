"""Containers of an engine: one in which torchbake runs, and one that is an engine itself."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

IMAGE = "torchbake-engines:system"
_PORT = 2375


@contextmanager
def in_container(
    root: Path, folder: Path, variables: Mapping[str, str], *, nested: bool
) -> Iterator[tuple[Sequence[str], Mapping[str, str]]]:
    """Start a container of the system ``root``, with the engine's ``folder`` and socket.

    Yield the words that run a command there, and the variables of the engine. If ``nested``, that is another container,
    and the first one does not get a socket.
    """
    host = variables["DOCKER_HOST"]
    docker = ("docker", "--host", host)
    with subprocess.Popen(["tar", f"--directory={root}", "--create", "."], stdout=subprocess.PIPE) as archive:
        subprocess.run([*docker, "import", "-", IMAGE], stdin=archive.stdout, check=True, capture_output=True)
    words = [f"--volume={folder}:{folder}"]
    with ExitStack() as containers:
        if nested:
            settings, data = folder / "files/etc/docker", folder / "data/nested"
            inner = containers.enter_context(
                _container(
                    docker, "--privileged", f"--volume={settings}:/etc/docker", f"--volume={data}:/var/lib/docker",
                    IMAGE, "dockerd", f"--host=tcp://0.0.0.0:{_PORT}", "--tls=false",
                )
            )  # fmt: skip
            text = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
            address = f"tcp://{_run(*docker, 'inspect', '--format', text, inner)}:{_PORT}"
            variables, words = {**variables, "DOCKER_HOST": address}, [*words, f"--env=DOCKER_HOST={address}"]
        else:
            words += [f"--volume={host.removeprefix('unix://')}:/var/run/docker.sock"]
        name = containers.enter_context(_container(docker, *words, IMAGE, "sleep", "infinity"))
        yield (*docker, "exec", name), variables


@contextmanager
def _container(docker: tuple[str, ...], *words: str) -> Iterator[str]:
    """Start a container, and remove it."""
    name = _run(*docker, "run", "--detach", *words)
    try:
        yield name
    finally:
        _run(*docker, "rm", "--force", "--volumes", name)


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
