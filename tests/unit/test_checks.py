"""The catalogue of image checks, read from their marks: no engine is needed to know what they are."""

import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.broken.everything import BROKEN
from tests.images import leaks
from tests.images.budgets import budget_of
from tests.images.checks import Check, as_markdown, catalogue, smoke_checks
from tests.images.containers import ContainerError, Containers, NotRunnableError
from tests.images.dockerfile import promise_of
from tests.images.entries import Entry, merge
from tests.unit.conftest import check_golden
from tests.unit.engines import Box, Daemon, Program
from torchbake.core.paths import TOOLKIT
from torchbake.engine.architecture import PLAYED_PROCESSOR
from torchbake.engine.owner import owner_label
from torchbake.engine.runner import OWNER

# It fails on a GPU alone: tests/e2e/test_payloads.py sabotages the payload that it shares its checks with.
WITHOUT_A_BROKEN_IMAGE = {"smoke.nccl"}
GROUPS = {"metadata", "files", "own", "users", "python", "libraries", "parts", "process", "volume-permissions", "smoke"}
PAGE = TOOLKIT / "docs/reference/checks.md"
IMAGE = "sha256:image"
START = "<!-- from the checks' own marks; TORCHBAKE_UPDATE_GOLDEN=1 pytest tests/unit/test_checks.py writes it -->\n"


def test_every_test_of_an_image_is_a_check_with_a_reason() -> None:
    for one in catalogue():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*\.[a-z0-9]+(-[a-z0-9]+)*", one.id), one
        assert one.group in GROUPS
        assert 20 < len(one.reason) <= 110, one
        assert "|" not in one.reason


def test_every_test_function_has_a_mark() -> None:
    count = sum(
        len(re.findall(r"^def test_", path.read_text(), flags=re.MULTILINE))
        for path in (TOOLKIT / "tests/images").glob("test_*.py")
    )
    assert len(catalogue()) >= count


def test_no_id_is_given_twice() -> None:
    assert [name for name, count in Counter(one.id for one in catalogue()).items() if count > 1] == []


def test_every_check_has_an_image_that_is_broken_for_it() -> None:
    checks = {one.id for one in (*catalogue(), *smoke_checks())} - WITHOUT_A_BROKEN_IMAGE
    assert checks == BROKEN.keys()


def test_a_broken_image_is_of_a_kind_that_its_check_is_about() -> None:
    kinds = {
        "cpu": ("pytorch", "cpu"),
        "devel": ("pytorch", "cpu"),
        "cuda": ("pytorch", "cuda"),
        "init": ("init", "cpu"),
    }
    for one in (*catalogue(), *smoke_checks()):
        if one.id in BROKEN:
            kind, family = kinds[BROKEN[one.id].base]
            assert kind in one.kinds
            assert kind == "init" or family in one.families


def test_the_page_lists_every_check() -> None:
    words = PAGE.read_text().partition(START)[0]
    check_golden(PAGE, words + START + "\n" + as_markdown((*catalogue(), *smoke_checks())))


def test_the_page_says_to_which_images_a_check_applies() -> None:
    page = as_markdown(
        [Check(id="a.b", reason="because", families=("cuda",)), Check(id="a.c", reason="so", kinds=("init",))]
    )
    assert "| `a.b` | PyTorch, CUDA | because |" in page
    assert "| `a.c` | volume-permissions | so |" in page


DOCKERFILE = """\
FROM x AS first
ENV A="1"
EXPOSE 80
FROM y
ENV B="2 3" \\
    C="4"
LABEL one="${ONE}" \\
      two="2"
WORKDIR /app
USER 1001
VOLUME /data
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["python"]
"""


def test_a_promise_is_the_last_stage_of_a_dockerfile() -> None:
    promise = promise_of(DOCKERFILE)
    assert promise.environment == {"B": "2 3", "C": "4"}
    assert promise.labels == {"one": "${ONE}", "two": "2"}
    assert (promise.user, promise.workdir, promise.cmd) == ("1001", "/app", ["python"])
    assert promise.entrypoint == ["/usr/bin/tini", "--"]
    assert (promise.ports, promise.volumes, promise.others) == (set(), {"/data"}, set())


STAGES = """\
FROM debian AS base
ENV PATH="/bin"
ENV OLD a b
FROM base AS middle
USER 0
FROM middle
ENV PATH="/opt:$PATH" MONEY="\\$5" BACK="a\\\\" \\
    # a comment
    NONE="${NONE}" PLAIN='$PATH' BARE=a\\ b
RUN <<END
ENV NOT="one"
END
"""


def test_a_promise_has_inherited_values_and_their_meaning() -> None:
    promise = promise_of(STAGES)
    assert promise.environment == {
        "PATH": "/opt:/bin", "OLD": "a b", "MONEY": "$5", "BACK": "a\\",
        "NONE": "${NONE}", "PLAIN": "$PATH", "BARE": "a b",
    }  # fmt: skip
    assert promise.user == "0"


def file(path: str, size: int = 1) -> Entry:
    return Entry(path, "file", 0o644, 0, 0, size)


