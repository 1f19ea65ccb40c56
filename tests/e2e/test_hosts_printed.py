"""The commands of docs/how-to/hosts.md, "By Ansible alone", on a bare Debian 13. test_hosts_door.py has Debian 12."""

import shutil
from pathlib import Path

import docker
import pytest

from tests.e2e.bare import Bare
from tests.e2e.boxes import SSHD, new_boxes
from tests.e2e.page_hosts import check_page, install_by_page

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.long,  # test_hosts.py has Debian 12 with a stand-in for torch
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare host; apt has it"),
]
# The lock is for Python 3.11, which uv downloads from GitHub where it can be reached: here it is installed.
SYSTEM = {"suite": "trixie", "packages": (*SSHD, "python3.11"), "older": "bookworm"}


def test_a_bare_debian_13_gets_torch_by_what_the_page_prints(
    engine: docker.DockerClient, bare: Bare, tmp_path: Path
) -> None:
    with new_boxes(engine, {"foo_bar": SYSTEM}) as boxes:
        (box,) = boxes.boxes
        install_by_page(box, bare, tmp_path)
        check_page(box)
