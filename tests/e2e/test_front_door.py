"""nox as a newcomer has it: installed by pip alone. Results on stdout, all else on stderr, from the first call on."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.bare import ROOT, Bare, copy_tree
from torchbake.errors import InstallError, MatrixError, SelectorError

pytestmark = pytest.mark.doors

Completed = subprocess.CompletedProcess[str]
LISTED = ("-s", "list", "--", "all", "--format", "json")
INSTALLS = "installing its Python packages"


@pytest.fixture(scope="module")
def uv_tree(bare: Bare, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Another tree, without an environment until a test makes one, and a shell that has uv."""
    return copy_tree(tmp_path_factory.mktemp("uv") / "tree"), bare.env(uv=True)


def images(process: Completed) -> list[str]:
    assert process.returncode == 0, process.stderr
    return [image["id"] for image in json.loads(process.stdout)["images"]]


def test_the_first_call_reports_its_installation_on_stderr_alone(first: Completed) -> None:
    assert "volume-permissions" in images(first)
    assert first.stderr.count(INSTALLS) == 1


def test_later_calls_install_nothing(bare: Bare, first: Completed) -> None:
    later = bare.nox(*LISTED)
    assert images(later) == images(first)
    assert INSTALLS not in later.stderr


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("list", "--", "all", "--format", "github"), r'\{"include": \[.*\]\}\n'),
        pytest.param(("tags", "--", "cpu", "--format", "json"), r"(?s)\{\n.*\}\n", marks=pytest.mark.long),
        (("list", "--", "--version"), r"torchbake 0\+\S+\n"),
        (("render", "--", "--check"), r""),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_stdout_holds_the_result_alone(bare: Bare, first: Completed, words: tuple[str, ...], shape: str) -> None:
    process = bare.nox("-s", *words)
    assert process.returncode == 0, process.stderr
    assert re.fullmatch(shape, process.stdout)


def test_nox_itself_installs_nothing(bare: Bare, tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "tree")
    process = bare.nox("-l", tree=tree)
    assert process.returncode == 0
    assert "- build -> " in process.stdout
    assert not (tree / ".nox").exists()


def test_two_at_once_make_one_environment(bare: Bare, uv_tree: tuple[Path, dict[str, str]]) -> None:
    tree, env = uv_tree
    command, pipe = [f"{bare.venv}/bin/nox", *LISTED], subprocess.PIPE
    both = [subprocess.Popen(command, cwd=tree, env=env, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    outs, errs = zip(*(process.communicate(timeout=580) for process in both), strict=True)
    assert [process.returncode for process in both] == [0, 0], errs
    assert json.loads(outs[0]) == json.loads(outs[1])
    assert "".join(errs).count(INSTALLS) == 1


def test_an_environment_that_was_cut_off_is_made_again(bare: Bare, uv_tree: tuple[Path, dict[str, str]]) -> None:
    tree, env = uv_tree
    assert images(bare.nox(*LISTED, tree=tree, env=env))
    (product,) = (path for path in (tree / ".nox").iterdir() if path.is_dir())
    (product / "torchbake-ready").unlink()
    shutil.rmtree(next(product.glob("lib/python*/site-packages/yaml")))
    again = bare.nox(*LISTED, tree=tree, env=env)
    assert images(again)
    assert INSTALLS in again.stderr


def test_missing_packages_are_an_error_with_a_next_step(bare: Bare, tmp_path: Path) -> None:
    nowhere = {name: value for name, value in bare.env().items() if not name.startswith("PIP_")}
    nowhere |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1"}
    process = bare.nox(*LISTED, tree=copy_tree(tmp_path / "tree"), env=nowhere)
    assert process.returncode == InstallError.exit_code
    assert process.stdout == ""
    assert "No matching distribution" in process.stderr  # pip's own reason
    assert "  next: " in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("-s", "nosuch"), 3),
        (("-s", "list", "--", "nosuch"), SelectorError.exit_code),
        pytest.param(
            ("-s", "list", "--", "all", "--matrix", "nosuch.yaml"), MatrixError.exit_code, marks=pytest.mark.long
        ),
        (("-s", "list", "--", "all", "--nosuch"), 2),
        pytest.param(("--nosuch",), 2, marks=pytest.mark.long),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else str(part),
)
def test_a_code_of_ours_is_not_nox_s_own_for_something_else(
    bare: Bare, first: Completed, words: tuple[str, ...], code: int
) -> None:
    process = bare.nox(*words)
    assert process.returncode == code, process.stderr
    assert "Traceback" not in process.stderr


