"""`keep-torch`: what installers would install, which torch is the image's, and the command itself."""

import subprocess
from pathlib import Path

import pytest

from entrypoints.pytorch.installers.entry import entries
from entrypoints.pytorch.installers.judge import ImageTorch, packages_to_keep, refusal
from entrypoints.pytorch.installers.keep import main
from entrypoints.pytorch.installers.plan import dry_run, installer_of, to_install
from layers.wheels.entries import pins, write_entries

CUDA = ImageTorch(
    build="2.10.0+cu128", packages={"torch": "2.10.0", "triton": "3.6.0", "nvidia-cublas-cu12": "12.8.4.1"}
)
CPU = ImageTorch(build="2.13.0+cpu", packages={"torch": "2.13.0+cpu"})
UV = """\
Would use project environment at: /opt/venv
Would download 3 packages
Would uninstall 1 package
 + einops==0.8.2
 - torch==2.10.0
 + torch==2.10.0+cu128
 ~ trainer==0.1.0 (from file:///app)
"""
POETRY = """\
Installing dependencies from lock file

Package operations: 1 install, 1 update, 0 removals, 1 skipped

  - Installing einops (0.8.2)
  - Installing sympy (1.14.0): Skipped for the following reason: Already installed
  - Downgrading torch (2.13.0+cpu -> 2.9.1+cpu)
  - Removing six (1.17.0)
"""


def test_a_dry_run_names_the_packages_to_install() -> None:
    cases = {
        ("uv", "sync", "--frozen", "-q"): (UV, {"einops": "0.8.2", "torch": "2.10.0+cu128", "trainer": "0.1.0"}),
        ("poetry", "install", "--quiet"): (POETRY, {"einops": "0.8.2", "torch": "2.9.1+cpu"}),
    }
    for command, (output, packages) in cases.items():
        installer = installer_of(command)
        assert installer
        assert to_install(installer, output) == packages
        words = dry_run(installer, command)
        assert "--dry-run" in words
        assert not {"-q", "--quiet"} & set(words), "they hide the result"
    assert installer_of(("pip", "install", "torch")) is None


def test_a_torch_of_another_version_or_build_is_another_torch() -> None:
    cases = [
        (CUDA, "2.10.0", "", True),
        (CUDA, "2.10.0+cu128", "", True),
        (CUDA, "2.10.0+cpu", "", False),
        (CUDA, "2.10.0+cu126", "nvidia-cublas-cu12", False),
        (CUDA, "2.10.0", "nvidia-cublas-cu12", False),
        (CUDA, "2.9.1", "", False),
        (CPU, "2.13.0+cpu", "", True),
        (CPU, "2.13.0", "", False),
    ]
    for torch, version, other, same in cases:
        assert torch.is_same(version, {other: "1"} if other else {}) is same, (torch.build, version)


def test_packages_of_cuda_are_kept_but_not_others_of_nvidia() -> None:
    packages = dict.fromkeys(
        ("numpy", "nvidia-ml-py", "nvidia-cublas", "nvidia-nccl-cu13", "torch", "torchvision"), "1"
    )
    assert packages_to_keep(CPU, packages).keys() == {"nvidia-cublas", "nvidia-nccl-cu13", "torch"}
    text = refusal(CPU, packages_to_keep(CPU, {**packages, "torch": "2.9.1"}), "cpu-image")
    assert "torch 2.9.1, " in text
    assert "torch 2.13.0+cpu" in text
    text = refusal(CUDA, {"nvidia-cublas-cu12": "12.9.1.4", "nvidia-nvtx": "1"}, "cuda-image")
    assert "nvidia-cublas-cu12 12.9.1.4 and 1 more" in text
    assert "has nvidia-cublas-cu12 12.8.4.1" in text