def folder(path: str) -> Entry:
    return Entry(path, "dir", 0o755, 0, 0)


def paths(layers: Iterable[list[Entry]]) -> list[str]:
    return sorted(entry.path for entry in merge(layers).entries)


def test_a_later_layer_replaces_and_adds() -> None:
    tree = merge([[file("/a", 1), file("/b", 2)], [file("/a", 5)]])
    assert {entry.path: entry.size for entry in tree.entries} == {"/a": 5, "/b": 2}
    assert tree.hidden == {"/a": 1}


def test_a_whiteout_deletes_a_folder_with_all_in_it() -> None:
    layers = [[folder("/a"), file("/a/x", 3), file("/ab", 1)], [file("/.wh.a", 0)]]
    assert paths(layers) == ["/ab"]
    assert merge(layers).hidden == {"/a/x": 3}


def test_an_opaque_folder_keeps_only_what_its_own_layer_has() -> None:
    assert paths([[folder("/a"), file("/a/x")], [folder("/a"), file("/a/.wh..wh..opq", 0), file("/a/y")]]) == [
        "/a",
        "/a/y",
    ]


def test_a_path_gives_itself_away() -> None:
    for path, check in (
        ("/root/.netrc", "files.credentials"),
        ("/home/torch/.aws/credentials", "files.credentials"),
        ("/run/secrets/token", "files.credentials"),
        ("/home/torch/.ssh/id_ed25519", "files.keys"),
        ("/etc/ssh/ssh_host_rsa_key", "files.keys"),
        ("/app/.git/config", "files.git"),
        ("/var/lib/apt/lists/deb.debian.org_Packages", "files.apt-lists"),
        ("/var/cache/apt/archives/git_1.deb", "files.caches"),
        ("/root/.cache/pip/x", "files.caches"),
        ("/app/launch/__pycache__/x.pyc", "files.caches"),
    ):
        assert list(leaks.of_path(path)) == [check], (path, check)


@pytest.mark.parametrize(
    "path",
    [
        "/usr/share/doc/netrc",
        "/etc/ssl/certs/ca-certificates.crt",
        "/var/lib/apt/lists/partial",
        "/usr/lib/python3/dist-packages/__pycache__/x.pyc",
        "/usr/share/git-core/templates/hooks/x",
        "/opt/venv/lib/python3.11/site-packages/torch/_aws/x",
    ],
)
def test_a_harmless_path_does_not(path: str) -> None:
    assert list(leaks.of_path(path)) == []


KEY = b"-----BEGIN " + b"RSA PRIVATE KEY-----\n" + b"A" * 64
PUBLISHED = KEY[:-64] + b"B" * 64  # in place of one that a public package holds
TOKEN = b"gh" + b"p_" + b"a1" * 18


