"""torchvision and torchaudio beside the image's torch: what pip and uv find in an image, and what they refuse.

Indexes of this host hold stand-ins: PyPI's have no local version, as its builds for CUDA, and PyTorch's have `+cpu`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU, ROOT, ref_of
from tests.e2e.deriving import PYTORCH, build_derived, hand_in, reached, stand_ins
from torchbake.lock.companions import COMPANIONS
from torchbake.lock.lockfile import Lock, parse_lock

pytestmark = pytest.mark.render

# By the torch in the lock; that of 2.10.0 for arm64 has no local version.
FOR_THE_CPU = {
    "2.13.0+cpu": {"torchvision": "0.28.0+cpu", "torchaudio": "2.11.0+cpu"},
    "2.10.0": {"torchvision": "0.25.0+cpu", "torchaudio": "2.10.0+cpu"},
}
SHOW = "import torch, torchvision; print(torchvision.__version__, torch.__version__, torch.__file__)"
FITS = "0.28.0+cpu 2.13.0+cpu /pytorch/torch/__init__.py"

Run = Callable[..., str]


@dataclass(frozen=True, kw_only=True)
class Indexes:
    """Addresses of the stand-ins of PyPI and of PyTorch's index."""

    pypi: str
    pytorch: str

    @property
    def of_pip(self) -> dict[str, str]:
        """Variables of a container whose mirrors these are."""
        return {"PIP_INDEX_URL": self.pypi, "PIP_EXTRA_INDEX_URL": self.pytorch, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    @property
    def of_uv(self) -> dict[str, str]:
        """The same for uv. With the image's own settings it would take PyTorch's packages from no mirror."""
        return {"UV_DEFAULT_INDEX": self.pypi, "UV_INDEX": self.pytorch, "UV_NO_CONFIG": "1", "UV_NO_CACHE": "1"}


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Indexes]:
    folder = tmp_path_factory.mktemp("simple")
    with stand_ins(folder / "pypi", "") as pypi, stand_ins(folder / "pytorch", "+cpu") as pytorch:
        yield Indexes(pypi=pypi, pytorch=pytorch)


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this host's uv, and the secrets that its package index needs."""
    folder = tmp_path_factory.mktemp("handed")
    hand_in(folder)
    return folder


@pytest.fixture
def unreachable() -> None:
    """A host that does not reach PyTorch's index."""
    if reached():
        pytest.skip(f"not run: {PYTORCH} answers here, so no refusal can be seen")


@pytest.mark.parametrize("user", [pytest.param("0", marks=pytest.mark.long), "1001"])
def test_pip_installs_the_torchvision_of_the_images_torch(user: str, indexes: Indexes, run: Run) -> None:
    """From a mirror of PyTorch's index, which takes the place of the image's own setting."""
    script = f"pip install --no-cache-dir torch torchvision >&2 && python -c '{SHOW}'"
    options = {"user": user, "network_mode": "host", "environment": indexes.of_pip}
    assert run(ref_of(CPU), "sh", "-c", script, **options) == FITS


@pytest.mark.parametrize("user", [pytest.param("1001", marks=pytest.mark.long), "54321"])
def test_pip_installs_on_a_read_only_root(user: str, indexes: Indexes, run: Run) -> None:
    """Into the home that a container then has in `/tmp`; the image's Python finds it, and no other does."""
    show = (
        "import site, torchvision; print(torchvision.__file__.startswith(site.getusersitepackages()), site.USER_BASE)"
    )
    script = f"pip install torchvision >&2 && python -c '{show}' && ! python -s -c 'import torchvision' 2>/dev/null"
    options = {"user": user, "network_mode": "host", "read_only": True, "tmpfs": {"/tmp": ""}}
    output = run(ref_of(CPU), "sh", "-c", script, environment=indexes.of_pip, **options)
    assert output == f"True /tmp/home-{user}/.local/share/torchbake/{CPU}"


def test_uv_installs_the_torchvision_of_the_images_torch(indexes: Indexes, handed: Path, run: Run) -> None:
    mounted = {str(handed / "tools"): {"bind": "/opt/tools", "mode": "ro"}}
    script = f"/opt/tools/uv pip install torch torchvision >&2 && python -c '{SHOW}'"
    options = {"user": "0", "network_mode": "host", "environment": indexes.of_uv, "volumes": mounted}
    assert run(ref_of(CPU), "sh", "-c", script, **options) == FITS
    script = (
        'python -m venv --without-pip /tmp/venv && export VIRTUAL_ENV=/tmp/venv PATH="/tmp/venv/bin:$PATH" && '
        "echo 'import site; site.addsitedir(\"/opt/venv/lib/python3.11/site-packages\")' "
        f"> /tmp/venv/lib/python3.11/site-packages/image.pth && {script}"
    )
    assert run(ref_of(CPU), "sh", "-c", script, **options | {"user": "1001"}) == FITS


@pytest.mark.parametrize("user", [pytest.param("0", marks=pytest.mark.long), "1001"])
def test_without_the_index_pip_refuses_and_names_it(user: str, unreachable: None, indexes: Indexes, run: Run) -> None:
    environment = {**indexes.of_pip, "PIP_RETRIES": "1"}
    del environment["PIP_EXTRA_INDEX_URL"]
    output = refused("pip install --no-cache-dir torchvision", run, user=user, environment=environment)
    assert f"Looking in indexes: {indexes.pypi}, {PYTORCH}" in output
    assert re.search("Retrying .*onnection.*: /whl/cpu/torchvision/", output), output
    assert "torchvision==0.28.0+cpu" in output


