"""The command line: its commands, its errors, and its output for programs."""

import ast
import errno
import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import requests
from rich.text import Text

from tests.unit.conftest import SMALL, edited
from torchbake import MATRIX_VARIABLE, cli
from torchbake.commands import COMMANDS, schema
from torchbake.commands import list as listing
from torchbake.core import version
from torchbake.core.paths import TOOLKIT
from torchbake.errors import INTERRUPTED, RegistryError, StorageError, TorchbakeError, UsageError, all_errors
from torchbake.matrix.model import Matrix
from torchbake.matrix.schema import editor_schema
from torchbake.ui import console

MATRIX = str(TOOLKIT / "matrix.yaml")
Streams = pytest.CaptureFixture[str]


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "matrix.yaml"
    path.write_text(SMALL)
    return str(path)


def out(capsys: Streams, *argv: str, code: int = 0) -> str:
    """Run a command and return its stdout."""
    capsys.readouterr()
    assert cli.main(argv) == code
    return capsys.readouterr().out


def err(capsys: Streams, *argv: str, code: int) -> str:
    """Run a command that fails and return its stderr; its stdout must be empty."""
    capsys.readouterr()
    assert cli.main(argv) == code
    streams = capsys.readouterr()
    assert "Traceback" not in streams.err
    assert not streams.out
    return streams.err


def test_a_command_says_what_it_is_for_and_shows_examples(capsys: Streams) -> None:
    for command in COMMANDS:
        module = cli.load_command(command)
        help_text = out(capsys, command, "--help")
        assert COMMANDS[command] in " ".join(help_text.split()), command
        assert module.EXAMPLES, command
        assert all(example in help_text.partition("examples:\n")[2] for example in module.EXAMPLES), command


def test_help_of_test_and_of_smoke_name_each_other(capsys: Streams) -> None:
    for command, other in (("test", "smoke"), ("smoke", "test")):
        summary, _, examples = out(capsys, command, "--help").partition("examples:")
        assert f"`{other}`" in summary, command
        assert f"`{other}`" in examples, command
        assert f"`{other}`" in (cli.load_command(command).__doc__ or "").splitlines()[0], command


def test_every_option_of_a_command_has_help() -> None:
    for command in COMMANDS:
        assert [action.dest for action in cli.make_parser(command)._actions if not action.help] == [], command


def test_the_examples_of_a_command_are_lines_that_it_takes() -> None:
    for command in COMMANDS:
        for example in cli.load_command(command).EXAMPLES:
            words = shlex.split(re.split("[|>]", example)[0], comments=True)
            assert cli.make_parser(command).parse_args([*words, "--matrix", "x"]).matrix == Path("x"), command


@pytest.mark.parametrize("argv", [["--help"], ["-h"]])
def test_the_overview_names_every_command(argv: list[str], capsys: Streams) -> None:
    text = out(capsys, *argv)
    assert all(f"  {command} " in text and summary in text for command, summary in COMMANDS.items())


def test_no_verb_is_a_usage_error_with_the_overview(capsys: Streams) -> None:
    assert "build" in out(capsys, code=2)


REGISTRY = ("--registry", "h/torchbake")


def test_a_usage_error_is_exit_code_2_with_the_right_form(capsys: Streams) -> None:
    for argv, words in (
        (["biuld"], ("no command 'biuld'", "'build'?")),
        (["images", "--check"], ("no command 'images'", "'prove'?")),
        (["publish", "cpu", "--keep-rolling", *REGISTRY], ("--keep-rolling", "'--immutable-only'?")),
        (["promote", "all", "--finish", *REGISTRY], ("--finish", "'--pending'?")),
        (["xyzzy"], ("no command 'xyzzy'",)),
        (["list", "--fromat", "json"], ("--fromat", "'--format'?", "list -- --help")),
        (["list", "all", "--format", "xml"], ("'xml'", "json")),
        (["list", "all", "--form", "json"], ("--form",)),
        (["list", "all", "--shard", "5/4"], ("5/4", "I/N")),
        (["list", "all", "--shard", "0/4"], ("0/4", "I/N")),
        (["build", "all", "--jobs", "none"], ("--jobs", "'none'")),
        (["build", "all", "--jobs", "0"], ("--jobs", "'0'")),
        (["lock", "--matrix"], ("--matrix", "expected one argument")),
        (["publish", "cpu", *REGISTRY, "--key", "k", "--keyless"], ("two ways to sign",)),
        (["publish", "cpu", *REGISTRY, "--keyless", "--identity", "i"], ("--identity and --issuer",)),
        (["publish", "cpu", *REGISTRY, "--identity", "i", "--issuer", "j"], ("--keyless",)),
        (["promote", "cpu", *REGISTRY, "--keyless"], ("--pending",)),
        (["rollback", "all", *REGISTRY, "--key", "k", "--identity", "i", "--issuer", "j"], ("--key",)),
        (["promote", "cpu", *REGISTRY, "--pending", "--to", "r1"], ("--to",)),
        (["validate", "cpu", *REGISTRY, "--suite", "--no-pull"], ("--no-pull",)),
        (["validate", "cpu", *REGISTRY, "--identity", "me"], ("--issuer",)),
        (["reproduce", "cpu", *("--builder", "b") * 3], ("twice",)),
    ):
        text = err(capsys, *argv, code=2)
        assert text.startswith("error:"), (argv, words)
        assert all(word in text for word in words), (argv, words)


