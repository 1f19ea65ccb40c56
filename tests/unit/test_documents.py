"""The documents: their commands are accepted, and the targets of their links and the files that they name exist."""

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml

from tests.e2e.broken.everything import BROKEN
from tests.engines.kinds import KINDS
from tests.unit.documents import PAGES, Command, anchors, commands, links, paths, typed_by_name
from torchbake import cli
from torchbake.commands import COMMANDS
from torchbake.core.paths import TOOLKIT
from torchbake.errors import UsageError
from torchbake.jobs.load import read_job
from torchbake.jobs.prepare import prepare
from torchbake.jobs.targets import docker
from torchbake.matrix.project import Project

TEXTS = {path.relative_to(TOOLKIT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
TYPED = [
    command
    for page, text in TEXTS.items()
    for command in (*commands(page, text), *(typed_by_name(page, text) if page.endswith(".md") else ()))
]
NOXFILE = (TOOLKIT / "noxfile.py").read_text(encoding="utf-8")
OF_PYTEST = ("unit", "e2e", "clusters", "engines")
Choose = Callable[[Sequence[str], str], list[str]]


def jobs_in(text: str) -> list[str]:
    """Whole job files of a page."""
    blocks = re.findall(r"(?ms)^```yaml\n(.*?)^```$", text)
    return [block for block in blocks if re.match(r"name: \S+\nimage: ", block)]


def test_every_kind_of_document_is_read() -> None:
    pages = {"README.md", "CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"} | {
        "docs/internals/development.md"
    }
    assert pages | {".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"} <= TEXTS.keys()
    assert pages | {".github/ISSUE_TEMPLATE/bug.yml"} <= {command.page for command in TYPED} | {"SECURITY.md"}
    assert len(TYPED) > 150


def test_every_command_of_a_page_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    refused = []
    for command in TYPED:
        try:
            check(command)
        except (AssertionError, SystemExit, UsageError) as problem:
            refused.append(f"{command}: {str(problem).partition(chr(10))[0]} {capsys.readouterr().err}")
    assert refused == []


def check(command: Command) -> None:
    assert command.sessions
    for session in command.sessions:
        if session in COMMANDS:
            if command.words:  # without any it may be no more than a mention
                check_command(session, command)
        else:
            assert re.search(rf"(?m)^def {session}\(session", NOXFILE), f"there is no session {session}"
        if session in OF_PYTEST:
            check_tests(command.words, session)


def check_command(name: str, command: Command) -> None:
    parser = cli.make_parser(name)
    shares = getattr(cli.load_command(name), "SHARES_COMMAND_LINE", False) and len(command.sessions) > 1
    if {"--help", "--version"} & {*command.words}:  # these end the process
        with pytest.raises(SystemExit, match=r"^0$"):
            parser.parse_args(command.words)
    else:
        parsed = parser.parse_known_args(command.words)[0] if shares else parser.parse_args(command.words)
        assert isinstance(parsed, argparse.Namespace)


def check_tests(words: tuple[str, ...], session: str) -> None:
    """The files and the tests that are named are there, and words of ``-k`` and marks of ``-m`` choose something."""
    files = [word for word in words if word.startswith(f"tests/{session}/")]
    for word in files:
        path, _, test = word.partition("::")
        name, _, parameter = test.partition("[")
        assert f"def {name}(" in (TOOLKIT / path).read_text() if name else (TOOLKIT / path).exists(), word
        assert not parameter or parameter.rstrip("]") in BROKEN, word
    if "-k" in words:
        word = words[words.index("-k") + 1]
        found_paths = [TOOLKIT / file for file in files] or sorted((TOOLKIT / "tests" / session).rglob("test_*.py"))
        names = [kind.name for kind in KINDS] if session == "engines" else []
        of_kinds = all(any(part in name for name in names) for part in word.split(" or "))
        assert of_kinds or any(
            word in path.name or re.search(rf"def \w*{word}", path.read_text()) for path in found_paths
        ), word
    for option in {"-m", "--room"} & set(words):
        mark = rf"pytest\.mark\.{words[words.index(option) + 1]}\b"
        assert any(re.search(mark, path.read_text()) for path in (TOOLKIT / "tests" / session).rglob("test_*.py")), mark
    choices = {words[words.index(option) + 1] for option in ("-k", "-m", "--room") if option in words}
    assert set(words) <= {*files, "-k", "-m", "--room", *choices, "-x", "--pdb", "--engines", "require"}


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page, text in TEXTS.items():
        for link in links(text):
            name, _, heading = link.partition("#")
            target = (TOOLKIT / page).parent / name if name else TOOLKIT / page
            if not target.exists() or (heading and heading not in anchors(target)):
                broken.append(f"{page}: {link}")
    assert broken == []


def test_a_job_file_is_one_that_is_taken(project: Project) -> None:
    matches = [(page, job) for page, text in TEXTS.items() for job in jobs_in(text)]
    assert matches
    for page, text in matches:
        job, document = read_job(text, Path(page))
        files = {"files": job.files.model_copy(update={"folder": None, "layer": None})}  # the reader's own
        prepare(job.model_copy(update=files), document, docker, project, lambda spec: spec.id)


def test_what_is_named_is_there(project: Project) -> None:
    repositories = {spec.repository for spec in project.expansion.specs}
    names = [(page, name) for page, text in TEXTS.items() for name in sorted(paths(text) - repositories)]
    assert [f"{page}: {name}" for page, name in names if not (TOOLKIT / name).exists()] == []


def test_every_test_that_a_page_names_is_there() -> None:
    tests = {match for text in TEXTS.values() for match in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text)}
    assert len(tests) > 30
    missing = [f"{file}::{test}" for file, test in tests if f"def {test}(" not in (TOOLKIT / file).read_text()]
    assert missing == []


def test_every_page_that_a_message_names_is_there() -> None:
    pattern = r"""Command\(["']help["'], ["']([\w-]+)(?:#([\w-]+))?["']\)"""
    modules = (TOOLKIT / "torchbake").rglob("*.py")
    for topic, section in {value for path in modules for value in re.findall(pattern, path.read_text())} - {
        ("TOPIC", "")
    }:
        (page,) = (path for path in (TOOLKIT / "docs").rglob("*.md") if path.stem == topic)
        assert not section or section in anchors(page), (topic, section)


def test_the_index_leads_to_every_page() -> None:
    pages = {page for page in TEXTS if page.endswith(".md") and not page.startswith((".github/", "examples/"))}
    linked = {
        (TOOLKIT / "docs" / link.partition("#")[0]).resolve().relative_to(TOOLKIT.resolve()).as_posix()
        for link in links(TEXTS["docs/README.md"])
    }
    assert (pages | {"examples/README.md"}) - {"README.md", "docs/README.md"} - linked == set()
    assert "docs/README.md" in links(TEXTS["README.md"])


def test_the_readme_is_short_and_has_a_few_links() -> None:
    lines = TEXTS["README.md"].splitlines()
    assert len(lines) <= 80
    assert len([link for link in links(TEXTS["README.md"]) if link.endswith(".md")]) <= 5


def test_holes_are_reported_where_the_sources_are(project: Project) -> None:
    report = f"{project.matrix.source}/security/advisories/new"
    assert f"({report})" in TEXTS["SECURITY.md"]
    contacts = yaml.safe_load(TEXTS[".github/ISSUE_TEMPLATE/config.yml"])["contact_links"]
    assert report in [contact["url"] for contact in contacts]


def test_an_address_of_the_project_is_that_of_its_sources(project: Project) -> None:
    for page in ("CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"):
        addresses = re.findall(r"https://github\.com/[\w.-]+/[\w.-]+", TEXTS[page])
        assert set(addresses) == {project.matrix.source}, page


def test_a_bug_comes_with_the_facts_of_the_host_and_the_toolkit() -> None:
    form = yaml.safe_load(TEXTS[".github/ISSUE_TEMPLATE/bug.yml"])["body"]
    required_parts = {part["id"] for part in form if part.get("validations", {}).get("required")}
    assert required_parts == {"what", "command", "version", "host"}


def test_each_part_of_the_changes_is_a_version() -> None:
    """A tag alone makes a release, so no heading has a day that somebody must write."""
    versions = re.findall(r"(?m)^## (.+)$", TEXTS["CHANGELOG.md"])
    assert versions
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """The noxfile's function, read where no nox is installed."""
    for name in ("nox", "nox.command"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("noxfile_of_the_project", TOOLKIT / "noxfile.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value: Choose = module.pytest_paths
    return value


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], ["tests/e2e"]),
        (["-k", "docs", "-x"], ["tests/e2e", "-k", "docs", "-x"]),
        (["tests/e2e/test_sbom.py"], ["tests/e2e/test_sbom.py"]),
        (["-x", "tests/e2e/test_sbom.py::test_a"], ["-x", "tests/e2e/test_sbom.py::test_a"]),
    ],
)
def test_tests_that_are_named_are_run_alone(words: list[str], lines: list[str], choice: Choose) -> None:
    assert choice(words, "tests/e2e") == lines