def test_a_relative_matrix_is_the_one_where_the_user_stands(bare: Bare, first: Completed, tmp_path: Path) -> None:
    text = (ROOT / "matrix.yaml").read_text()
    (tmp_path / "matrix.yaml").write_text(text.replace("repository: torchbake/", "repository: mine/"))
    plain = bare.nox("-s", "tags", "--", "cpu", folder=tmp_path)
    process = bare.nox("-s", "tags", "--", "cpu", "--matrix", "matrix.yaml", folder=tmp_path)
    assert "torchbake/pytorch:" in plain.stdout
    assert "mine/pytorch:" in process.stdout
    assert "torchbake/pytorch:" not in process.stdout


def test_a_module_where_the_user_stands_is_not_taken_for_ours(bare: Bare, first: Completed, tmp_path: Path) -> None:
    for name in ("yaml", "torchbake", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    assert images(bare.nox(*LISTED, folder=tmp_path)) == images(first)


def test_a_build_is_planned_from_any_folder(bare: Bare, first: Completed, tmp_path: Path) -> None:
    process = bare.nox("-s", "build", "--", "volume-permissions", "--dry-run", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_its_packages_the_module_says_what_to_do() -> None:
    process = subprocess.run(
        [sys.executable, "-S", "-m", "torchbake", "list", "all"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == InstallError.exit_code
    assert process.stderr.startswith("error: The toolkit needs the Python package 'rich'")
    assert "nox -s" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("nox -s rend", {"render"}),
        ("nox -s build -- --dry", {"--dry-run"}),
        pytest.param("nox -s list -- cpu --format ", {"table", "json", "github", "ids"}, marks=pytest.mark.long),
        pytest.param("nox -s list -- 2.13.0-cpu-run", {"2.13.0-cpu-runtime-debian12"}, marks=pytest.mark.long),
        ("nox -s test -- cuda12 '!de", {"!devel", "!debian12", "!debian13"}),
    ],
)
def test_tab_completes_sessions_options_and_images(bare: Bare, first: Completed, typed: str, offered: set[str]) -> None:
    query = f"""
        . {bare.tree}/completion.bash
        COMP_LINE={shlex.quote(typed)} COMP_POINT={len(typed)} COMP_TYPE=9
        _torchbake_nox nox
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    process = subprocess.run(
        ["bash", "-c", query], cwd=bare.tree, env=bare.env(), capture_output=True, text=True, timeout=60, check=False
    )
    assert {word.strip().strip("'\"") for word in process.stdout.split()} == offered, process.stderr


CHILD = """
    import signal, sys, time
    seen = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: seen.append(number))
    print("ready", flush=True)
    while not seen:
        time.sleep(0.01)
    time.sleep(0.5)  # a second one would be here by now
    print("seen", *map(int, seen), flush=True)
    sys.exit(7)
"""


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Run CHILD through `run` on a new terminal; yield the process's pid and the terminal's descriptor."""
    (tmp_path / "child.py").write_text(textwrap.dedent(CHILD))
    (tmp_path / "parent.py").write_text(
        "import os, sys, pathlib\nfrom torchbake.environment import run\n"
        f"sys.exit(run([sys.executable, '{tmp_path}/child.py'], folder=pathlib.Path('/'), env=os.environ))\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, str(tmp_path / "parent.py")])
    yield pid, terminal
    os.close(terminal)


def read_until(terminal: int, word: bytes) -> bytes:
    text, until = b"", time.monotonic() + 60
    while word not in text:
        assert time.monotonic() < until, text
        ready, _, _ = select.select([terminal], [], [], 1)
        text += os.read(terminal, 4096) if ready else b""
    return text


def test_ctrl_c_reaches_a_command_once_and_its_code_is_kept(watched: tuple[int, int]) -> None:
    pid, terminal = watched
    read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    read_until(terminal, b"seen 2\r\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_for_nox_alone_is_handed_on(watched: tuple[int, int], number: signal.Signals) -> None:
    pid, terminal = watched
    read_until(terminal, b"ready")
    os.kill(pid, number)
    read_until(terminal, b"seen %d\r\n" % number)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize(("ends", "code"), [("sys.exit(42)", 42), ("os.kill(os.getpid(), 15)", 143), ("pass", 0)])
def test_the_end_of_a_command_is_the_end_of_nox(ends: str, code: int) -> None:
    text = (
        "import os, sys, pathlib\nfrom torchbake.environment import run\n"
        f"sys.exit(run([sys.executable, '-c', 'import os, sys; {ends}'], folder=pathlib.Path('/'), env=os.environ))"
    )
    assert subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False).returncode == code
