"""The package, as a stranger has it: from a wheel, in a folder and an environment of their own, without a checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.certificates import AUTHORITY
from tests.e2e.bare import Bare
from tests.e2e.conftest import INIT, ROOT, Completed
from tests.e2e.registries import Running, registry
from tests.packages import build, check, check_same
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.uv_config import uv_toml

pytestmark = pytest.mark.doors

PAGE = ROOT / "docs/how-to/your-own.md"
RUNTIME = "2.13.0-cpu-runtime-debian12"
# The images of the page, and the one without torch alone, with which the same steps take a tenth of the time.
BOTH, SMALL = f"runtime {INIT}", INIT
RELEASED = f"small/{INIT}"
# The repository's tree would be found through these.
_OURS = ("PYTHONPATH", "TORCHBAKE_MATRIX", "VIRTUAL_ENV")


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """Somebody with an installed torchbake, in a repository of their own."""

    venv: Path
    folder: Path

    def types(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A line of theirs, and how it ended."""
        env = {name: value for name, value in os.environ.items() if name not in _OURS}
        env["PATH"] = os.pathsep.join((f"{self.venv}/bin", env["PATH"]))
        process = subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=1500, check=False
        )
        assert process.returncode == code, f"{' '.join(words)}\n{process.stdout}\n{process.stderr}"
        return process

    def result(self, *words: str) -> dict[str, dict[str, Any]]:
        """Run a command and return its JSON results by image id."""
        images = json.loads(self.types(*words, "--format", "json").stdout)["images"]
        return {image["id"]: image for image in images}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory, packages: Sequence[Path]) -> Stranger:
    folder = tmp_path_factory.mktemp("stranger")
    stranger = Stranger(venv=folder / "venv", folder=folder / "images")
    stranger.folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", stranger.venv], check=True)
    (wheel,) = (path for path in packages if path.suffix == ".whl")
    (folder / "uv.toml").write_text(uv_toml(read_pip_config()))
    settings = ("--config-file", str(folder / "uv.toml"), "--system-certs", "--python", str(stranger.venv))
    # pip takes a minute, and compiles what is never imported.
    stranger.types(sys.executable, "-m", "uv", "pip", "install", "--quiet", *settings, f"{wheel}[nox]")
    return stranger


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def repository(stranger: Stranger) -> Stranger:
    """Theirs, as `init` made it."""
    stranger.types("torchbake", "init", "--repository", "acme/pytorch")
    return stranger


def test_what_is_uploaded_is_sound(packages: list[Path]) -> None:
    assert [path.suffix for path in packages] == [".whl", ".gz"]
    check(packages)


@pytest.mark.long  # one more build
def test_what_is_uploaded_is_the_same_from_every_build(packages: list[Path]) -> None:
    check_same(packages)


