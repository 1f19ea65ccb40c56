"""The Ansible in PATH, and its failures."""

import importlib.metadata
from pathlib import Path

import pytest

from torchbake.errors import InstallError
from torchbake.hosts import ansible

pytestmark = pytest.mark.usefixtures("own_processes")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of an ansible-playbook, which this Python does not have as a package."""

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "ansible-playbook"


def write(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def test_an_ansible_that_fails_is_no_absent_one(program: Path) -> None:
    write(program, "echo \"ModuleNotFoundError: No module named 'yaml'\" >&2; exit 1")
    with pytest.raises(InstallError, match=r"ansible-playbook --version .*No module named 'yaml'"):
        ansible.find_ansible()


def test_an_ansible_whose_python_is_gone_is_named(program: Path) -> None:
    program.write_text("#!/nowhere/python3\n")
    program.chmod(0o755)
    with pytest.raises(InstallError, match=f"{program} does not start: No such file or directory"):
        ansible.find_ansible()


def test_an_old_ansible_is_named_with_its_version(program: Path) -> None:
    write(program, "echo 'ansible-playbook 2.9.6'")
    with pytest.raises(InstallError, match=r"2\.9\.6 is too old"):
        ansible.find_ansible()
    write(program, "echo 'ansible-playbook [core 2.19.1]'")
    assert not ansible.find_ansible().module


def test_without_ansible_its_package_is_named(program: Path) -> None:
    with pytest.raises(InstallError, match="ansible-core is not installed"):
        ansible.find_ansible()
