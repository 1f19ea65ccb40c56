"""The base of the unit tests: small matrices and locks as values, and an error for every impure action.

These tests run in seconds, without an engine, a network or other processes: an attempt is an error. The fixtures
`pythons` and `own_processes` are exceptions: with them, a test compares processes, or runs Python and uv themselves.
"""

import gc
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import jinja2
import pytest
import yaml
from hypothesis import settings

from torchbake.core.paths import TOOLKIT
from torchbake.engine import address
from torchbake.lock.image_lock import inputs_of
from torchbake.lock.lockfile import Lock, Pin, assign_layers
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.expand import Expansion, expand
from torchbake.matrix.model import Matrix, validate_matrix
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import Additions, BaseSpec, ImageSpec, InitSpec
from torchbake.matrix.yaml_source import parse_document

# jsonschema imports it for the format `iri`, which no schema here has. Its grammar takes four seconds to compile.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# PyYAML's own loader is in Python, and takes ten times as long as libyaml for the same values.
yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[assignment,misc]

# Helm's library is in Go. With less frequent garbage collection it needs a third less time.
os.environ.setdefault("GOGC", "1600")
# No deadline: the first call of a property pays for imports. Derandomised, so that a run is the same everywhere. CI
# tries more examples every night.
EXAMPLES = int(os.environ.get("TORCHBAKE_TEST_EXAMPLES") or 25)
NIGHTLY = EXAMPLES > 25  # runs every case of slow tests, in place of half of them
settings.register_profile("unit", deadline=None, max_examples=EXAMPLES, derandomize=True)
settings.load_profile("unit")

SMALL = """\
repository: acme/pytorch
source: https://example.com/acme
defaults:
  cudnn: 9
  packages:
    pip: [numpy]
bases:
  debian12: {image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}
  debian13: {image: "debian:trixie-slim", suite: trixie, python: "3.13"}
flavors:
  runtime: {}
  devel:
    headers: true
    packages: {apt: [g++], pip: [ninja]}
    cuda_packages:
      cuda12: {pip: ["nvidia-cuda-nvcc-cu12=={cuda}.*"]}
rows:
  - torch: 2.13.0
    accelerator: cpu
    base: debian12
    flavor: [runtime, devel]
  - torch: [2.10.0, 2.9.1]
    accelerator: cuda12.8
    base: [debian12, debian13]
    flavor: [runtime, devel]
exclude:
  - base: debian13
    flavor: devel
    reason: extensions are built once
init:
  volume-permissions: {version: 1.0.0, base: debian12}
tags:
  defaults: {accelerator: cuda, base: debian12, flavor: runtime}
  rolling:
    - "{torch}-{cuda}"
    - "{minor}"
    - "latest"
"""

DEBIAN12 = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
DEBIAN13 = BaseSpec(name="debian13", image="debian:trixie-slim", suite="trixie", python="3.13")


# Two thirds of the system's time of a run on a disk are for files that a test removes again.
MEMORY, LEAST_ROOM = Path("/dev/shm"), 2**30


class NotPureError(Exception):
    """Raised in place of starting a process or opening a connection."""


START, SPAWN = subprocess.Popen.__init__, os.posix_spawn


class MemoryCache(jinja2.BytecodeCache):
    """Compiled templates of this process. A file for each template of a test would stay in the toolkit's cache."""

    def __init__(self) -> None:
        self._compiled = dict[str, bytes]()

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if code := self._compiled.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refusal(*args: object, **kwargs: object) -> NoReturn:
        raise NotPureError(f"a unit test must not use {what}: {args[1:2] or args[:1]}")

    return refusal