def test_a_command_says_how_it_was_typed(repository: Stranger) -> None:
    output = repository.types("torchbake", "lock", "cpu", "--check", code=5).stderr
    assert f"torchbake lock {RUNTIME}" in output
    assert "nox -s" not in output
    assert "usage: torchbake build " in repository.types("torchbake", "build", "--help").stdout
    assert re.fullmatch(r"torchbake \d+\.\d+\S*\n", repository.types("torchbake", "--version").stdout)
    assert repository.types("torchbake", "help", "tags").stdout == (ROOT / "docs/explanation/tags.md").read_text()


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs: uvx and pipx, from PyPI."""
    venv = tmp_path_factory.mktemp("runners") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "--quiet", "uv", "pipx"], check=True)
    return venv / "bin"


@pytest.mark.long
def test_uvx_and_pipx_run_it_without_an_installation(runners: Path, packages: Sequence[Path], tmp_path: Path) -> None:
    """The wheel stands where the page has a release or a commit."""
    (wheel,) = (path for path in packages if path.suffix == ".whl")
    (tmp_path / "uv.toml").write_text(uv_toml(read_pip_config()))
    environment = {
        "PATH": os.pathsep.join((str(runners), os.environ["PATH"])), "PIPX_HOME": str(tmp_path / "pipx"),
        "UV_CONFIG_FILE": str(tmp_path / "uv.toml"), "UV_CACHE_DIR": str(tmp_path / "uv"), "UV_SYSTEM_CERTS": "1",
        "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never",
    }  # fmt: skip
    lines = [from_a_file(line, wheel) for line in typed_in(PAGE)["Without installing"]]
    assert [line.split()[0] for line in lines] == ["uvx", "pipx", "uvx", "pipx", "cd"]
    for name, line in zip(("uvx", "pipx", ".", ".", "uvx"), lines, strict=True):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        process = subprocess.run(
            ["bash", "-euc", line], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert process.returncode == 0, f"{line}\n{process.stderr}"
        if " init " in line:
            assert (folder / "my-images/matrix.yaml").exists()
            assert "next: torchbake build all" in process.stderr
        elif " nox " in line:
            assert "- build -> Build and tag the selected images" in process.stdout
        else:
            assert re.fullmatch(r"torchbake \d+\.\d+\S*\n", process.stdout)


def from_a_file(line: str, wheel: Path) -> str:
    """A line of the page with this wheel in place of PyPI's, or of the repository's."""
    line = line.replace("git+https://github.com/torchbake/torchbake", str(wheel))
    line = line.replace("uvx --with torchbake ", f"uvx --with {wheel} ")
    line = re.sub(r"^uvx torchbake ", f"uvx --from {wheel} torchbake ", line)
    return re.sub(r"^pipx run torchbake ", f"pipx run --spec {wheel} torchbake ", line)


def test_nox_has_the_same_commands_and_only_results_on_stdout(repository: Stranger) -> None:
    by_nox = repository.types("nox", "-s", "list", "--", "all", "--format", "json").stdout
    assert json.loads(by_nox) == json.loads(repository.types("torchbake", "list", "all", "--format", "json").stdout)
    sub = Stranger(venv=repository.venv, folder=repository.folder / "sub")
    sub.folder.mkdir()
    by_file = sub.types("nox", "-f", "../noxfile.py", "-s", "list", "--", "all", "--format", "json").stdout
    assert by_file == by_nox
    listed = repository.types("nox", "-l").stdout.splitlines()
    assert any(line.startswith("- build -> Build and tag the selected images") for line in listed)
    assert not any(line.startswith("* ") for line in listed), "a plain nox would run commands"


@dataclass(frozen=True, kw_only=True)
class Way:
    """The folder that the page's `init` made, with the bases of this repository; and a registry."""

    owner: Stranger
    running: Running
    typed: dict[str, list[str]]

    def follow(self, section: str, images: str = BOTH) -> str:
        """Type the commands of a section, with these images in place of the page's; return their output."""
        lines = [line for line in self.typed[section] if not line.startswith("cd ")]
        if images != BOTH:
            lines = [line.replace(BOTH, images).replace("runtime", images) for line in lines if "docker" not in line]
        namespace = "acme" if images == BOTH else "small"
        head = f"export TORCHBAKE_REGISTRY={self.running.host}/{namespace}"
        return self.owner.types("bash", "-euc", "\n".join([head, *lines])).stdout

    def digest(self, path: str, tag: str) -> str:
        answer = requests.head(
            f"http://{self.running.host}/v2/{path}/manifests/{tag}",
            headers={"Accept": "application/vnd.oci.image.manifest.v1+json"}, timeout=10,
        )  # fmt: skip
        assert answer.status_code == 200, f"{tag}: {answer.status_code}"
        return answer.headers["Docker-Content-Digest"]


@pytest.fixture
def way(tmp_path: Path, stranger: Stranger, bases: Path, running: Running) -> Way:
    typed = typed_in(PAGE)
    assert typed["Begin"][0].startswith("pip install ")  # it is installed already, from the wheel
    Stranger(venv=stranger.venv, folder=tmp_path).types("bash", "-euc", typed["Begin"][1])
    # With the base and the builder of this repository its wheels are in the build cache.
    shutil.copytree(bases, tmp_path / "my-images/.torchbake/bases")
    (tmp_path / "my-images/images").mkdir()
    shutil.copy(ROOT / "images/builder.lock", tmp_path / "my-images/images")
    return Way(owner=Stranger(venv=stranger.venv, folder=tmp_path / "my-images"), running=running, typed=typed)


