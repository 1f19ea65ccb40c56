"""The waste of images in the engine: each kind of waste to the byte, and none in a clean image."""

import json
import posixpath
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from benchmarks.cold import Cold
from benchmarks.plans import make_plan
from tests.e2e.browser import NoBrowserError, chromium
from tests.e2e.conftest import CPU, ROOT, Completed, ref_of, torchbake
from tests.e2e.registries import unpacked
from tests.unit.contents.test_gpu_code import ELF, MACHINE, PTX, fat_binary
from tests.unit.documents import commands
from torchbake.contents.waste_kinds import KINDS
from torchbake.errors import EngineError, RegistryError, WasteError

pytestmark = pytest.mark.contents

TOOLS = ROOT / ".torchbake/tools"
PAGE = ROOT / "docs/how-to/waste.md"
TRAIN = "train:latest"  # the image of the page
SITE = "/opt/venv/lib/python3.11/site-packages"
BASE = """\
FROM scratch
COPY busybox /bin/busybox
SHELL ["/bin/busybox", "sh", "-c"]
RUN /bin/busybox --install -s /bin
"""


def write(path: str, size: int) -> str:
    """The shell command that writes a file of other bytes than any other file's."""
    return f"mkdir -p {posixpath.dirname(path)} && head -c {size} /dev/urandom > {path}"


# By kind: the steps of an image, and the bytes that they waste.
CASES: dict[str, tuple[str, int]] = {
    "removed": (f"RUN {write('/data/a', 123_457)}\nRUN rm -r /data", 123_457),
    "replaced": (f"RUN {write('/data/a', 40_001)}\nRUN {write('/data/a', 7)}", 40_001),
    "ownership": (
        f"RUN {write('/app/a', 30_011)} && {write('/app/b', 5)} && ln /app/a /app/c\nRUN chown -R 1001:0 /app", 30_016,
    ),
    "uv": (  # of two files, one is linked into an environment
        f"RUN {write('/root/.cache/uv/a', 20_011)} && {write('/root/.cache/uv/b', 999)} && mkdir /venv && "
        "ln /root/.cache/uv/b /venv/b", 20_011,
    ),
    "apt": (f"RUN {write('/var/lib/apt/lists/a', 7_001)} && {write('/var/cache/apt/archives/a.deb', 11)}", 7_012),
    "double": (f"RUN {write('/opt/a/torch/lib', 150_001)} && cp -r /opt/a /opt/b", 150_001),
    "cuda-twice": (
        f"RUN {write('/usr/local/cuda/lib64/libcublas.so.12.8.4.1', 60_001)} && "
        f"{write(SITE + '/nvidia/cublas/lib/libcublas.so.12', 60_003)}", 60_001,
    ),
    "git": (f"RUN {write('/app/.git/objects/a', 8_009)} && {write('/app/.gitignore', 3)}", 8_009),
    "orphan-bytecode": (
        f"RUN {write(SITE + '/a/__pycache__/a.cpython-311.pyc', 5_003)} && {write(SITE + '/b.py', 9)} && "
        f"{write(SITE + '/__pycache__/b.cpython-311.pyc', 13)}", 5_003,
    ),
    "gpu-code": ("COPY libtorch_cuda.so /opt/lib/", 70_007),
}  # fmt: skip
LIBRARY = ELF + bytes(1000) + fat_binary([(MACHINE, 80, 70_000, 0), (MACHINE, 90, 80_000, 0), (PTX, 100, 7, 0)])
CLEAN = f"RUN {write('/opt/app/data', 300_000)} && {write('/opt/app/a.py', 10)} && {write('/etc/hostname', 5)}\n"

