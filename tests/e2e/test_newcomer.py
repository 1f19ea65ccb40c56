"""The README's first commands, to the letter, on a bare system that has only the packages that the README names.

Debian uses this host's engine; Ubuntu, whose docker package includes an engine, runs a second one. The systems get this
host's certificates, proxies and package mirrors, but not its pip settings and caches. The tests clone `path` instead of
the published URL.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.e2e.bare import copy_tree
from tests.e2e.handed import SOCKET, environment, options, package_mirrors
from tests.e2e.roots import UBUNTU, bare_root
from tests.unit.readme import FIRST, PACKAGES, THEN, URL

PREFIX = "torchbake-test/newcomer/"

pytestmark = [
    pytest.mark.doors,
    pytest.mark.long,  # test_front_door.py has nox by pip alone, test_setup.py an engine that setup starts
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare system; apt has it"),
    pytest.mark.skipif(not SOCKET.exists(), reason=f"not run: the bare Debian is given the engine at {SOCKET}"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replacement of the published repository: the working tree as a commit.

    Its images have other names, as other programs use the same engine.
    """
    tree = copy_tree(tmp_path_factory.mktemp("published") / "torchbake")
    matrix = tree / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("repository: torchbake/", f"repository: {PREFIX}"))
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "-"),
    ):
        subprocess.run(["git", "-C", tree, *words], check=True)
    return tree


@pytest.fixture(scope="module")
def mirror(gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with package_mirrors(gateway, tmp_path_factory.mktemp("simple")) as variables:
        yield variables


def engine_of(suite: str) -> list[str]:
    """Options for `docker run`: this host's engine, or room for one that setup installs and starts."""
    if suite == UBUNTU:
        return ["--volume", "/var/lib/torchbake"]
    return ["--network", "host", "--volume", f"{SOCKET}:/var/run/docker.sock"]


@pytest.mark.parametrize("suite", ["bookworm", "trixie", UBUNTU])
def test_the_first_commands_of_the_readme_end_with_an_image(
    suite: str, path: Path, mirror: dict[str, str], engine: docker.DockerClient
) -> None:
    for image in engine.images.list(f"{PREFIX}pytorch"):
        engine.images.remove(str(image.id), force=True)
    instead = {"COUNT": "1", "KEY_0": "url.file:///published.insteadOf", "VALUE_0": URL}
    commands = FIRST + THEN.replace("torchbake/", PREFIX)
    name = f"torchbake-test-newcomer-{os.getpid()}"
    try:
        process = subprocess.run(
            [
                *("docker", "run", "--rm", "--name", name, "--privileged", "--workdir", "/root", *engine_of(suite)),
                *("--volume", f"{path}:/published:ro"),
                *environment({f"GIT_CONFIG_{name}": value for name, value in instead.items()}),
                *(*options(mirror), bare_root(suite, PACKAGES), "bash", "-ec", commands),
            ],
            capture_output=True, text=True, timeout=1500, check=False,
        )  # fmt: skip
    finally:
        subprocess.run(["docker", "rm", "-fv", name], capture_output=True, check=False)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-8000:]
    assert re.search(r"-cpu-runtime-\S+ +built ", process.stdout), process.stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\+cpu", process.stdout.splitlines()[-1])
