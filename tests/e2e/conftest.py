"""The real engine, and images built once for all tests by the command that users type."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.volumes import Volume

from tests.e2e.bare import Bare
from tests.e2e.forked import run_forked
from tests.e2e.once import once
from tests.e2e.owned import OURS, OWNER
from torchbake.engine.client import Engine
from torchbake.engine.leftovers import remove_leftovers
from torchbake.engine.sdk import sdk_client
from torchbake.matrix.project import load_project

ROOT = Path(__file__).resolve().parents[2]

# What a test file can be about: the toolkit's rooms, what runs inside images, and the ways in (nox, pip, pipelines).
ROOMS = (*sorted(path.parent.name for path in (ROOT / "torchbake").glob("*/__init__.py")), "entrypoints", "doors")

# Files by the time that they take, the longest first: where files run side by side, none is left for the end alone.
LONGEST = (
    "broken_images", "hosts", "hosts_door", "hosts_printed", "hosts_links",
    "reproduce", "payloads", "package", "ladder", "newcomer", "images", "publish", "ci", "own_bases",
    "examples", "dialects", "signature", "make_own", "extending", "derived", "mirrors",
    "test_command", "job", "chart", "layers", "validate", "base", "advice", "elastic", "launchers", "run", "cluster",
    "bench", "benchmark",
    "host",
)  # fmt: skip

CPU = "2.13.0-cpu-runtime-debian12"
DEVEL = "2.13.0-cpu-devel-debian12"
CUDA = "2.7.1-cuda12.6-cudnn9-runtime-debian12"
INIT = "volume-permissions"

Completed = subprocess.CompletedProcess[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--apart", action="store_true", help="a broken image for each check, in place of one for many")


def pytest_configure(config: pytest.Config) -> None:
    """`-m release` runs the tests mainly about the room torchbake/release; `-m long` those that `nox` leaves out."""
    config.addinivalue_line("markers", "long: minutes for a case that others nearly cover; a release asks for it")
    for room in ROOMS:
        config.addinivalue_line("markers", f"{room}: about {room}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first; the order in a file stays."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    if missing := [name for name in places if not (ROOT / f"tests/e2e/{name}.py").exists()]:
        raise pytest.UsageError(f"LONGEST names what is not there: {', '.join(missing)}")
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """What a killed run left holds memory, and the subnet that a job of now wants."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.closing(sdk_client(60)) as engine:
        remove_leftovers(Engine(engine), OWNER)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave none of the test projects' images behind, when the last of the processes that test has ended."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.closing(sdk_client(60)) as engine:
        for tag in tags_of(engine, "torchbake-test/"):
            engine.images.remove(tag, force=True)


def tags_of(engine: docker.DockerClient, prefix: str) -> list[str]:
    """The names of the engine's images that begin so."""
    return [tag for tag in Engine(engine).images() if tag.startswith(prefix)]


def container_names(engine: docker.DockerClient) -> set[str]:
    """The names of the engine's containers, those that have ended too.

    By one request: `containers.list` inspects each, and one that another test removes meanwhile is an error.
    """
    return {name.removeprefix("/") for each in engine.api.containers(all=True) for name in each["Names"] or ()}


@contextlib.contextmanager
def container_of(engine: docker.DockerClient, image: str) -> Iterator[str]:
    """A container of an image that is never started."""
    container = str(engine.api.create_container(image, ["true"])["Id"])
    try:
        yield container
    finally:
        engine.api.remove_container(container, force=True)


def torchbake(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 1500) -> Completed:
    """Run a command as a user would, and return how it ended."""
    return run_forked("torchbake", *arguments, cwd=ROOT, env={**os.environ, **(env or {})}, timeout=timeout)


def images_of(process: Completed) -> dict[str, dict[str, Any]]:
    """The result of `build --format json` by id."""
    assert process.stdout, process.stderr
    return {image["id"]: image for image in json.loads(process.stdout)["images"]}


def ref_of(name: str) -> str:
    """The reference of one image of this repository, which is built unless the engine has it."""
    process = torchbake("build", name, "--format", "json")
    assert process.returncode == 0, process.stderr
    return str(images_of(process)[name]["ref"])


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    client = sdk_client(60)
    client.ping()
    yield client
    client.close()


@pytest.fixture(scope="session")
def gateway(engine: docker.DockerClient) -> str:
    """The address that containers reach the host by."""
    address: str = engine.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    return address


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of all processes that test side by side."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def built(engine: docker.DockerClient, shared: Path) -> dict[str, dict[str, Any]]:
    """The three images that the tests look into, by id."""
    images = once(shared, "built", lambda: _build(engine, CUDA, CPU, INIT))
    return {image["id"]: image for image in images}