Build = Callable[..., str]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Iterator[Build]:
    """Build an image from these steps, and return its name. All are removed at the end."""
    folder, names = tmp_path_factory.mktemp("waste"), list[str]()
    (folder / "busybox").write_bytes(unpacked(TOOLS, "busybox-static", "bin/busybox").read_bytes())
    (folder / "busybox").chmod(0o755)
    (folder / "libtorch_cuda.so").write_bytes(LIBRARY)

    def run(steps: str, name: str) -> str:
        (folder / "Dockerfile").write_text(BASE + CLEAN + steps)
        command = ["docker", "buildx", "build", "--quiet", "--load", "--tag", name, str(folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        names.append(name)
        return name

    yield run
    for name in names:
        engine.images.remove(name, force=True)


@pytest.fixture(scope="module")
def train(build: Build, engine: docker.DockerClient) -> str:
    """The image of the page, with several kinds of waste."""
    assert not [image for image in engine.images.list() if TRAIN in image.tags], f"{TRAIN} is somebody's own image"
    return build("\n".join(steps for steps, _ in CASES.values()), TRAIN)


def waste(image: str, *words: str) -> Any:
    process = torchbake("waste", image, "--format", "json", *words)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def sizes_of(result: Any) -> dict[str, int]:
    """The bytes by kind that count as waste."""
    return {each["kind"]: each["bytes"] for each in result["kinds"] if not each["information"]}


@pytest.mark.long  # an image of each; the image of all of them is below
def test_each_kind_of_waste_is_measured_to_the_byte(build: Build) -> None:
    for kind, (steps, size) in CASES.items():
        result = waste(build(steps, f"torchbake-test/waste:{kind}"), "--gpus", "H100")
        assert sizes_of(result) == {kind: size}, kind
        assert result["wasted"] == size
        assert 0 < result["share"] < 1
        (each,) = (each for each in result["kinds"] if each["kind"] == kind)
        assert sum(layer["bytes"] for layer in each["layers"]) == size
        for layer in each["layers"]:
            assert re.search("RUN|COPY", layer["step"]), kind


def test_nothing_is_found_in_a_clean_image(build: Build) -> None:
    image = build("", "torchbake-test/waste:clean")
    result = waste(image)
    assert (result["wasted"], result["kinds"], result["gpu_code"]) == (0, [], {})
    process = torchbake("waste", image, "--fail-over", "0")
    assert process.returncode == 0
    assert "of which nothing could go" in process.stdout


def test_kinds_add_up_in_an_image_with_all_of_them(train: str) -> None:
    result = waste(train, "--gpus", "9.0")
    assert sizes_of(result) == {kind: size for kind, (_, size) in CASES.items()}
    assert result["wasted"] == sum(size for _, size in CASES.values())
    assert result["gpu_code"] == {"compute_100": 7, "sm_80": 70_000, "sm_90": 80_000}


def test_our_own_cpu_image_wastes_little() -> None:
    result = waste(ref_of(CPU))
    assert result["share"] < 0.01
    assert not {"double", "pip", "uv", "apt", "git", "double-bytecode"} & set(sizes_of(result))
    assert {each["kind"] for each in result["kinds"] if each["information"]} >= {"bytecode"}


@pytest.mark.long
def test_the_tuned_dockerfile_keeps_no_cache_of_wheels(engine: docker.DockerClient, tmp_path: Path) -> None:
    Cold(CPU, tmp_path).tuned()
    name = make_plan("tuned")
    try:
        result = waste(name)
    finally:
        engine.images.remove(name, force=True)
    assert sum(sizes_of(result).values()) == result["wasted"] > 0
    assert not {"ownership", "removed", "pip", "uv", "double-bytecode"} & set(sizes_of(result))
    assert {each["kind"] for each in result["kinds"] if each["information"]} == {"bytecode", "tests"}


def test_an_unknown_image_is_an_error_in_a_sentence() -> None:
    for words in (("torchbake-test/missing:1", "--from", "engine"), ("127.0.0.1:1/missing:1",)):
        process = torchbake("waste", *words)
        assert process.returncode in (EngineError.exit_code, RegistryError.exit_code), process.stderr
        assert "missing:1" in process.stderr
        assert "Traceback" not in process.stderr
        assert process.stdout == ""


def test_what_the_page_says_can_be_typed(train: str, tmp_path: Path) -> None:
    lines = [command for command in commands("docs/how-to/waste.md", PAGE.read_text()) if command.words]
    assert len(lines) >= 7
    for command in lines:
        process = _run(*command.sessions, *command.words, folder=tmp_path)
        code = WasteError.exit_code if "5%" in command.words else 0  # it has less than 100 MB
        assert process.returncode == code, f"{command}: {process.stderr}"
        assert process.stdout
    assert "could go" in (tmp_path / "waste.html").read_text()
    for kind in KINDS:
        assert f"`{kind}`" in PAGE.read_text(), kind


def _run(*words: str, folder: Path) -> Completed:
    own = [str(folder / word) if word.endswith(".html") else word for word in words]
    return torchbake(*own)


@pytest.mark.long  # tests/e2e/test_report.py has a page in the same style
def test_the_page_fits_and_asks_nobody(train: str, tmp_path: Path) -> None:
    path = tmp_path / "waste.html"
    assert torchbake("waste", train, "--page", str(path)).returncode == 0
    lines, queries = list[str](), list[str]()
    try:
        with chromium(TOOLS / "chromium") as browser:
            for width in (375, 768, 1280):
                view = browser.new_page(viewport={"width": width, "height": 900})
                view.on("console", lambda message: lines.append(message.text))
                view.on("request", lambda request: queries.append(request.url))
                view.goto(path.as_uri())
                view.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
                assert view.evaluate("document.documentElement.scrollWidth") <= width
                assert view.locator("article:visible").count() >= len(CASES) - 1
                view.screenshot(path=tmp_path / f"{width}.png", full_page=True)
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")
    assert lines == []
    assert [url for url in queries if not url.startswith(("file:", "data:"))] == []
