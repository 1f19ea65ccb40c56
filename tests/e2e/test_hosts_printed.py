"""Type the commands of docs/hosts.md, "By Ansible alone", on bare hosts: each gets real torch for the CPU.

The hosts have an sshd and no `python3`. Web servers stand in for PyPI and for PyTorch's index, which not every machine
reaches: a host knows them by its own /etc/hosts, and trusts their certificate by `pytorch_ca_file`.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import docker
import pytest

from tests.e2e.bare import ROOT, Bare, copy_tree
from tests.e2e.boxes import BOOKWORM, SSHD, Boxes, new_boxes, purge_python
from tests.e2e.plays import locked_wheels
from tests.e2e.serving import web_of

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare hosts; apt has it"),
]
PAGE = (ROOT / "docs/hosts.md").read_text()
SYSTEMS = {
    "debian12": BOOKWORM,
    # The lock is for Python 3.11, which uv downloads from GitHub where it can be reached: here it is installed.
    "debian13": {"suite": "trixie", "packages": (*SSHD, "python3.11"), "older": "bookworm"},
}
PYTORCH, PYPI = "download.pytorch.org", "pypi.org"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, bare: Bare) -> Path:
    """Folders of web servers: PyPI has no torch for the CPU, and PyTorch's index has nothing else."""
    folder = tmp_path_factory.mktemp("web")
    simple, whl = folder / PYPI / "simple", folder / PYTORCH / "whl/cpu"
    for each in (simple, whl):
        each.mkdir(parents=True)
    locked_wheels(bare, simple)
    (simple / "torch").rename(whl / "torch")
    return folder


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for both names, which is nobody's authority."""
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "settings").write_text("[req]\ndistinguished_name = name\n[name]\n")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-config", folder / "settings", "-subj", "/CN=stand-in", "-addext", "basicConstraints=critical,CA:FALSE",
         "-addext", f"subjectAltName=DNS:{PYTORCH},DNS:{PYPI}",
         "-keyout", folder / "key.pem", "-out", folder / "ca.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "ca.pem"


def printed(first: str) -> str:
    """The block of the page that begins with this line, as it is typed."""
    lines = PAGE[PAGE.index(f"    {first}") :].splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[:end]))


def typed(text: str, folder: Path, boxes: Boxes) -> subprocess.CompletedProcess[str]:
    """Run the text in a shell with a fresh Python environment and with the ssh settings of the boxes."""
    home, venv = folder / "home", folder / "venv"
    if not home.exists():
        (home / ".ssh").mkdir(parents=True)
        shutil.copy(boxes.key.with_suffix(".pub"), home / ".ssh/id_ed25519.pub")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    env = {**boxes.env(), "HOME": str(home), "PATH": f"{venv}/bin:{os.environ['PATH']}"}
    env.pop("ANSIBLE_HOME")
    return subprocess.run(
        ["bash", "-euc", text], cwd=folder / "tree", env=env, timeout=1800, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


# test_hosts.py has Debian 13 with a stand-in for torch; the real one takes minutes there too.
@pytest.mark.parametrize("system", ["debian12", pytest.param("debian13", marks=pytest.mark.long)])
def test_a_bare_host_gets_torch_by_what_the_page_prints(
    system: str, engine: docker.DockerClient, web: Path, certificate: Path, tmp_path: Path
) -> None:
    with new_boxes(engine, {"foo_bar": SYSTEMS[system]}) as boxes:
        (box,) = boxes.boxes
        if system == "debian12":
            purge_python(box)
        box.inside("! command -v python3 && ! command -v sudo")
        gateway = next(iter(box.container.attrs["NetworkSettings"]["Networks"].values()))["Gateway"]
        box.inside(f"echo {gateway} {PYTORCH} {PYPI} >> /etc/hosts")
        copy_tree(tmp_path / "tree")
        commands = printed("pip install ansible-core uv")
        assert commands.endswith("\n./deploy_host sample_playbook.yml sample_group")
        with web_of(web, gateway, certificate) as seen_names:
            process = typed(f"{commands} -e pytorch_ca_file={certificate}", tmp_path, boxes)
            assert process.returncode == 0, process.stdout
            assert f"https://{PYTORCH}/whl/cpu/torch/" in seen_names, "the index that the lock names"
        then = printed("cd pytorch\n").replace("\n", " && ")
        assert box.ssh(then, user="pytorch").stdout == "2.13.0+cpu\n"
        assert box.ssh("sudo id -un", user="admin").stdout == "root\n"
