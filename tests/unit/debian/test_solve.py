"""The lock from apt's answers: each step has the packages that the steps below it lack."""

from collections.abc import Iterable

import pytest

from tests.unit.debian.packages import SECURITY, address, package
from torchbake.debian.lockfile import DebianPackage
from torchbake.debian.solve import lock_of, words_of
from torchbake.debian.steps import AptStep
from torchbake.errors import LockError
from torchbake.hostconfig.apt_archives import archive_of
from torchbake.matrix.spec import BaseSpec

BASE = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
SYSTEM = AptStep(name="system", packages=("python3",))
GIT = AptStep(name="added", packages=("git",), below=("python3",))
PYTHON, PERL, TOOL = package("python3", "3.11.2-1+b1"), package("perl"), package("git", "1:2.39.5-0+deb12u2")
FIX = package("libssl3", "3.0.18-1", archive="security", path="pool/updates/main/o/openssl/libssl3_3.0.18-1_amd64.deb")


def answer(**sections: Iterable[DebianPackage]) -> str:
    lines = {name.replace("_", " "): map(address, packages) for name, packages in sections.items()}
    return "".join(f"[{name}]\n" + "".join(f"{line}\n" for line in each) for name, each in lines.items())


def test_the_requests_are_all_steps_with_those_below_them() -> None:
    assert words_of([GIT, SYSTEM], bootstrapped=True) == "bootstrapped\npython3\npython3 git\n"
    assert words_of([GIT], bootstrapped=False) == "\npython3\npython3 git\n"


def test_a_step_has_what_the_steps_below_it_lack() -> None:
    output = answer(
        base=[package("libc6")], upgrade=[FIX], python3=[PYTHON, FIX], python3_git=[PYTHON, PERL, TOOL, FIX]
    )
    lock = lock_of(BASE, [SYSTEM, GIT], output, [archive_of("debian")])
    assert lock.base == (package("libc6"),)
    assert lock.upgrade == (FIX,)
    assert lock.installs == {"python3": (PYTHON,), "git after python3": (TOOL, PERL)}


def test_an_address_of_the_hosts_mirror_is_relative_too() -> None:
    output = answer(base=[], upgrade=[FIX], python3=[]).replace(SECURITY, "http://mirror.example/security")
    from_mirror = archive_of("debian")
    with pytest.raises(LockError, match=r"libssl3 comes from http://mirror\.example"):
        lock_of(BASE, [SYSTEM], output, [from_mirror])


@pytest.mark.parametrize(
    "line", ["E: no packages", f"{address(PYTHON)} more", address(PYTHON).replace("SHA256", "MD5Sum")]
)
def test_a_line_without_a_hash_is_an_error(line: str) -> None:
    with pytest.raises(LockError, match="debian12"):
        lock_of(BASE, [SYSTEM], answer(base=[], upgrade=[], python3=[]) + line + "\n", [archive_of("debian")])
