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
from functools import partial
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.volumes import Volume

from tests.e2e.bare import Bare
from tests.e2e.containers import output_of
from tests.e2e.forked import run_forked
from tests.e2e.galaxy import install_collection
from tests.e2e.once import once
from tests.e2e.owned import OURS, OWNER
from torchbake.engine.client import Engine
from torchbake.engine.leftovers import remove_leftovers
from torchbake.engine.sdk import sdk_client
from torchbake.matrix.project import load_project

ROOT = Path(__file__).resolve().parents[2]

# The markers of test files: the toolkit's packages, the programs inside images, and the front doors (nox, pip, CI).
ROOMS = (*sorted(path.parent.name for path in (ROOT / "torchbake").glob("*/__init__.py")), "entrypoints", "doors")

# Files by duration, the longest first: when files run in parallel, no long file is left to run alone at the end.
LONGEST = (
    "broken_images", "layers", "hosts", "payloads", "images", "hosts_door", "debian_update",
    "own_bases", "publish", "mirrors", "ci", "derived_projects", "project_images", "front_door",
    "package", "bench", "ladder", "signature", "reproduce", "run", "layers_from", "extending", "validate", "setup",
    "base", "chart", "job", "verdicts", "derived", "test_command", "dialects", "examples", "make_own", "cluster",
    "diff", "code", "companions", "elastic", "benchmark", "host",
)  # fmt: skip

CPU = "2.13.0-cpu-runtime-debian12"
DEVEL = "2.13.0-cpu-devel-debian12"
CUDA = "2.7.1-cuda12.6-cudnn9-runtime-debian12"
INIT = "volume-permissions"

Completed = subprocess.CompletedProcess[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--apart", action="store_true", help="a broken image for each check, in place of one for many")


def pytest_configure(config: pytest.Config) -> None:
    declare_marks(config)


def declare_marks(config: pytest.Config) -> None:
    """Add markers: `-m release` selects the tests of torchbake/release, `-m long` the tests that `nox` leaves out."""
    config.addinivalue_line(
        "markers",
        "long: minutes for a case that others nearly cover; CI runs it every night, and a release asks for it",
    )
    config.addinivalue_line("markers", "cuda: looks into the CUDA image; long, unless this host has a GPU")
    for room in ROOMS:
        config.addinivalue_line("markers", f"{room}: about {room}")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of the CUDA image, and sort the longest files first; keep the order of the tests within a file."""
    if not Path("/dev/nvidia0").exists():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker("long")
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    if missing := [name for name in places if not (ROOT / f"tests/e2e/{name}.py").exists()]:
        raise pytest.UsageError(f"LONGEST names what is not there: {', '.join(missing)}")
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remove the objects of killed runs: they hold memory, and a subnet that a job of this run needs."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.closing(sdk_client(60)) as engine:
        remove_leftovers(Engine(engine), OWNER)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the test projects' images when the last worker process has ended."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.closing(sdk_client(60)) as engine:
        for tag in tags_of(engine, "torchbake-test/"):
            engine.images.remove(tag, force=True)


def tags_of(engine: docker.DockerClient, prefix: str) -> list[str]:
    """Return the engine's tags that begin with ``prefix``."""
    return [tag for tag in Engine(engine).images() if tag.startswith(prefix)]


def container_names(engine: docker.DockerClient) -> set[str]:
    """Return the names of the engine's containers, including stopped ones.

    One request: `containers.list` inspects each container, and fails if another test removes one at the same time.
    """
    return {name.removeprefix("/") for each in engine.api.containers(all=True) for name in each["Names"] or ()}


@contextlib.contextmanager
def container_of(engine: docker.DockerClient, image: str) -> Iterator[str]:
    """Create a container that is never started, and remove it at the end."""
    container = str(engine.api.create_container(image, ["true"])["Id"])
    try:
        yield container
    finally:
        engine.api.remove_container(container, force=True)


def on_cuda(*values: object) -> Any:
    """Return a parameter set of the CUDA image."""
    return pytest.param(CUDA, *values, marks=pytest.mark.cuda)


def torchbake(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 1500) -> Completed:
    """Run a command as a user would, and return how it ended."""
    return run_forked("torchbake", *arguments, cwd=ROOT, env={**os.environ, **(env or {})}, timeout=timeout)


def images_of(process: Completed) -> dict[str, dict[str, Any]]:
    """Return the images in the output of `build --format json`, by id."""
    assert process.stdout, process.stderr
    return {image["id"]: image for image in json.loads(process.stdout)["images"]}


def ref_of(name: str) -> str:
    """Return the reference of one image of this repository; build it unless the engine has it."""
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
    """The address of the host as seen from containers."""
    address: str = engine.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    return address


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder shared by all parallel test processes."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest, engine: docker.DockerClient, shared: Path) -> dict[str, dict[str, Any]]:
    """The images that the tests look into, by id; the CUDA image only for selected tests of it."""
    names = [CUDA] if any(item.get_closest_marker("cuda") for item in request.session.items) else []
    images = once(shared, "built", lambda: _build(engine, *names, CPU, INIT))
    return {image["id"]: image for image in images}


@pytest.fixture(scope="session")
def devel(engine: docker.DockerClient, built: dict[str, dict[str, Any]], shared: Path) -> dict[str, Any]:
    """The CPU's devel image, built after the images of ``built`` because it shares their wheels."""
    (image,) = once(shared, "devel", lambda: _build(engine, DEVEL))
    matches: dict[str, Any] = image
    return matches


def _build(engine: docker.DockerClient, *words: str) -> list[dict[str, Any]]:
    """Build images and return their JSON results; stderr is shown live, because a build takes minutes."""
    command = [sys.executable, "-m", "torchbake", "build", *words, "--format", "json"]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=2400, check=False)
    if process.returncode:
        free = shutil.disk_usage(engine.info()["DockerRootDir"]).free
        pytest.fail(f"build {' '.join(words)}: exit code {process.returncode}, with {free / 1e9:.1f} GB free")
    images: list[dict[str, Any]] = json.loads(process.stdout)["images"]
    return images