def test_a_command_is_read_as_a_shell_reads_it() -> None:
    text = "`nox -s list` and\n    nox -s build test -- cuda12 '!devel | x' \\\n        --jobs 2   # two\n"
    text += "    nox -s build -- '!de<TAB>\n`nox -s COMMAND`\n"
    matches = list(commands("x.md", text))
    assert [(command.sessions, command.words) for command in matches] == [
        (("list",), ()),
        (("build", "test"), ("cuda12", "!devel | x", "--jobs", "2")),
    ]


def test_commands_of_the_package_are_read_in_lines_of_code() -> None:
    text = "torchbake builds\n\n    torchbake test cpu | tee x\n    torchbake tags [SELECTOR ...] [OPTIONS]\n"
    text += "```sh\npip install torchbake && torchbake setup && torchbake build '!devel'   # x\n```\n"
    assert [(command.sessions, command.words) for command in typed_by_name("x.md", text)] == [
        (("test",), ("cpu",)),
        (("setup",), ()),
        (("build",), ("!devel",)),
    ]


def test_links_and_paths_are_found_and_code_is_no_link() -> None:
    text = "[a](b.md#c) [d](https://e) `[f](g)` `torchbake/no.py` `images/ID/Dockerfile` `images/x`"
    assert links(text) == ["b.md#c"]
    assert paths(f"{text}\n\nSource: a/b,\n`docs/theirs.md`.\n") == {"torchbake/no.py", "images/x"}


def test_a_heading_has_the_link_that_github_gives_it(tmp_path: Path) -> None:
    page = tmp_path / "x.md"
    page.write_text("# A `run`, and B\n\n## tags.*\n")
    assert anchors(page) == {"a-run-and-b", "tags"}