class Image:
    """An environment with torch outside of it, and an installer whose dry run is known."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.site, self.monkeypatch, self.capsys = folder / "site", monkeypatch, capsys
        code, info = folder / "code", "torch-2.10.0.dist-info"
        for path in (self.site, code / "torch", code / info):
            path.mkdir(parents=True)
        (code / "torch/__init__.py").write_text("raise SystemExit('torch was imported')\n")
        (code / "torch/version.py").write_text("__version__ = '2.10.0+cu128'\n")
        (code / info / "METADATA").write_text("Name: torch\nVersion: 2.10.0\nRequires-Dist: sympy\n")
        write_entries(self.site, str(code), pins("torch==2.10.0 \\\n"))
        self.constraints = folder / "constraints.txt"
        self.constraints.write_text("# why\ntorch===2.10.0\nnumpy==1\n")
        monkeypatch.syspath_prepend(str(code))
        monkeypatch.setattr("sysconfig.get_path", lambda name: str(self.site))
        monkeypatch.setattr("shutil.which", lambda name: None if name == "poetry" else f"/bin/{name}")
        monkeypatch.setattr("os.execvp", lambda name, words: print("ran:", *words) or 0)
        for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):
            monkeypatch.setenv(name, str(self.constraints))
        monkeypatch.delenv("UV_EXCLUDE", raising=False)

    def keep(self, *words: str, plan: str = "", code: int = 0) -> tuple[int, str, str]:
        """Run `keep-torch`, and return its code, output and errors. ``plan`` and ``code`` are those of the dry run."""
        process = subprocess.CompletedProcess((), code, stdout="", stderr=plan)
        self.monkeypatch.setattr("subprocess.run", lambda *args, **options: process)
        try:
            code = main(words)
        except SystemExit as error:
            code = int(str(error.code))
        return (code, *self.capsys.readouterr())

    def versions(self) -> list[str]:
        return [version for name, version, _ in entries(self.site) if name == "torch"]


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Image:
    return Image(tmp_path, monkeypatch, capsys)


def test_a_lock_without_another_torch_is_installed_as_typed(image: Image) -> None:
    assert image.keep("uv", "sync", "--frozen", plan=" + einops==0.8.2\n") == (0, "ran: uv sync --frozen\n", "")
    assert image.versions() == ["2.10.0"]


def test_torch_gets_the_label_of_the_lock(image: Image) -> None:
    plan = " - torch==2.10.0\n + torch==2.10.0+cu128\n"
    assert image.keep("uv", "sync", plan=plan) == (0, "ran: uv sync\n", "")
    assert image.versions() == ["2.10.0+cu128"]
    (folder,) = (folder for name, _, folder in entries(image.site) if name == "torch")
    assert (folder / "METADATA").read_text() == "Name: torch\nVersion: 2.10.0+cu128\nRequires-Dist: sympy\n"
    assert not any(path.is_symlink() for path in folder.iterdir()), "pip would leave the links behind"
    assert image.constraints.read_text() == "# why\ntorch==2.10.0+cu128\nnumpy==1\n"
    assert image.keep("uv", "sync", plan=" + torch==2.10.0\n")[0] == 0
    assert image.versions() == ["2.10.0"]
    assert "torch===2.10.0\n" in image.constraints.read_text()


def test_another_torch_is_refused_before_anything_changes(image: Image) -> None:
    library = " + nvidia-nccl-cu13==2.29.7\n"
    for plan in (" + torch==2.9.1\n", " + torch==2.10.0+cpu\n", f" + torch==2.10.0\n{library}", library):
        code, output, errors = image.keep("uv", "sync", "--frozen", plan=plan)
        assert (code, output) == (2, ""), plan
        assert errors.startswith("keep-torch: the project wants ")
        assert errors.count("\n") == 1
        assert "2.10.0+cu128" in errors
    assert image.versions() == ["2.10.0"]


def test_any_build_accepts_another_accelerator_but_no_version(image: Image) -> None:
    plan = " + torch==2.10.0+cu130\n + nvidia-cublas==13.1\n + nvidia-ml-py==13\n"
    output = image.keep("--any-build", "uv", "sync", plan=plan)[1]
    assert output == "ran: uv sync --no-install-package nvidia-cublas\n"
    assert image.versions() == ["2.10.0+cu130"]
    assert image.keep("--any-build", "uv", "sync", plan=" + torch==2.9.1\n")[0] == 2


def test_pip_sees_the_label_that_fits_every_requirement(image: Image) -> None:
    assert image.keep("pip", "install", "-r", "r.txt") == (0, "ran: pip install -r r.txt\n", "")
    assert image.versions() == ["2.10.0+cu128"]
    image.constraints.unlink()
    assert image.keep("uv", "pip", "install", "einops")[0] == 2, "nothing would keep pip from replacing torch"


def test_what_keep_torch_cannot_check_it_does_not_start(image: Image) -> None:
    code, output, errors = image.keep("uv", "sync", plan="error: the lock is damaged\n", code=1)
    assert (code, output) == (1, "")
    assert "the lock is damaged" in errors
    assert image.keep("make", "install")[0] == 64
    assert image.keep("poetry", "install")[0] == 127
    for _, _, folder in list(entries(image.site)):
        (folder / "INSTALLER").write_text("uv")
    assert "another torch was installed" in image.keep("uv", "sync")[2]