@pytest.fixture(scope="session")
def judged(built: dict[str, dict[str, Any]], shared: Path) -> dict[str, dict[str, Any]]:
    """The results of `test` for these images, by id; all their checks have passed."""
    images: dict[str, dict[str, Any]] = once(shared, "judged", lambda: verdicts_of(*built, "--force", "--jobs", "1"))
    return images


def verdicts_of(*words: str) -> dict[str, dict[str, Any]]:
    """Run `test` on images, and return their results by id."""
    process = torchbake("test", "--format", "json", *words)
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
    """Run a command in a container and return its stdout, stripped; a failure shows its stderr."""

    def run_in(ref: str, *command: str, **options: Any) -> str:
        return output_of(engine, ref, command, **options).strip()

    return run_in


@pytest.fixture
def port() -> int:
    """A port of this host that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def volume(engine: docker.DockerClient) -> Iterator[Volume]:
    """An empty volume with a name, because nothing shows who owns an anonymous volume."""
    product = engine.volumes.create(f"torchbake-test-{uuid.uuid4().hex[:8]}", labels=OURS)
    yield product
    product.remove(force=True)


@pytest.fixture(scope="session")
def bases(engine: docker.DockerClient) -> Path:
    """The folder of the real project's bases, which includes the base of the small matrices."""
    process = torchbake("base", CPU, INIT)
    assert process.returncode == 0, process.stderr
    return ROOT / ".torchbake/bases"


@pytest.fixture
def project(tmp_path: Path, bases: Path) -> Callable[..., Path]:
    """Write a small matrix for a separate repository; it shares the bases of the real project.

    Its images have no compiler, whose packages take seconds of each build.
    """

    return partial(small_project, tmp_path, bases)


def small_project(folder: Path, bases: Path, body: str, *, repository: str = "torchbake-test/pytorch") -> Path:
    """Write the matrix of `project` into a folder, and return its path."""
    head = f"""\
        repository: {repository}
        indexes: {json.dumps(load_project(ROOT / "matrix.yaml").matrix.indexes)}
        bases:
          debian12: {{image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}}
        defaults: {{compiler: false}}
        flavors: {{runtime: {{}}}}
        tags:
          defaults: {{accelerator: cpu, base: debian12}}
          rolling: ["{{torch}}-{{family}}", latest]
        """
    path = folder / "matrix.yaml"
    path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    (folder / ".torchbake").mkdir(exist_ok=True)
    shared = folder / ".torchbake/bases"
    if not shared.exists():
        shared.symlink_to(bases)
    return path


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


@pytest.fixture(scope="session")
def collection(shared: Path) -> Path:
    """The folder below which the collection is installed."""
    folder = shared / "collections"
    once(shared, "collection", lambda: install_collection(folder))
    return folder