def test_the_commands_of_the_page_release_and_roll_back(way: Way) -> None:
    """With the image without torch; the next test has the page's images."""
    way.follow("Build and test", SMALL)
    assert (way.owner.folder / f"images/{INIT}/Dockerfile").exists()
    assert (way.owner.folder / "reports/summary.md").exists()
    assert way.owner.result("torchbake", "build", INIT)[INIT]["status"] == "up-to-date"
    way.follow("Release", SMALL)
    first = way.digest(RELEASED, "latest")
    assert way.digest(RELEASED, "1.0.0-r0") == first
    matrix = way.owner.folder / "matrix.yaml"
    row = f"{INIT}: {{version: 1.0.0, "
    assert row in matrix.read_text()
    matrix.write_text(matrix.read_text().replace(row, f"{row}labels: {{com.acme.team: vision}}, "))
    way.follow("Add a package", SMALL)
    assert way.digest(RELEASED, "1.0.0-r1") == way.digest(RELEASED, "latest") != first
    way.follow("Go back", SMALL)
    assert way.digest(RELEASED, "latest") == first
    assert way.digest(RELEASED, "1.0.0-r1") != first


@pytest.mark.long
def test_the_way_from_init_to_a_rollback_is_as_the_page_says(way: Way) -> None:
    owner = way.owner
    assert way.follow("Build and test").splitlines()[-1].startswith("2.13.0")
    assert (owner.folder / f"images/{RUNTIME}/Dockerfile").exists()
    assert (owner.folder / "reports/summary.md").exists()
    assert owner.result("torchbake", "build", "cpu", "!devel")[RUNTIME]["status"] == "up-to-date"
    way.follow("Release")
    first = way.digest("acme/pytorch", "latest")
    assert way.digest("acme/pytorch", f"{RUNTIME}-r0") == first

    make_it_theirs(owner.folder)
    way.follow("Add a package")
    assert way.digest("acme/pytorch", f"{RUNTIME}-r1") == way.digest("acme/pytorch", "latest") != first
    script = "import einops, os, ssl, torch; trusted = ssl.create_default_context().get_ca_certs(); "
    script += "print(os.environ['HF_HOME'], os.getuid(), trusted)"
    output = owner.types("docker", "run", "--rm", "acme/pytorch:cpu", "python", "-c", script).stdout
    assert output.startswith("/data/huggingface 2000 ")
    assert "'Acme Root'" in output

    way.follow("Go back")
    assert way.digest("acme/pytorch", "latest") == first
    assert way.digest("acme/pytorch", f"{RUNTIME}-r1") != first


def make_it_theirs(folder: Path) -> None:
    """Add all settings of the page's YAML examples to the matrix, and write the files that they name."""
    texts = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    images = [document["images"] for document in map(yaml.safe_load, texts) if "images" in document]
    (glob,) = {name for each in images for name in each}
    added = {key: value for each in images for key, value in each[glob].items()}
    assert {"packages", "env", "labels", "certificates", "files", "user"} == set(added)
    for name, content in (
        (added["certificates"][0], AUTHORITY),
        ("files/job.py", "print('a job')\n"),
        ("files/conf/acme.ini", "[acme]\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    with (folder / "matrix.yaml").open("a") as matrix:
        matrix.write("\n" + yaml.safe_dump({"images": {glob: added}}))


def test_as_a_submodule_nox_alone_is_enough(tmp_path: Path, bare: Bare, first: Completed) -> None:
    assert first.returncode == 0  # which installed what the commands need
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "noxfile.py").write_text(source)
    (tmp_path / "torchbake").symlink_to(bare.tree)
    (tmp_path / "matrix.yaml").write_text((ROOT / "matrix.yaml").read_text().replace("torchbake/pytorch", "acme/mine"))
    process = bare.nox("-s", "list", "--", "cpu", "--format", "json", tree=tmp_path)
    assert {image["repository"] for image in json.loads(process.stdout)["images"]} == {"acme/mine"}


def typed_in(page: Path) -> dict[str, list[str]]:
    """The lines that a page tells people to type, by section."""
    sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
    return {
        text.partition("\n")[0]: re.findall(
            r"^    (\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
        )
        for text in sections
    }
