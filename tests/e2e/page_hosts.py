"""The commands of docs/how-to/hosts.md, "By Ansible alone", typed for a bare host: it gets real torch for the CPU.

Web servers replace PyPI and PyTorch's index, which not every machine reaches: a host knows them by its own
/etc/hosts, and trusts their certificate by `pytorch_ca_file`.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.e2e.bare import ROOT, Bare, copy_tree
from tests.e2e.boxes import Box
from tests.e2e.plays import locked_wheels
from tests.e2e.serving import web_of

PAGE = (ROOT / "docs/how-to/hosts.md").read_text()
PYTORCH, PYPI = "download.pytorch.org", "pypi.org"


def install_by_page(box: Box, bare: Bare, folder: Path) -> None:
    """Type the commands of the page until the host `foo_bar` has torch."""
    box.inside("! command -v python3 && ! command -v sudo")
    gateway = next(iter(box.container.attrs["NetworkSettings"]["Networks"].values()))["Gateway"]
    box.inside(f"echo {gateway} {PYTORCH} {PYPI} >> /etc/hosts")
    copy_tree(folder / "tree")
    commands, certificate = printed("pip install ansible-core uv"), _certificate(folder / "certificate")
    assert commands.endswith("\n./deploy_host sample_playbook.yml sample_group")
    with web_of(_web(folder / "web", bare), gateway, certificate) as requests_seen:
        process = typed(f"{commands} -e pytorch_ca_file={certificate}", folder, box)
        assert process.returncode == 0, process.stdout
        assert f"https://{PYTORCH}/whl/cpu/torch/" in requests_seen, "the index that the lock names"


def _web(folder: Path, bare: Bare) -> Path:
    """Make the folders of web servers: PyPI has no torch for the CPU, and PyTorch's index has nothing else."""
    simple, whl = folder / PYPI / "simple", folder / PYTORCH / "whl/cpu"
    for each in (simple, whl):
        each.mkdir(parents=True)
    locked_wheels(bare, simple)
    (simple / "torch").rename(whl / "torch")
    return folder


def _certificate(folder: Path) -> Path:
    """Make a certificate for both names, which is nobody's authority."""
    folder.mkdir()
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
    """Return the block of the page that begins with this line, as it is typed."""
    lines = PAGE[PAGE.index(f"    {first}") :].splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[:end]))


def typed(text: str, folder: Path, box: Box) -> subprocess.CompletedProcess[str]:
    """Run the text in a shell with a fresh Python environment and with the ssh settings of the boxes."""
    home, venv, boxes = folder / "home", folder / "venv", box.boxes
    (home / ".ssh").mkdir(parents=True)
    shutil.copy(boxes.key.with_suffix(".pub"), home / ".ssh/id_ed25519.pub")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    env = {**boxes.env(), "HOME": str(home), "PATH": f"{venv}/bin:{os.environ['PATH']}"}
    env |= {"PIP_NO_COMPILE": "1"}  # Python compiles the few modules of Ansible that it imports
    env.pop("ANSIBLE_HOME")
    return subprocess.run(
        ["bash", "-euc", text], cwd=folder / "tree", env=env, timeout=1800, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def check_page(box: Box) -> None:
    """Check that the new users log in: one of them runs torch, as the page says, and the other has sudo."""
    then = printed("cd pytorch\n").replace("\n", " && ")
    assert box.ssh(then, user="pytorch").stdout == "2.13.0+cpu\n"
    assert box.ssh("sudo id -un", user="admin").stdout == "root\n"
