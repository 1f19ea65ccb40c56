"""Rules of the house that no other tool checks, and the purity of this tier itself."""

import ast
import os
import re
import socket
import statistics
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.rooms import rooms_of_tests
from tests.unit import readme
from tests.unit.conftest import NotPureError
from tests.unit.syntax import outline_of
from torchbake import environment
from torchbake.commands import COMMANDS
from torchbake.core.paths import TOOLKIT

PYPROJECT = tomllib.loads((TOOLKIT / "pyproject.toml").read_text())
NOXFILE = (TOOLKIT / "noxfile.py").read_text()
_OUTPUT = TOOLKIT / "torchbake/_version.py"  # by a build, from git's tags
FIXED = {
    "filelock": "3.20.3",  # CVE-2025-68146, CVE-2026-22701: links replace a lock.
    "jinja2": "3.1.6",  # CVE-2025-27516, CVE-2024-56326: ways out of the sandbox.
    "pytest": "9.0.3",  # CVE-2025-71176: another user can make the folder in /tmp.
    "requests": "2.33",  # CVE-2024-47081, CVE-2026-25645: a password sent to another host; a file in /tmp.
    "urllib3": "2.7",  # CVE-2026-44431, CVE-2026-44432: a login sent to another host; answers of gigabytes.
    "uv": "0.9.6",  # CVE-2025-62518, GHSA-pqhf-p39g-3x64: archives that other programs read differently
}
LONGEST = 300
LONGEST_FUNCTION, USUAL_FUNCTION = 40, 10
LONGEST_TEST_NAME = 60
FOLDERS = ("torchbake", "layers", "entrypoints", "benchmarks")


def programs(folder: str) -> list[Path]:
    """The modules below a folder, and what has no suffix and says in its first line that Python runs it."""
    files = (path for path in (TOOLKIT / folder).rglob("*") if path.is_file() and path != _OUTPUT)
    return sorted(path for path in files if path.suffix == ".py" or (not path.suffix and _is_python(path)))


def _is_python(path: Path) -> bool:
    return re.match(rb"#!.*python", path.read_bytes()) is not None


MODULES = [path for folder in FOLDERS for path in programs(folder)]


def functions(folder: str) -> dict[str, int]:
    """The lines of every function below a folder, by where it stands."""
    return {
        f"{path.relative_to(TOOLKIT)}:{line} {name}": lines
        for path in programs(folder)
        for line, name, lines in outline_of(path).functions
    }


def imported(path: Path) -> set[str]:
    """The packages that a module imports when it is imported itself."""
    tree = ast.parse(path.read_text())
    nodes = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes)
    return {name.partition(".")[0] for name in names}


def test_nox_reads_the_noxfile_with_nothing_but_itself_installed() -> None:
    """A `# /// script` header would let nox install, and pip then writes to stdout at every call."""
    assert "# ///" not in NOXFILE
    modules = {"nox", "torchbake", *sys.stdlib_module_names}
    ours = (
        "__init__",
        "sessions",
        "environment",
        "errors",
        "commands/__init__",
        "core/__init__",
        "core/child",
        "core/paths",
    )
    for path in (TOOLKIT / "noxfile.py", *(TOOLKIT / f"torchbake/{name}.py" for name in ours)):
        assert imported(path) <= modules
    assert re.findall(r"from (torchbake[.\w]*) import (\w+)", NOXFILE) == [("torchbake.sessions", "define_sessions")]


def test_the_environment_of_commands_has_the_dependencies() -> None:
    assert environment.requirements(TOOLKIT) == PYPROJECT["project"]["dependencies"]


def test_no_dependency_may_have_a_hole_that_was_mended() -> None:
    specifiers = {(one := Requirement(line)).name: one.specifier for line in PYPROJECT["project"]["dependencies"]}
    for name, version in FIXED.items():
        (lowest,) = (Version(one.version) for one in specifiers[name] if one.operator == ">=")
        assert lowest >= Version(version), name


def test_every_command_is_a_module_and_what_two_share_is_none() -> None:
    names = {path.stem for path in (TOOLKIT / "torchbake/commands").glob("*.py")}
    assert {name for name in names if not name.startswith("_")} == set(COMMANDS)