def test_without_the_index_uv_refuses_and_names_it(unreachable: None, indexes: Indexes, handed: Path, run: Run) -> None:
    mounted = {str(handed / "tools"): {"bind": "/opt/tools", "mode": "ro"}}
    environment = {"UV_DEFAULT_INDEX": indexes.pypi, "UV_HTTP_RETRIES": "0", "UV_NO_CACHE": "1"}
    output = refused("/opt/tools/uv pip install torchvision", run, user="0", environment=environment, volumes=mounted)
    assert f"{PYTORCH}/torchvision/" in output


def test_an_index_without_builds_for_the_cpu_gives_none_for_cuda(indexes: Indexes, handed: Path, run: Run) -> None:
    mounted = {str(handed / "tools"): {"bind": "/opt/tools", "mode": "ro"}}
    environment = {**indexes.of_pip, "PIP_EXTRA_INDEX_URL": indexes.pypi}
    refused("pip install --no-cache-dir torchvision", run, user="0", environment=environment)
    environment = {**indexes.of_uv, "UV_INDEX": indexes.pypi}
    output = refused("/opt/tools/uv pip install torchvision", run, user="0", environment=environment, volumes=mounted)
    assert "torchvision==0.28.0+cpu" in output


def refused(command: str, run: Run, *, environment: Mapping[str, str], **options: object) -> str:
    """Run a command that has to fail and to install nothing; return its output."""
    find = 'import importlib.util as i; print(i.find_spec("torchvision"))'
    script = f"if {command} 2>&1; then exit 9; fi; python -c '{find}'"
    output = run(ref_of(CPU), "sh", "-c", script, network_mode="host", environment=environment, **options)
    assert output.endswith("\nNone"), output
    return output


@dataclass(frozen=True, kw_only=True)
class Locked:
    """A committed lock: its image, and the companions that an installer should find for it."""

    name: str
    lock: Lock

    @property
    def expected(self) -> dict[str, str]:
        pins = self.lock.pins
        locked = {name: pins[name].version for name in COMPANIONS & pins.keys()}
        absent = FOR_THE_CPU[pins["torch"].version] if "-cpu-" in self.name else {"torchaudio": "2.11.0"}
        return {**absent, **locked}


LOCKS = [
    Locked(name=path.parent.name, lock=parse_lock(path.read_text(), str(path)))
    for path in sorted((ROOT / "images").glob("*/requirements.lock"))
]


DISTINCT = [*{("-cpu-" in one.name, one.lock.constraints): one for one in LOCKS}.values()]


@pytest.mark.parametrize("locks", [DISTINCT[::3], pytest.param(DISTINCT, marks=pytest.mark.long)], ids=["some", "all"])
def test_pip_and_uv_find_what_fits_every_image(locks: Sequence[Locked], indexes: Indexes, tmp_path: Path) -> None:
    """By the constraints of each lock, those for CUDA too; only the CPU's image knows the index of its builds."""
    assert {"-cpu-" in one.name for one in locks} == {False, True}
    for one in locks:
        file = tmp_path / f"{one.name}.txt"
        file.write_text("\n".join(one.lock.constraints))
        extra = ["--extra-index-url", indexes.pytorch] if "-cpu-" in one.name else []
        words = ["--index-url", indexes.pypi, *extra, "--constraint", str(file)]
        assert found_by_pip(words) == one.expected, one.name
        assert found_by_uv(words) == one.expected, one.name


def found_by_pip(words: list[str]) -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    report = json.loads(_read_output([*command, "--report", "-", *words, *COMPANIONS]))
    return {value["metadata"]["name"]: value["metadata"]["version"] for value in report["install"]}


def found_by_uv(words: list[str]) -> dict[str, str]:
    uv = shutil.which("uv")
    assert uv
    command = [uv, "pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--quiet", "--no-config", *words, "-"]
    lines = _read_output(command, "\n".join(COMPANIONS)).split()
    return dict(line.split("==") for line in lines)


def _read_output(command: list[str], text: str = "") -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    env = {**clean, "PIP_CONFIG_FILE": os.devnull, "UV_NO_CACHE": "1", "PIP_NO_CACHE_DIR": "1"}
    process = subprocess.run(command, input=text, env=env, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_documents_mnist_job_runs(handed: Path, run: Run) -> None:
    """OpenPAI's Dockerfile with the image in place of its base, and the operator that another build lacks."""
    if not reached():
        pytest.skip(f"not run: {PYTORCH} cannot be reached from here, and PyPI has no torchvision for the CPU")
    ref = "torchbake-test/companions:mnist"
    lines = (f"FROM {ref_of(CPU)}", "USER root", "RUN pip install --no-cache-dir torch torchvision", "USER 1001",
             "RUN git clone --depth 1 https://github.com/pytorch/examples.git", "")  # fmt: skip
    try:
        process = build_derived("\n".join(lines), ref, handed)
        assert process.returncode == 0, process.stderr
        nms = "import torch, torchvision.ops as o; print(o.nms(torch.eye(4), torch.ones(4), .5).numel())"
        assert int(run(ref, "python", "-c", nms)) > 0
        assert "Test set" in run(ref, "sh", "-c", "cd examples/mnist && python main.py --epochs 1 --dry-run")
    finally:
        subprocess.run(["docker", "rmi", "-f", ref], capture_output=True, check=False)