@pytest.fixture(scope="session")
def devel(engine: docker.DockerClient, built: dict[str, dict[str, Any]], shared: Path) -> dict[str, Any]:
    """The CPU's devel image, which is built after the three as it shares their wheels."""
    (image,) = once(shared, "devel", lambda: _build(engine, DEVEL))
    matches: dict[str, Any] = image
    return matches


def _build(engine: docker.DockerClient, *words: str) -> list[dict[str, Any]]:
    """What is said meanwhile is shown at once, since this takes minutes."""
    command = [sys.executable, "-m", "torchbake", "build", *words, "--format", "json"]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=2400, check=False)
    if process.returncode:
        free = shutil.disk_usage(engine.info()["DockerRootDir"]).free
        pytest.fail(f"build {' '.join(words)}: exit code {process.returncode}, with {free / 1e9:.1f} GB free")
    images: list[dict[str, Any]] = json.loads(process.stdout)["images"]
    return images


@pytest.fixture(scope="session")
def judged(built: dict[str, dict[str, Any]], shared: Path) -> dict[str, dict[str, Any]]:
    """What `test` says of the three images, by id: all their checks, which have passed."""
    assert set(built) == {CPU, CUDA, INIT}
    images: dict[str, dict[str, Any]] = once(shared, "judged", lambda: verdicts_of("--force", "--jobs", "1"))
    return images


def verdicts_of(*words: str) -> dict[str, dict[str, Any]]:
    """The three images' results of `test`, by id."""
    process = torchbake("test", CPU, CUDA, INIT, "--format", "json", *words)
    images = {image["name"]: image for image in json.loads(process.stdout)["images"]}
    wrong = [
        f"{name}: {check['id']}: {check['reason']}"
        for name, image in images.items()
        for check in image["checks"]
        if check["outcome"] == "failed"
    ]
    if process.returncode:
        pytest.fail("\n".join(wrong) + process.stderr[-2000:])
    return images


@pytest.fixture
def run(engine: docker.DockerClient) -> Callable[..., str]:
    """Run a command in a container and return its stdout; a failure shows what it said."""

    def run_in(ref: str, *command: str, **options: Any) -> str:
        environment = {"TORCHBAKE_BANNER": "0", **options.pop("environment", {})}
        output: bytes = engine.containers.run(ref, list(command), remove=True, environment=environment, **options)
        return output.decode().strip()

    return run_in


@pytest.fixture
def port() -> int:
    """One of this host's that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def volume(engine: docker.DockerClient) -> Iterator[Volume]:
    """An empty one, which has a name: whose those without are nothing tells."""
    product = engine.volumes.create(f"torchbake-test-{uuid.uuid4().hex[:8]}", labels=OURS)
    yield product
    product.remove(force=True)


@pytest.fixture(scope="session")
def bases(engine: docker.DockerClient) -> Path:
    """The folder of the real project's bases, with the one of the small matrices in it."""
    process = torchbake("base", CPU, INIT)
    assert process.returncode == 0, process.stderr
    return ROOT / ".torchbake/bases"


@pytest.fixture
def project(tmp_path: Path, bases: Path) -> Callable[..., Path]:
    """Write a small matrix of its own repository, with bases, locks and state shared with the real one."""

    def write(body: str, *, repository: str = "torchbake-test/pytorch") -> Path:
        head = f"""\
            repository: {repository}
            indexes: {json.dumps(load_project(ROOT / "matrix.yaml").matrix.indexes)}
            bases:
              debian12: {{image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}}
            flavors: {{runtime: {{}}}}
            tags:
              defaults: {{accelerator: cpu, base: debian12}}
              rolling: ["{{torch}}-{{family}}", latest]
            """
        path = tmp_path / "matrix.yaml"
        path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        (tmp_path / ".torchbake").mkdir(exist_ok=True)
        shared = tmp_path / ".torchbake/bases"
        if not shared.exists():
            shared.symlink_to(bases)
        return path

    return write


@pytest.fixture(scope="session")
def bare(shared: Path) -> Bare:
    """A shell with nox from pip and no uv; what runs nox there shares one environment of the toolkit."""
    bare = Bare(folder=shared / "bare")
    once(shared, "bare", bare.make)
    return bare


@pytest.fixture(scope="session")
def first(bare: Bare, shared: Path) -> Completed:
    """The first call of a command there, which installs what the commands need; others have it from then on."""
    state = once(shared, "first", lambda: vars(bare.nox("-s", "list", "--", "all", "--format", "json")))
    return subprocess.CompletedProcess(**state)