@pytest.mark.parametrize(
    ("path", "data", "check"),
    [
        ("/opt/x", b"text\n" + KEY, "files.keys"),
        ("/opt/x", PUBLISHED + b"-----END RSA PRIVATE KEY-----\n" + KEY, "files.keys"),
        ("/opt/x", b"x = '" + TOKEN + b"'", "files.tokens"),
        ("/opt/x", b"AKIA" + b"IOSFODNN7EXAMPLF", "files.tokens"),
        ("/opt/x", b"AKIA" + b"EXAMPLE7IOSFODNN", "files.tokens"),
        ("/etc/pip.conf", b"index-url = https://me:word@pypi.example.com/simple", "files.credentials"),
        ("/root/.npmrc", b"//registry.example.com/:_authToken=x", "files.credentials"),
    ],
)
def test_what_a_file_says_gives_it_away(path: str, data: bytes, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "PUBLISHED", {*leaks.private_keys(PUBLISHED)})
    assert list(leaks.of_content(path, data)) == [check]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/opt/x.py", b'if b"-----BEGIN PRIVATE KEY-----" in data: ...'),
        ("/opt/x.py", b"hf_GPT2 and sk-learn and AKIA"),
        ("/usr/share/doc/x", b"https://user:password@example.com"),
        ("/etc/pip.conf", b"index-url = https://pypi.example.com/simple"),
        ("/opt/x.so", b"\x7fELF" + KEY),
        ("/botocore/examples-1.json", b'"AKIAIOSFODNN7EXAMPLE", "AKIAI44QH8DHBEXAMPLE", "ASIAIOSFODNN7EXAMPLE"'),
        ("/tornado/test/test.key", PUBLISHED),
    ],
)
def test_what_a_harmless_file_says_does_not(path: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of these tests takes the place of the keys in public packages."""
    monkeypatch.setattr(leaks, "PUBLISHED", {*leaks.private_keys(PUBLISHED)})
    assert list(leaks.of_content(path, data)) == []


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("ARG INDEX_PASSWORD=hunter2", ["INDEX_PASSWORD"]),
        ("RUN |1 HF_TOKEN=x /bin/sh -c true", ["HF_TOKEN"]),
        ("RUN pip install -i https://me:word@pypi.example.com/simple x", ["a token or a password in an address"]),
        ("RUN --mount=type=secret,id=ca cp x y", []),
        ("ARG REVISION=", []),
        ("ENV PATH=/usr/bin AUTHOR=me", []),
    ],
)
def test_history_is_read_for_secrets(command: str, names: list[str]) -> None:
    assert leaks.secrets_in_command(command) == names


BUDGETS = """\
[growth]
percent = 10
megabytes = 5
layers = 2
[ceilings]
cpu-runtime = {megabytes = 1000, layers = 10}
[released]
"a" = {megabytes = 100, layers = 7}
"""


def test_a_budget_is_the_last_release_and_a_little(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text(BUDGETS)
    released = budget_of("a", "cpu-runtime", path=path)
    assert released
    assert (released.megabytes, released.layers) == (115.0, 9)
    never = budget_of("b", "cpu-runtime", path=path)
    assert never
    assert (never.megabytes, never.layers, never.released) == (1000, 10, None)
    assert budget_of("b", "other", path=path) is None


def test_every_image_of_the_matrix_has_a_budget() -> None:
    ceilings = tomllib.loads((TOOLKIT / "tests/images/budgets.toml").read_text())["ceilings"]
    assert {"cpu-runtime", "cpu-devel", "cuda-runtime", "cuda-devel", "volume-permissions"} <= ceilings.keys()


def test_a_published_key_is_the_text_of_one_key_with_its_owner() -> None:
    keys = tomllib.loads((TOOLKIT / "tests/images/published_keys.toml").read_text())["key"]
    assert {key["sha256"] for key in keys} == leaks.PUBLISHED
    assert all(re.fullmatch("[0-9a-f]{64}", key["sha256"]) and key["of"] and key["why"] for key in keys)


REVISION = "org.opencontainers.image.revision"
ORIGIN = {REVISION: "${REVISION}", "org.opencontainers.image.created": "${CREATED}"}
CREATED = {"org.opencontainers.image.created": "2026-11-21T07:50:00Z"}
COMMIT = "1" * 40


@pytest.mark.parametrize(
    ("labels", "commit", "outcome"),
    [
        ({**CREATED, REVISION: COMMIT}, COMMIT, None),
        ({**CREATED, REVISION: ""}, "", pytest.skip.Exception),
        ({**CREATED, REVISION: ""}, COMMIT, AssertionError),  # the build should have filled it in
        (CREATED, "", pytest.skip.Exception),
        ({REVISION: ""}, "", AssertionError),  # the date is missing too
    ],
)
def test_an_image_built_without_a_commit_has_no_judged_revision(
    labels: dict[str, str], commit: str, outcome: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = importlib.import_module("tests.images.test_metadata")
    monkeypatch.setattr(metadata, "revision", lambda _: commit)
    row: Any = SimpleNamespace(promise=SimpleNamespace(labels=ORIGIN))
    subject: Any = SimpleNamespace(labels=labels)
    config: Any = SimpleNamespace(option=SimpleNamespace(matrix=Path("matrix.yaml")))
    with pytest.raises(outcome, match=r"commit first|is ''") if outcome else nullcontext():
        metadata.test_origin(row, subject, config)


def test_the_next_run_finds_leftovers_of_killed_checks() -> None:
    daemon = daemon_with(lambda _: None)
    left = Containers(daemon.engine, IMAGE)
    left.create("true")
    left.volume()
    labels = [*(box.options["labels"] for box in daemon.boxes.values()), *daemon.stores.values()]
    assert [one[OWNER] for one in labels] == [owner_label()] * 2
    left.remove_all()
    assert not daemon.boxes
    assert not daemon.stores


def test_a_command_of_the_checks_never_leaves_a_container() -> None:
    daemon = daemon_with(lambda box: (3, "out", "first\nlast words") if box.command == ("ends",) else None)
    containers = Containers(daemon.engine, IMAGE)
    end = containers.run("ends")
    assert (end.code, end.stdout, end.last_words) == (3, "out", "last words")
    with pytest.raises(ContainerError, match="did not end within 60 s"):
        containers.run("runs on")
    assert not daemon.boxes


@pytest.mark.parametrize("emulator", [True, False])
def test_checks_of_another_architecture_need_an_emulator(emulator: bool) -> None:
    def program(box: Box) -> tuple[int, str, str]:
        return (0, "", "") if emulator else (1, "", "exec /usr/bin/true: exec format error")

    daemon = Daemon(program)
    daemon.hold(IMAGE, architecture="arm64")
    containers = Containers(daemon.engine, IMAGE, ["true"])
    if emulator:
        assert containers.run("sleep").code == 0
        assert (containers.refusal, containers.patience > 1) == ("", True)
    else:
        for attempt in (lambda: containers.run("sleep"), containers.host):
            with pytest.raises(NotRunnableError, match="linux/arm64"):
                attempt()
        with containers.created("sleep"):  # its files can be read
            (box,) = daemon.boxes.values()
            assert box.options["platform"] == "linux/arm64"
            assert box.options["environment"]["QEMU_CPU"] == PLAYED_PROCESSOR["linux/arm64"]


def daemon_with(program: Program) -> Daemon:
    daemon = Daemon(program)
    daemon.hold(IMAGE)
    return daemon
