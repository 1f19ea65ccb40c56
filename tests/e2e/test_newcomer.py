"""The README's first commands, to the letter, on a bare system that has only the packages that the README names.

Debian uses this host's engine; Ubuntu, whose docker package includes an engine, runs a second one. The systems get this
host's certificates, proxies and package mirrors, but not its pip settings and caches. The tests clone `path` instead of
the published URL. Only long tests build the CPU image, as the README does: the others build the image without torch.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.e2e.bare import copy_tree
from tests.e2e.conftest import INIT
from tests.e2e.handed import SOCKET, environment, options, package_mirrors
from tests.e2e.roots import UBUNTU, bare_root
from tests.unit.readme import FIRST, PACKAGES, THEN, URL

PREFIX = "torchbake-test/newcomer/"
BUILT = (f"{PREFIX}pytorch", f"{PREFIX}{INIT}")

pytestmark = [
    pytest.mark.doors,
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


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The image that the commands build and run; ``pattern`` is the last line of the output."""

    build: str
    run: str
    pattern: str


README = Ending(build="-- cpu runtime", run=THEN, pattern=r"\d+\.\d+\.\d+\+cpu")
# The commands until the build are the README's. This image needs no wheel, which saves minutes.
INIT_IMAGE = Ending(
    build=f"-- {INIT}",
    run=f"docker run --rm torchbake/{INIT}:1.0.0 --help >/dev/null && echo ended",
    pattern="ended",
)


# Every run has the oldest Python, 3.11.2 of Debian 12, and a release has the CPU image on three systems.
@pytest.mark.parametrize(
    ("suite", "ending"),
    [
        pytest.param("bookworm", INIT_IMAGE, id="bookworm-init"),
        *(pytest.param(each, README, marks=pytest.mark.long, id=each) for each in ("bookworm", "trixie", UBUNTU)),
    ],
)
def test_the_first_commands_of_the_readme_end_with_an_image(
    suite: str, ending: Ending, path: Path, mirror: dict[str, str], engine: docker.DockerClient
) -> None:
    for image in (image for name in BUILT for image in engine.images.list(name)):
        engine.images.remove(str(image.id), force=True)
    assert README.build in FIRST
    instead = {"COUNT": "1", "KEY_0": "url.file:///published.insteadOf", "VALUE_0": URL}
    commands = FIRST.replace(README.build, ending.build) + ending.run.replace("torchbake/", PREFIX)
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
    assert re.search(rf"(-cpu-runtime-\S+|{INIT}) +built ", process.stdout), process.stdout
    assert re.fullmatch(ending.pattern, process.stdout.splitlines()[-1])
