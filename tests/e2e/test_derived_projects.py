"""Projects with a lock in images that are FROM one of ours, by the Dockerfiles of docs/how-to/projects-from.md."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU, ROOT, Completed, ref_of, torchbake
from tests.e2e.deriving import TARGETS, build_derived, hand_in
from tests.e2e.serving import index_of
from tests.wheels import write_wheel

pytestmark = pytest.mark.render

PAGE = (ROOT / "docs/how-to/projects-from.md").read_text()
DOCKERFILES = dict(zip(("uv", "pip", "poetry"), re.findall(r"(?ms)^```dockerfile\n(.*?)^```$", PAGE), strict=True))
ROOT_USER = "0"
TORCH = "2.13.0"
LARGE = 8_000_000  # bytes: more than the projects' packages, and less than one tenth of torch
PYPI = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple/")
_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "sympy>=1.13.3", "typing-extensions>=4.10.0")
_CUDA = ("nvidia-cublas-cu12==12.8.4.1", "triton==3.6.0")
PROJECT = """\
[project]
name = "trainer"
version = "0.1.0"
requires-python = "==3.11.*"
dependencies = ["einops", "torch{pin}"{more}]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
# Gives a CPU image the versions and entries of an image with PyPI's torch for CUDA 12.8, but no library of CUDA.
LIKE_CUDA = f"""\
USER root
RUN --mount=from=layers,target=/run/layers \\
    cd /pytorch && mv torch-*.dist-info torch-{TORCH}.dist-info \\
    && sed -i 's/^Version: .*/Version: {TORCH}/' torch-*.dist-info/METADATA \\
    && sed -i "s/^__version__ = .*/__version__ = '{TORCH}+cu128'/" torch/version.py \\
    && for wheel in nvidia/nvidia_cublas_cu12-12.8.4.1 pytorch/triton-3.6.0; do \\
       info=/$wheel.dist-info name=${{wheel#*/}}; mkdir -p $info; echo 'Wheel-Version: 1.0' > $info/WHEEL; \\
       printf 'Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n' ${{name%-*}} ${{name#*-}} > $info/METADATA; done \\
    && printf 'torch=={TORCH}\\ntriton==3.6.0\\n' > /run/torch.lock \\
    && echo nvidia-cublas-cu12==12.8.4.1 > /run/nvidia.lock \\
    && rm -r /opt/venv/lib/python3.11/site-packages/torch-*.dist-info \\
    && PYTHONPATH=/run/layers python3 -m wheels entries /opt/venv /run/entries \\
       /nvidia=/run/nvidia.lock /pytorch=/run/torch.lock \\
    && cp -r /run/entries/. /opt/venv/ \\
    && for file in constraints uv-exclude; do echo torch==={TORCH} > /etc/torchbake/$file.txt; done
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Indexes of small wheels on this host's loopback, and a folder with the builds' secrets and uv."""

    image: str
    folder: Path
    url: str
    requests: list[str]

    def project(self, name: str, pin: str, index: str = "", more: Sequence[str] = ()) -> Path:
        """Write a project that wants a torch, of an index or of PyPI, and lock it by uv."""
        folder = self.folder / name
        (folder / "trainer").mkdir(parents=True)
        (folder / "trainer/__init__.py").write_text(
            "import einops\nimport torch\n\nprint(torch.ones(2).sum().item())\n"
        )
        text = PROJECT.format(pin=pin, more="".join(f', "{one}"' for one in more))
        if index:
            names = ("torch", *(one.partition("==")[0] for one in more))
            sources = "".join(f'{one} = {{index = "torch"}}\n' for one in names)
            text += f'\n[tool.uv.sources]\n{sources}\n[[tool.uv.index]]\nname = "torch"\n'
            text += f'url = "{self.url}/{index}"\nexplicit = true\n'
        (folder / "pyproject.toml").write_text(text)
        self._lock(folder)
        return folder

    def _lock(self, folder: Path) -> None:
        uv = str(self.folder / "tools/uv")
        for words in (
            ("lock", "--no-config", "--default-index", PYPI),
            ("export", "--no-config", "--frozen", "--no-emit-project", "--output-file", "requirements.txt"),
        ):
            process = subprocess.run([uv, *words], cwd=folder, capture_output=True, text=True, check=False)
            assert process.returncode == 0, process.stderr

    def build(self, dockerfile: str, tag: str, project: Path) -> Completed:
        dockerfile = dockerfile.replace("ghcr.io/acme/pytorch:2.13.0-cpu-runtime", self.image)
        return build_derived(dockerfile, tag, self.folder, project)

    def inside(self, image: str, project: Path, script: str) -> tuple[str, list[str]]:
        """Run a script as root in a new container with a copy of the project.

        Return its output, and what it downloaded from the indexes of torch.
        """
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(project, copy)
        before = len(self.requests)
        files = {name: f"{self.folder / name}:{target}:ro" for name, target in TARGETS.items()}
        mounts = [f"{self.folder / 'tools/uv'}:/usr/local/bin/uv:ro", f"{copy}:/app", *files.values()]
        process = subprocess.run(
            ["docker", "run", "--rm", "--network", "host", "--user", ROOT_USER, "-e", "UV_LINK_MODE=copy",
             *(word for mount in mounts for word in ("-v", mount)), image, "sh", "-c", f"{script} 2>&1; echo code $?"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        return process.stdout, [path for path in self.requests[before:] if path.endswith(".whl")]


def _write_indexes(folder: Path) -> None:
    """Write small wheels: torch for the CPU and for CUDA 12.8 as PyTorch's indexes have them, and as PyPI has it."""
    for version in (TORCH, "2.9.1"):
        write_wheel(folder / "cpu/torch", "torch", f"{version}+cpu", {"torch/__init__.py": b""}, needs=_NEEDS)
        for index, label in (("cu128", "+cu128"), ("pypi", "")):
            needs = (*_NEEDS, *_CUDA)
            write_wheel(folder / index / "torch", "torch", version + label, {"torch/__init__.py": b""}, needs=needs)
    for index in ("cu128", "pypi"):
        for name, _, version in (one.partition("==") for one in _CUDA):
            write_wheel(folder / index / name, name, version, {f"{name.replace('-', '_')}/__init__.py": b""})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("projects")
    hand_in(folder)
    _write_indexes(folder / "index")
    with index_of(folder / "index", "127.0.0.1") as (url, requests):
        yield Site(image=ref_of(CPU), folder=folder, url=url, requests=requests)


@pytest.fixture(scope="module")
def cpu(site: Site) -> Path:
    return site.project("cpu", f"=={TORCH}", "cpu")


@pytest.fixture(scope="module")
def other(site: Site) -> Path:
    return site.project("other", "==2.9.1", "cpu")


@pytest.fixture(scope="module")
def cuda_image(site: Site) -> Iterator[str]:
    """An image whose torch says that it is PyPI's for CUDA 12.8. It computes on the CPU."""
    ref = "torchbake-test/projects:like-cuda"
    context = f"--build-context=layers={ROOT / 'layers'}"
    process = subprocess.run(
        ["docker", "build", "-q", "-t", ref, context, "-"],
        input=f"FROM {site.image}\n{LIKE_CUDA}", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    yield ref
    subprocess.run(["docker", "rmi", "-f", ref], capture_output=True, check=False)


def added_bytes(ref: str, base: str) -> int:
    """Return the uncompressed bytes of an image beyond another one's."""
    sizes = [
        subprocess.run(
            ["docker", "history", "--human=false", "--format", "{{.Size}}", one],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for one in (ref, base)
    ]
    return sum(map(int, sizes[0])) - sum(map(int, sizes[1]))


@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.long)])
def test_the_pages_dockerfile_installs_a_project_without_torch(installer: str, site: Site, cpu: Path) -> None:
    ref, before = f"torchbake-test/projects:{installer}", len(site.requests)
    begin = time.monotonic()
    process = site.build(DOCKERFILES[installer], ref, cpu)
    assert process.returncode == 0, process.stderr
    print(f"{installer}: {time.monotonic() - begin:.1f} s, {added_bytes(ref, site.image):,} bytes")
    assert not [path for path in site.requests[before:] if path.endswith(".whl")]
    assert added_bytes(ref, site.image) < LARGE
    script = "import trainer, torch; print(torch.__file__, trainer.__file__)"
    output = subprocess.run(
        ["docker", "run", "--rm", ref, "python", "-c", script], capture_output=True, text=True, check=True
    )
    assert output.stdout.startswith("2.0\n/pytorch/torch/__init__.py ")
    if installer == "uv":
        checks = ("python.locked", "python.constraints", "python.re*", "files.*", "metadata.*")
        only = (word for check in checks for word in ("--only", check))
        tested = torchbake("test", "--image", ref, *only, "--skip", "files.app-tree")  # its modes are the context's
        assert tested.returncode == 0, tested.stdout + tested.stderr
    subprocess.run(["docker", "rmi", "-f", ref], capture_output=True, check=False)


def test_another_torch_is_refused_before_it_is_downloaded(site: Site, other: Path) -> None:
    cuda = site.project("cuda", f"=={TORCH}", "cu128", _CUDA)
    for project, words in ((other, "torch 2.9.1+cpu, "), (cuda, f"torch {TORCH}+cu128, ")):
        output, downloads = site.inside(site.image, project, "keep-torch uv sync --frozen")
        assert output.startswith(f"keep-torch: the project wants {words}"), output
        assert output.endswith("\ncode 2\n")
        assert output.count("\n") == 2
        assert downloads == []
        output, downloads = site.inside(site.image, project, "keep-torch pip install --no-deps -r requirements.txt")
        assert "The user requested (constraint) " in output, output
        assert output.endswith("\ncode 1\n")
        assert downloads == []


def test_a_lock_for_cuda_is_accepted_on_the_cpu_if_asked(site: Site) -> None:
    project = site.project("asked", f"=={TORCH}", "pypi", _CUDA)
    sync = "keep-torch --any-build uv sync --frozen --inexact -q"
    script = f"{sync} && python -c 'import trainer, torch; print(torch.__file__)'"
    output, downloads = site.inside(site.image, project, script)
    assert output == "2.0\n/pytorch/torch/__init__.py\ncode 0\n"
    assert downloads == []


@pytest.mark.long  # the lock for the CPU below is compared with the same image
def test_pypis_torch_and_the_cuda_indexs_are_the_same(site: Site, cuda_image: str) -> None:
    plain = "uv sync --frozen --inexact -q && python -c 'import trainer, torch; print(torch.__file__)'"
    again = "uv sync --frozen --inexact --offline -q && uv pip list -q 2>&1 | grep -c torch"
    for name, script in (("pypi", plain), ("cu128", f"keep-torch {plain}")):
        project = site.project(f"same-{name}", f"=={TORCH}", name, _CUDA)
        output, downloads = site.inside(cuda_image, project, f"{script} && {again}")
        assert output == "2.0\n/pytorch/torch/__init__.py\n1\ncode 0\n", name
        assert downloads == []
        output, downloads = site.inside(cuda_image, project, "keep-torch pip install -q --no-deps -r requirements.txt")
        assert output.endswith("code 0\n"), output
        assert downloads == []


def test_a_lock_for_the_cpu_is_refused_on_cuda(site: Site, cuda_image: str, cpu: Path) -> None:
    output, downloads = site.inside(cuda_image, cpu, "keep-torch uv sync --frozen")
    assert f"wants torch {TORCH}+cpu, and" in output
    assert f"has torch {TORCH}+cu128" in output
    assert output.endswith("\ncode 2\n")
    assert downloads == []


@pytest.mark.long  # tests/unit/test_own_checks.py has such an image
def test_an_image_with_two_torches_fails_its_checks(site: Site, other: Path) -> None:
    ref = "torchbake-test/projects:two"
    lines = "COPY . .\nRUN uv sync --frozen --no-cache --inexact --no-install-project\nUSER 1001\n"
    dockerfile = f"FROM {site.image}\nUSER root\nCOPY --from=ghcr.io/astral-sh/uv /uv /usr/local/bin/\n{lines}"
    process = site.build(dockerfile, ref, other)
    assert process.returncode == 0, process.stderr
    tested = torchbake("test", "--image", ref, "--only", "python.locked", "--format", "json")
    (image,) = json.loads(tested.stdout)["images"]
    (check,) = (one for one in image["checks"] if one["id"] == "python.locked")
    assert "torch is there twice" in check["reason"]
    subprocess.run(["docker", "rmi", "-f", ref], capture_output=True, check=False)


@pytest.mark.long
def test_poetry_leaves_torch_alone_and_refuses_another(site: Site) -> None:
    """Poetry locks in a container of the page's image, since its lock names this run's index."""
    tool = "torchbake-test/projects:poetry"
    begin = DOCKERFILES["poetry"].partition("COPY")[0]
    empty = site.folder / "empty"
    empty.mkdir()
    process = site.build(begin, tool, empty)
    assert process.returncode == 0, process.stderr
    for version in (TORCH, "2.9.1"):
        project = site.folder / f"poetry-{version}"
        project.mkdir()
        text = (
            PROJECT.format(pin=f"=={version}", more="") + '\n[tool.poetry.dependencies]\ntorch = {source = "torch"}\n'
        )
        sources = (("torch", f"{site.url}/cpu/", "explicit"), ("main", PYPI, "primary"))
        for name, url, priority in sources:
            text += f'\n[[tool.poetry.source]]\nname = "{name}"\nurl = "{url}"\npriority = "{priority}"\n'
        (project / "pyproject.toml").write_text(text)
        certificates = "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"
        output, _ = site.inside(tool, project, f"{certificates} poetry lock -q && cat poetry.lock")
        assert output.endswith("code 0\n"), output
        (project / "poetry.lock").write_text(output.removesuffix("code 0\n"))
        output, downloads = site.inside(tool, project, f"{certificates} keep-torch poetry install -q --no-root")
        assert output == "code 0\n" if version == TORCH else "wants torch 2.9.1+cpu" in output, output
        assert downloads == []
    subprocess.run(["docker", "rmi", "-f", tool], capture_output=True, check=False)
