"""Rules of the house that no other tool checks, and the purity of this tier itself."""

import os
import re
import socket
import subprocess
import tomllib
import urllib.request
from collections.abc import Callable

import pytest

from tests.unit.conftest import NotPureError
from torchbake.cli import VERBS
from torchbake.project import TOOLKIT

PYPROJECT = tomllib.loads((TOOLKIT / "pyproject.toml").read_text())
NOXFILE = (TOOLKIT / "noxfile.py").read_text()
MODULES = sorted([*(TOOLKIT / "torchbake").rglob("*.py"), *(TOOLKIT / "layers").rglob("*.py")])


def header() -> dict[str, list[str]]:
    """The noxfile's own requirements: https://packaging.python.org/en/latest/specifications/inline-script-metadata/"""
    block = re.search(r"(?m)^# /// script$\n((?:^#(?: .*)?$\n)+?)^# ///$", NOXFILE)
    assert block, "the noxfile has no `# /// script` header"
    return tomllib.loads(
        "".join(line.removeprefix("#").removeprefix(" ") for line in block[1].splitlines(keepends=True))
    )


def test_the_noxfile_asks_for_what_the_package_needs_and_nox() -> None:
    asked, needed = header()["dependencies"], PYPROJECT["project"]["dependencies"]
    assert set(needed) <= set(asked)
    assert [re.match(r"[a-z]+", extra)[0] for extra in set(asked) - set(needed)] == ["nox"]  # type: ignore[index]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_session(verb: str) -> None:
    assert f'verb(session, "{verb}")' in NOXFILE


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(TOOLKIT)))
def test_a_module_is_short_enough_to_read_from_top_to_bottom(path: os.PathLike[str]) -> None:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        assert sum(1 for _ in file) <= 350


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path.name for path in MODULES if not re.match(r'(#!.*\n)?r?"""\S', path.read_text()) and path.stat().st_size
    ]
    assert silent == []


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: subprocess.run(["true"], check=False),
        lambda: subprocess.Popen(["true"]),
        lambda: subprocess.check_output("true", shell=True),
        lambda: os.system("true"),
        lambda: os.popen("true"),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: socket.socket(socket.AF_UNIX).connect("/nowhere.sock"),
        lambda: urllib.request.urlopen("http://127.0.0.1:9/"),
    ],
    ids=["run", "Popen", "check_output", "system", "popen", "posix_spawn", "connection", "engine's socket", "urlopen"],
)
def test_this_tier_starts_no_process_and_opens_no_connection(attempt: Callable[[], object]) -> None:
    with pytest.raises(NotPureError, match="a unit test must not"):
        attempt()
