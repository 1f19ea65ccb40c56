"""The lock from apt's answers: each step has the packages that the steps below it lack."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.debian.packages import MIRROR, SECURITY, address, package
from torchbake.debian.lockfile import DebianPackage
from torchbake.debian.solve import SCRIPT, lock_of, words_of
from torchbake.debian.steps import AptStep
from torchbake.errors import LockError
from torchbake.hostconfig.apt_archives import archive_of, known_archives
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.spec import BaseSpec

BASE = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
SYSTEM = AptStep(name="system", packages=("python3",))
GIT = AptStep(name="added", packages=("git",), below=("python3",))
PYTHON, PERL, TOOL = package("python3", "3.11.2-1+b1"), package("perl"), package("git", "1:2.39.5-0+deb12u2")
BASE_PACKAGES = tuple(package(f"lib{letter}") for letter in "abcdefgh")
FIX = package("libssl3", "3.0.18-1", archive="security", path="pool/updates/main/o/openssl/libssl3_3.0.18-1_amd64.deb")


def answer(**sections: Iterable[DebianPackage]) -> str:
    lines = {name.replace("_", " "): map(address, packages) for name, packages in sections.items()}
    return "".join(f"[{name}]\n" + "".join(f"{line}\n" for line in each) for name, each in lines.items())


def test_the_requests_are_all_steps_with_those_below_them() -> None:
    assert words_of([GIT, SYSTEM], bootstrapped=True) == "bootstrapped\npython3\npython3 git\n"
    assert words_of([GIT], bootstrapped=False) == "\npython3\npython3 git\n"


def test_a_step_has_what_the_steps_below_it_lack() -> None:
    output = answer(
        base=reversed(BASE_PACKAGES), upgrade=[FIX], python3=[PYTHON, FIX], python3_git=[PYTHON, PERL, TOOL, FIX]
    )
    lock = lock_of(BASE, [SYSTEM, GIT], output, [archive_of("debian")])
    assert lock.base == BASE_PACKAGES
    assert lock.upgrade == (FIX,)
    assert lock.installs == {"python3": (PYTHON,), "git after python3": (TOOL, PERL)}


@pytest.mark.parametrize(
    "host", ["https://deb.debian.org/debian-security", "http://security.debian.org/debian-security"]
)
def test_public_archives_have_several_addresses(host: str) -> None:
    output = answer(base=[], upgrade=[FIX], python3=[]).replace(SECURITY, host)
    assert lock_of(BASE, [SYSTEM], output, known_archives("debian", AptConfig())).upgrade == (FIX,)


def test_an_address_of_the_hosts_mirror_is_relative_too() -> None:
    output = answer(base=[], upgrade=[FIX], python3=[]).replace(SECURITY, "http://me:pw@mirror.example/security")
    for end in ("", "/"):
        host = AptConfig(security_mirror=f"http://me:pw@mirror.example/security{end}")
        assert lock_of(BASE, [SYSTEM], output, known_archives("debian", host)).upgrade == (FIX,)
    from_mirror = archive_of("debian")
    with pytest.raises(LockError, match=r"libssl3 comes from http://mirror\.example"):
        lock_of(BASE, [SYSTEM], output, [from_mirror])


def test_no_package_of_a_mirror_with_one_address_is_a_fix() -> None:
    ubuntu = archive_of("ubuntu", AptConfig(ubuntu_mirror="http://mirror.example/ubuntu"))
    output = answer(base=[], upgrade=[PERL], python3=[PYTHON]).replace(MIRROR, ubuntu.mirror)
    assert lock_of(BASE, [SYSTEM], output, [ubuntu]).upgrade == (PERL,)
    security = answer(base=[], upgrade=[FIX], python3=[PYTHON])
    assert lock_of(BASE, [SYSTEM], security, [archive_of("debian")]).upgrade == (FIX,)


@pytest.mark.parametrize(
    "line", ["E: no packages", f"{address(PYTHON)} more", address(PYTHON).replace("SHA256", "MD5Sum")]
)
def test_a_line_without_a_hash_is_an_error(line: str) -> None:
    with pytest.raises(LockError, match="debian12"):
        lock_of(BASE, [SYSTEM], answer(base=[], upgrade=[], python3=[]) + line + "\n", [archive_of("debian")])


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.usefixtures("own_processes")
def test_a_base_that_no_mirror_has_whole_is_no_lock(tmp_path: Path, dropped: bool) -> None:
    """apt-get leaves out the address of a package that no mirror has, and its exit code is 0."""
    programs = {
        "dpkg-query": "echo libc6=1\necho tar=1",
        "apt-get": 'case "$*" in *--reinstall*) echo "\'libc6\'"; %s ;; esac' % ("" if dropped else "echo \"'tar'\""),
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "words").write_text(words_of([SYSTEM], bootstrapped=True))
    command = ["sh", "-c", SCRIPT, "sh", str(tmp_path / "words")]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (process.returncode == 0) is not dropped
    assert ("--upgrade" in process.stderr) is dropped
    assert dropped or process.stdout == "[base]\n'libc6'\n'tar'\n[upgrade]\n[python3]\n"