@pytest.fixture(scope="package", autouse=True)
def _pure() -> Iterator[None]:
    """No process, no connection, and docker's default address of the engine. A test may change this for itself."""
    with pytest.MonkeyPatch.context() as pure:
        pure.setattr(subprocess.Popen, "__init__", _refuse("subprocess"))
        for name in ("system", "popen", "fork", "posix_spawn", "posix_spawnp", "execv", "execve"):
            pure.setattr(os, name, _refuse(f"os.{name}"))
        for name in ("connect", "connect_ex"):
            pure.setattr(socket.socket, name, _refuse("a network connection"))
        pure.setattr(socket, "getaddrinfo", _refuse("name resolution"))
        pure.setattr("torchbake.render.templates._compiled_templates", cache(MemoryCache))
        pure.setattr("torchbake.core.version.CHECKOUT", False)  # whose commit git would be asked for
        pure.setattr("torchbake.matrix.project.check_untracked", lambda root: None)  # git would be asked
        for name in ("DOCKER_HOST", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
            pure.delenv(name, raising=False)
        pure.setenv("DOCKER_CONTEXT", "default")
        yield


def pytest_runtest_teardown() -> None:
    """Forget the engine's address that a test has resolved."""
    address.engine_address.cache_clear()


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs this Python with the same words side by side, once for each of the environments; what each said."""

    def run(words: Sequence[str], *environments: Mapping[str, str]) -> list[str]:
        with monkeypatch.context() as allowed:
            allowed.setattr(subprocess.Popen, "__init__", START)
            started = [
                subprocess.Popen(
                    [sys.executable, *words], cwd=TOOLKIT, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True
                )
                for more in environments
            ]
            lines = [process.communicate(timeout=60)[0] for process in started]
        assert [process.returncode for process in started] == [0] * len(started)
        return lines

    return run


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs this Python with some words to its end, however it ends."""

    def run(*words: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as allowed:
            allowed.setattr(subprocess.Popen, "__init__", START)
            return subprocess.run(
                [sys.executable, *words],
                cwd=TOOLKIT, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
            )  # fmt: skip

    return run


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Lets a test start the toolkit's own tools, Python and uv, without a network.

    All tests share uv's cache, which has what uv finds out of each Python on PATH.
    """
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "uv-cache"))
    monkeypatch.setattr(subprocess.Popen, "__init__", START)
    monkeypatch.setattr(os, "posix_spawn", SPAWN)  # which starts a process that inherits descriptors


@pytest.fixture(scope="session")
def project() -> Project:
    """The repository's own matrix, read once."""
    return load_project(TOOLKIT / "matrix.yaml")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of tests/images, whose conftest does so only for a run about an image. Use memory for files.

    Tests of other folders build images of gigabytes, so a run with one of them uses the disk.
    """
    gc.disable()  # to import the tests leaves no garbage, and collections would take a fifth of the time
    config.addinivalue_line("markers", "check(check): the image check that a test is")
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    if all(path.resolve().is_relative_to(Path(__file__).parent) for path in paths) and _has_room(MEMORY):
        tempfile.tempdir = os.environ.setdefault("TMPDIR", str(MEMORY))


def _has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > LEAST_ROOM


def pytest_collection_finish() -> None:
    """Exempt all imported modules and tests from garbage collections, which take a tenth of the time otherwise."""
    gc.freeze()
    gc.enable()


def matrix_of(text: str = SMALL) -> Matrix:
    return validate_matrix(parse_document(text, Path("matrix.yaml")))


def expand_text(text: str = SMALL) -> Expansion:
    """The images of a matrix given as text."""
    document = parse_document(text, Path("matrix.yaml"))
    return expand(validate_matrix(document), document)


def edited(old: str, new: str, text: str = SMALL) -> str:
    """``text`` with one passage replaced; the passage must be there once."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the small matrix"
    return text.replace(old, new)


def image(torch: str = "2.10.0", accelerator: str = "cuda12.8", **changes: Any) -> ImageSpec:
    """An image spec with everything that a test does not care about filled in."""
    parsed = parse_accelerator(accelerator)
    values: dict[str, Any] = {
        "torch": torch,
        "accelerator": parsed,
        "cudnn": "9" if parsed.kind == "cuda" else None,
        "base": DEBIAN12,
        "flavor": "runtime",
        "headers": False,
        "trim": True,
        "apt": (),
        "pip": ("numpy",),
        "repository": "acme/pytorch",
        "source": "https://example.com/acme",
        "licenses": "BSD-3-Clause",
        "line": 1,
    }
    return ImageSpec(**values | changes)


def init_image(name: str = "volume-permissions", release: str = "1.0.0", own: Additions | None = None) -> InitSpec:
    return InitSpec(
        name=name,
        release=release,
        base=DEBIAN12,
        repository=f"acme/{name}",
        source="https://example.com/acme",
        licenses="Apache-2.0",
        line=1,
        own=own or Additions(),
    )


def pin(name: str, version: str = "1.0", *, via: Iterable[str] = (), digit: str = "a") -> Pin:
    """A locked wheel with one made-up hash."""
    return Pin(name=name, version=version, hashes=(f"sha256:{digit * 64}",), via=tuple(via))


def cuda_pins(torch: str = "2.10.0", cuda: str = "12.8.90", cudnn: str = "9.10.2.21") -> list[Pin]:
    """Return pins like the pins of a CUDA row."""
    return [
        pin("torch", torch),
        pin("triton", "3.6.0", via=["torch"]),
        pin("nvidia-cuda-runtime-cu12", cuda, via=["torch"]),
        pin("nvidia-cudnn-cu12", cudnn, via=["torch"]),
        pin("nvidia-nccl-cu12", "2.27.5", via=["torch"]),
        pin("numpy", "2.4.6"),
    ]


def cpu_pins(torch: str = "2.13.0+cpu") -> list[Pin]:
    return [pin("torch", torch), pin("filelock", "4.2", via=["torch"]), pin("numpy", "2.4.6")]


def lock_for(spec: ImageSpec, pins: Iterable[Pin]) -> Lock:
    return Lock(inputs=inputs_of(spec), layers=assign_layers(pins))


def check_golden(path: Path, text: str) -> None:
    """Compare with a committed file; TORCHBAKE_UPDATE_GOLDEN=1 writes the file again, for review in the diff."""
    if os.environ.get("TORCHBAKE_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing: run with TORCHBAKE_UPDATE_GOLDEN=1, and review what it writes"
    assert text == path.read_text()