def test_no_selector_lists_the_images_and_selects_none(small: str, capsys: Streams) -> None:
    for command in ("list", "tags", "lock", "render", "build"):
        text = err(capsys, command, "--matrix", small, code=2)
        assert "2.10.0-cuda12.8-cudnn9-runtime-debian12" in text, command
        assert "volume-permissions" in text, command
        assert "all" in text.splitlines()[0], command


def test_an_unknown_selector_is_exit_code_4_with_near_names(small: str, capsys: Streams) -> None:
    text = err(capsys, "list", "cuda12.9", "--matrix", small, code=4)
    assert "cuda12.9" in text
    assert "cuda12.8" in text


def test_a_missing_lock_is_exit_code_5(small: str, capsys: Streams) -> None:
    text = err(capsys, "lock", "cpu", "--check", "--matrix", small, code=5)
    assert "2 of 2 locks failed" in text
    assert "nox -s lock -- 2.13.0-cpu-devel-debian12" in text


def test_a_file_that_cannot_be_written_is_a_storage_error(tmp_path: Path, capsys: Streams) -> None:
    (tmp_path / "matrix.schema.json").mkdir()
    output = err(capsys, "schema", "--matrix", str(tmp_path / "matrix.yaml"), code=StorageError.exit_code)
    assert str(tmp_path / "matrix.schema.json") in output


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 11, "Free some space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/x"), 11, "Disk quota exceeded: /x"),
        (OSError(errno.EROFS, "Read-only file system", "/x"), 11, "Make it writable"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 11, "Permission denied: /x"),
        (PermissionError(errno.EACCES, "Permission denied"), 1, "PermissionError: Permission denied"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "git"), 1, "No such file or directory: git"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 1, "ConnectionRefusedError: "),
        (requests.TooManyRedirects("Exceeded 30 redirects."), 1, "TooManyRedirects: Exceeded 30 redirects."),
        (requests.ConnectionError(), 1, "ConnectionError: no details"),
    ],
)
def test_what_the_system_refuses_is_called_by_its_name(
    error: OSError, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(listing, "run", fail)
    text = err(capsys, "list", "all", code=code)
    assert words in text
    assert ("Free some space" in text) == (error.errno in (errno.ENOSPC, errno.EDQUOT))


HOSTILE = "red \x1b[31m \x1b]0;title\x07 \x9b2J \x7f \u202e [bold]brackets[/x] é\tend"


def test_escapes_in_foreign_words_are_shown_as_text(monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    def fail(_: object) -> int:
        console.say(HOSTILE)
        console.show_table(["a"], [[HOSTILE]])
        console.show_json({"a": HOSTILE})
        raise RegistryError(HOSTILE, hint=HOSTILE)

    monkeypatch.setattr(listing, "run", fail)
    assert cli.main(["list", "all"]) == RegistryError.exit_code
    streams = capsys.readouterr()
    for text in (streams.out, streams.err):
        assert not set(text) & set("\x1b\x07\x9b\x7f\u202e")
        assert "[bold]brackets[/x] é" in text
    assert streams.err.count("\\x1b[31m") == 3
    assert json.loads(streams.out[streams.out.index("{") :]) == {"a": HOSTILE}


def test_colours_of_our_own_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", text := io.StringIO())
    terminal = console._Console(stderr=True, force_terminal=True, color_system="standard")
    terminal.print(Text("word \x1b[0m", style="red"))
    assert text.getvalue() == "\x1b[31mword \\x1b[0m\x1b[0m\n"


def test_an_interruption_is_the_shells_own_code(monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "run", interrupt)
    assert "interrupted" in err(capsys, "list", "all", code=INTERRUPTED)


def test_every_error_has_an_exit_code_of_its_own() -> None:
    codes = [error.exit_code for error in all_errors()]
    assert len(codes) == len(set(codes))
    assert all(0 < code < 126 for code in codes)  # from 126 on they are the shell's


def test_no_error_has_an_exit_code_that_nox_uses_itself() -> None:
    same = {TorchbakeError.exit_code: "a failure", UsageError.exit_code: "a wrong command line"}  # as nox means them
    theirs = {1, 2, 3}  # nox/tasks.py; 130, for an interruption, is no error's
    assert {error.exit_code for error in all_errors()} & theirs == set(same)


@pytest.mark.parametrize("argv", [["--version"], ["-V"], ["list", "--version"], ["build", "--version"]])
def test_the_toolkit_says_which_it_is(argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    monkeypatch.setattr(version, "version", lambda: "1.2.3")
    assert out(capsys, *argv) == "torchbake 1.2.3\n"


def test_the_matrix_of_the_environment_is_the_default(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setenv(MATRIX_VARIABLE, small)
    assert "acme/pytorch:" in out(capsys, "tags", "cpu")


def test_every_error_class_of_the_toolkit_is_listed() -> None:
    tree = ast.parse((TOOLKIT / "torchbake/errors.py").read_text())
    assert {node.name for node in tree.body if isinstance(node, ast.ClassDef)} == {e.__name__ for e in all_errors()}


def test_the_documentation_has_every_exit_code_with_its_meaning() -> None:
    for error in all_errors():
        rows = (TOOLKIT / "docs/reference/exit-codes.md").read_text().splitlines()
        assert f"| {error.exit_code} | {error.meaning} |" in rows


def test_the_documentation_has_no_exit_code_that_is_not_there() -> None:
    rows = re.findall(r"^\| (\d+) \|", (TOOLKIT / "docs/reference/exit-codes.md").read_text(), flags=re.MULTILINE)
    assert sorted(map(int, rows)) == sorted({0, INTERRUPTED, *(error.exit_code for error in all_errors())})


def test_the_list_as_json_is_json_alone(small: str, capsys: Streams) -> None:
    listed = json.loads(out(capsys, "list", "cuda12", "!2.9.1", "--format", "json", "--matrix", small))
    assert listed.keys() == {"images", "excluded"}
    assert [entry["id"] for entry in listed["images"]] == [
        "2.10.0-cuda12.8-cudnn9-runtime-debian12",
        "2.10.0-cuda12.8-cudnn9-devel-debian12",
        "2.10.0-cuda12.8-cudnn9-runtime-debian13",
    ]
    assert listed["images"][1] == {
        "id": "2.10.0-cuda12.8-cudnn9-devel-debian12",
        "kind": "pytorch",
        "repository": "acme/pytorch",
        "platform": "linux/amd64",
        "base": "debian12",
        "torch": "2.10.0",
        "accelerator": "cuda12.8",
        "cuda": "12.8",
        "cudnn": "9",
        "python": "3.11",
        "flavor": "devel",
        "trim": True,
        "constraints": True,
        "compiler": True,
        "packages": {"apt": ["g++"], "pip": ["numpy", "ninja", "nvidia-cuda-nvcc-cu12==12.8.*"]},
        "row_reason": "",
        "tags": ["2.10.0-cuda12.8-cudnn9-devel-debian12"],
    }


def test_the_json_list_has_a_reason_for_each_absent_image(small: str, capsys: Streams) -> None:
    listed = json.loads(out(capsys, "list", "cuda12", "--format", "json", "--matrix", small))
    reasons = {entry["id"]: entry["reason"] for entry in listed["excluded"]}
    assert reasons["2.10.0-cuda12.8-cudnn9-devel-debian13"] == "extensions are built once"
    assert reasons["2.13.0-cpu-runtime-debian12"] == "not selected: accelerator is cpu, not cuda12"
    assert not reasons.keys() & {entry["id"] for entry in listed["images"]}


def test_an_init_image_and_a_cpu_image_in_json(small: str, capsys: Streams) -> None:
    listed = json.loads(out(capsys, "list", "cpu", "volume-*", "!devel", "--format", "json", "--matrix", small))
    cpu, init = listed["images"]
    assert (cpu["cuda"], cpu["cudnn"]) == (None, None)
    assert cpu["platform"] == init["platform"] == "linux/amd64"
    assert (init["kind"], init["version"], init["tags"]) == ("init", "1.0.0", ["1.0.0", "1.0", "1", "latest"])


def test_the_list_for_github_is_a_matrix_of_jobs_on_one_line(small: str, capsys: Streams) -> None:
    text = out(capsys, "list", "cpu", "--format", "github", "--matrix", small)
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "include": [
            {
                "id": f"2.13.0-cpu-{flavor}-debian12",
                "kind": "pytorch",
                "accelerator": "cpu",
                "size": "small",
                "platform": "linux/amd64",
            }
            for flavor in ("runtime", "devel")
        ]
    }


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_shards_have_nothing_in_common_and_are_all_together(parts: int, capsys: Streams) -> None:
    shards = [
        [
            job["id"]
            for job in json.loads(
                out(capsys, "list", "all", "--format", "github", "--shard", f"{part}/{parts}", "--matrix", MATRIX)
            )["include"]
        ]
        for part in range(1, parts + 1)
    ]
    everything = json.loads(out(capsys, "list", "all", "--format", "github", "--matrix", MATRIX))["include"]
    ids = [name for shard in shards for name in shard]
    assert sorted(ids) == sorted(job["id"] for job in everything)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_the_table_shows_what_is_selected_and_explains_the_rest(small: str, capsys: Streams) -> None:
    plain = out(capsys, "list", "cpu", "--matrix", small)
    explained = out(capsys, "list", "cpu", "--explain", "--matrix", small)
    assert "2.13.0-cpu-runtime-debian12" in plain
    assert "2.9.1" not in plain
    assert "accelerator is cuda12.8, not cpu" in explained
    assert "extensions are built once" in explained


def test_the_reasons_of_rows_are_explained_once_for_each_row(tmp_path: Path, capsys: Streams) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(edited("  - torch: 2.13.0\n", "  - torch: 2.13.0\n    reason: no GPU\n"))
    explained = out(capsys, "list", "all", "--explain", "--matrix", str(path))
    (row,) = [line.split() for line in explained.splitlines() if "no GPU" in line]
    assert row == ["matrix.yaml:18", "2", "no", "GPU"]
    listed = json.loads(out(capsys, "list", "all", "--format", "json", "--matrix", str(path)))["images"]
    assert {image["row_reason"] for image in listed if image.get("accelerator") == "cpu"} == {"no GPU"}


def test_a_table_into_a_pipe_has_no_colours_and_is_not_cut(capsys: Streams) -> None:
    text = out(capsys, "list", "all", "--explain", "--matrix", MATRIX)
    assert "\x1b" not in text
    assert "…" not in text


def test_the_tags_as_json_say_which_image_holds_each(small: str, capsys: Streams) -> None:
    holder = json.loads(out(capsys, "tags", "2.10.0", "volume-permissions", "--format", "json", "--matrix", small))
    assert holder["acme/pytorch:latest"] == "2.10.0-cuda12.8-cudnn9-runtime-debian12"
    assert holder["acme/volume-permissions:latest"] == "volume-permissions"
    assert "acme/pytorch:2.9" not in holder


def test_each_platform_holds_its_tags_of_the_engine(tmp_path: Path, capsys: Streams) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(edited("  - torch: 2.13.0\n", "  - torch: 2.13.0\n    platforms: [linux/amd64, linux/arm64]\n"))
    holder = json.loads(out(capsys, "tags", "cpu", "amd64", "arm64", "--format", "json", "--matrix", str(path)))
    names = {tag: name for tag, name in holder.items() if tag.partition(":")[2] in ("2.13.0-cpu", "2.13.0-cpu-arm64")}
    assert names == {
        "acme/pytorch:2.13.0-cpu": "2.13.0-cpu-runtime-debian12",
        "acme/pytorch:2.13.0-cpu-arm64": "2.13.0-cpu-runtime-debian12-arm64",
    }


def test_the_schema_for_editors_is_up_to_date(capsys: Streams) -> None:
    assert (TOOLKIT / "matrix.schema.json").read_text() == editor_schema(Matrix)
    assert out(capsys, "schema", "--check") == ""


def test_a_schema_that_is_not_is_exit_code_6(tmp_path: Path, capsys: Streams) -> None:
    """The schema is in the folder of the user's matrix; only the toolkit has the page."""
    here = ("--matrix", str(tmp_path / "matrix.yaml"))
    output = err(capsys, "schema", "--check", *here, code=6)
    assert "matrix.schema.json: out of date" in output
    assert "nox -s schema" in output
    out(capsys, "schema", *here)
    assert [path.name for path in tmp_path.iterdir()] == ["matrix.schema.json"]
    out(capsys, "schema", "--check", *here)


def test_a_schema_makes_no_folder_for_a_word_that_is_wrong(tmp_path: Path, capsys: Streams) -> None:
    assert "no such folder" in err(capsys, "schema", "--matrix", str(tmp_path / "typo/matrix.yaml"), code=2)
    assert not list(tmp_path.iterdir())


def test_a_page_of_the_matrix_that_is_out_of_date_is_exit_code_6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setattr(schema, "PAGE", tmp_path / "matrix.md")
    assert "matrix.md: out of date" in err(capsys, "schema", "--check", "--matrix", MATRIX, code=6)
    out(capsys, "schema", "--matrix", MATRIX)
    assert (tmp_path / "matrix.md").exists()
    out(capsys, "schema", "--check", "--matrix", MATRIX)


def test_the_committed_locks_and_dockerfiles_pass_their_checks(capsys: Streams) -> None:
    out(capsys, "lock", "all", "--check", "--matrix", MATRIX)
    out(capsys, "render", "--check", "--matrix", MATRIX)