def test_modules_are_short() -> None:
    lines = {str(path.relative_to(TOOLKIT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {where: count for where, count in lines.items() if count > LONGEST} == {}


def test_functions_are_short() -> None:
    for folder in FOLDERS:
        lines = functions(folder)
        assert statistics.median(lines.values()) <= USUAL_FUNCTION, folder
        assert {where: count for where, count in lines.items() if count > LONGEST_FUNCTION} == {}


def test_names_of_tests_are_short() -> None:
    texts = {path: path.read_text() for path in (TOOLKIT / "tests").rglob("*.py")}
    names = {name: path.name for path, text in texts.items() for name in re.findall(r"def (test_\w+)", text)}
    assert {name: path for name, path in names.items() if len(name) > LONGEST_TEST_NAME} == {}


def test_what_is_measured_has_what_runs_inside_images_and_builds() -> None:
    names = {str(path.relative_to(TOOLKIT)) for path in MODULES}
    assert {"entrypoints/pytorch/run", "entrypoints/pytorch/launch/contract.py", "benchmarks/run.py"} <= names
    assert {"layers/wheels/__main__.py", "torchbake/cli.py"} <= names


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


def test_the_readme_begins_with_a_clone_and_needs_one_package() -> None:
    clone, build = readme.FIRST.splitlines()
    assert clone == f"git clone {readme.URL} && cd {readme.URL.rpartition('/')[2]}"
    assert build == f"{readme.CHECK} -s setup build -- cpu runtime"
    assert readme.PACKAGES == ("git", "python3-venv")


def test_ci_runs_the_readmes_test_command() -> None:
    assert (TOOLKIT / ".ci/run").read_text().splitlines()[-1] == readme.CHECK


def test_each_file_of_tests_on_the_engine_names_one_room() -> None:
    names = rooms_of_tests()
    assert names
    assert {name: matches for name, matches in names.items() if len(matches) != 1} == {}


def test_a_list_of_containers_bears_that_others_remove_theirs() -> None:
    """docker-py inspects each container of its list, and fails if another test removed it in the meantime."""
    matches = [
        f"{path.relative_to(TOOLKIT)}:{number}"
        for path in sorted((TOOLKIT / "tests").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for words in re.findall(r"containers\.list\((.*)\)", line)
        if "ignore_removed=True" not in words
    ]
    assert matches == []


def test_what_many_need_is_defined_once() -> None:
    modules = [*(TOOLKIT / "torchbake").rglob("*.py"), *(TOOLKIT / "tests/images").rglob("*.py")]
    texts = {str(path.relative_to(TOOLKIT)): path.read_text() for path in modules}
    for pattern, place in {
        r'add_argument\(\s*"--(format|jobs|registry|plain-http|shard)"': "commands/_options.py",
        r'/ f?"\.torchbake': "core/paths.py",
        r"(?<!hex)digest[^\n]*\[:1[29]\]": "core/digest.py",
        r"1e[69]:|value /= 1000": "core/sizes.py",
        r'"auto", "require", "off"': "engine/gpu.py",
    }.items():
        assert {path for path, text in texts.items() if re.search(pattern, text)} <= {f"torchbake/{place}"}, pattern


def test_nothing_unpickles_what_another_process_sent() -> None:
    """Unpickling runs code. torch's collectives for objects do so; torch.load without weights_only does, too."""
    forbidden = re.compile(
        r"\b(pickle|marshal|dill|cloudpickle)\.(loads?|Unpickler)\b"
        r"|\b(all_gather|broadcast|scatter|gather|send|recv)_object(_list)?\("
        r"|\btorch\.load\((?![^\n]*weights_only=True)"
    )
    texts = {path: path.read_text() for folder in (*FOLDERS, "examples") for path in programs(folder)}
    texts |= {path: path.read_text() for path in (TOOLKIT / "docs").rglob("*.md")}  # people copy from both
    assert [str(path) for path, text in texts.items() if forbidden.search(text)] == []
