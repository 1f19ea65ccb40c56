"""The files of an image: of the tree that a container sees, and of every layer, also what a later one hides."""

import stat
from typing import Any

import pytest

from tests.images.checks import KINDS, check
from tests.images.entries import Entry, Tree, entries_of
from tests.images.layers import Layer
from tests.images.subject import Subject
from tests.images.tell import some
from torchbake.core.sizes import human
from torchbake.lock.project_content import added_content
from torchbake.matrix.added_files import file_paths

# Folders in which every user may write (sticky): https://refspecs.linuxfoundation.org/FHS_3.0/fhs/
SHARED = {"/tmp", "/var/tmp", "/run/lock", "/run/shm", "/dev/shm"}
EMPTY = ("/tmp", "/var/tmp", "/run", "/var/log", "/var/spool")
WASTE_LIMIT = 16 << 20
NO_SHELLS = {"nologin", "false", "sync"}


@pytest.fixture(scope="session")
def entries(subject: Subject, request: pytest.FixtureRequest) -> tuple[Entry, ...]:
    """The tree of a container; of an image in which nothing can look, what its layers make."""
    if subject.kind == "init":
        merged: Tree = request.getfixturevalue("merged")
        return merged.entries
    return entries_of(request.getfixturevalue("tree")["entries"])


@pytest.fixture(scope="session")
def unplanned(entries: tuple[Entry, ...], subject: Subject) -> tuple[Entry, ...]:
    """The tree without the files whose owner and mode the row says; own.files judges those."""
    row = subject.row
    away = file_paths(row.project.root, added_content(row.spec, row.lock)) if row else set()
    return tuple(entry for entry in entries if entry.path not in away)


@pytest.fixture(scope="session")
def app_tree(subject: Subject) -> tuple[str, str]:
    """The folders that are the user's."""
    return (subject.user.workdir, subject.user.home)


@check("files.app-tree", "the working directory and the home are the user's, and as open to group 0 as to the user")
def test_app_tree(unplanned: tuple[Entry, ...], app_tree: tuple[str, str], subject: Subject) -> None:
    uid = subject.user.uid
    tree = [entry for entry in unplanned if entry.below(*app_tree)]
    missing = [folder for folder in app_tree if folder not in {entry.path for entry in tree}]
    assert not missing, f"not there: {some(missing)}"
    wrong = [entry.shown for entry in tree if (entry.uid, entry.gid) != (uid, 0) or not group_as_user(entry)]
    assert not wrong, f"not {uid}:0 with g=u: {some(wrong)}"


def group_as_user(entry: Entry) -> bool:
    return entry.kind == "link" or (entry.mode >> 6 & 7) == (entry.mode >> 3 & 7)


@check("files.owners", "everything else is root's, so that a job cannot change what the next one runs", kinds=KINDS)
def test_owners(unplanned: tuple[Entry, ...], app_tree: tuple[str, str]) -> None:
    wrong = [entry.shown for entry in unplanned if not entry.below(*app_tree) and entry.uid != 0]
    assert not wrong, f"not root's: {some(wrong)}"


@check("files.read-only", "outside the app tree group 0, which any uid here has, may not write")
def test_read_only(unplanned: tuple[Entry, ...], app_tree: tuple[str, str]) -> None:
    wrong = [
        entry.shown
        for entry in unplanned
        if not entry.below(*app_tree)
        and entry.kind != "link"
        and (entry.gid == 0 and entry.mode & stat.S_IWGRP and entry.path not in SHARED)
    ]
    assert not wrong, f"writable for group 0: {some(wrong)}"


@check("files.setuid", "no program gives its caller another user's or group's rights", kinds=KINDS)
def test_setuid(entries: tuple[Entry, ...]) -> None:
    wrong = [entry.shown for entry in entries if entry.kind == "file" and entry.mode & (stat.S_ISUID | stat.S_ISGID)]
    assert not wrong, f"setuid or setgid: {some(wrong)}"


@check("files.capabilities", "no file grants capabilities to the program that runs it", kinds=KINDS)
def test_capabilities(entries: tuple[Entry, ...]) -> None:
    wrong = [entry.path for entry in entries if entry.capable]
    assert not wrong, f"file capabilities: {some(wrong)}"


@check("files.world-writable", "nothing is writable for everybody but the sticky folders for that", kinds=KINDS)
def test_world_writable(entries: tuple[Entry, ...]) -> None:
    wrong = [
        entry.shown
        for entry in entries
        if entry.kind != "link" and entry.mode & stat.S_IWOTH and not (entry.sticky and entry.path in SHARED)
    ]
    assert not wrong, f"writable for everybody: {some(wrong)}"


@check("files.symlinks", "every symlink leads somewhere")
def test_symlinks(entries: tuple[Entry, ...]) -> None:
    wrong = [f"{entry.path} -> {entry.target}" for entry in entries if entry.broken]
    assert not wrong, f"broken: {some(wrong)}"


@check("files.temporary", "temporary folders and logs are empty", kinds=KINDS)
def test_temporary(entries: tuple[Entry, ...]) -> None:
    wrong = [
        entry.path for entry in entries if entry.below(*EMPTY) and entry.kind in ("file", "other") and not make(entry)
    ]
    assert not wrong, f"left behind: {some(wrong)}"


def make(entry: Entry) -> bool:
    """Return True if an engine or a base makes this file on purpose, such as an empty log that programs append to."""
    return entry.size == 0 and entry.below("/var/log", "/run")


@check("files.accounts", "no account leads nowhere: each has its group, its shell, and its home if it can log in")
def test_accounts(entries: tuple[Entry, ...], tree: dict[str, Any]) -> None:
    paths = {entry.path for entry in entries}
    users, groups = table(tree, "passwd"), table(tree, "group")
    gids = {int(group[2]) for group in groups}
    names = [user[0] for user in users]
    wrong = [f"user {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    for name, _, _, gid, _, home, shell in users:
        if int(gid) not in gids:
            wrong.append(f"user {name}: no group {gid}")
        if shell.rsplit("/", 1)[-1] not in NO_SHELLS:
            wrong += [f"user {name}: no {path}" for path in (shell, home) if not there(path, paths)]
    wrong += [f"group {group[0]}: no user {one}" for group in groups for one in members(group) if one not in names]
    for shadow, of in (("shadow", names), ("gshadow", [group[0] for group in groups])):
        wrong += [f"{shadow}: no {line[0]}" for line in table(tree, shadow) if line[0] not in of]
    assert not wrong, some(wrong)


@check("files.known-owners", "each owner and group has an account: another uid or gid is that of whoever made the base")
def test_known_owners(unplanned: tuple[Entry, ...], tree: dict[str, Any]) -> None:
    uids, gids = ({int(line[2]) for line in table(tree, name)} for name in ("passwd", "group"))
    wrong = [entry.shown for entry in unplanned if entry.uid not in uids or entry.gid not in gids]
    assert not wrong, f"no account or group has their owner: {some(wrong)}"


def table(tree: dict[str, Any], name: str) -> list[list[str]]:
    return [line.split(":") for line in tree["accounts"][name] if line.strip()]


def members(group: list[str]) -> list[str]:
    return [name for name in group[3].split(",") if name]


def there(path: str, paths: set[str]) -> bool:
    """Return True if a path is in the image, also through the links that merge /bin into /usr/bin."""
    return path in paths or f"/usr{path}" in paths or path == "/"


def leaked(layers: list[Layer], merged: Tree, name: str) -> str:
    """List a check's findings in the layers, and whether each is still visible; empty without findings."""
    merged_paths = {entry.path for entry in merged.entries}
    matches = [
        f"{path} in layer {number} of {len(layers)}"
        + ("" if path in merged_paths else ", which a later one only hides")
        for number, layer in enumerate(layers, start=1)
        for rule, path in layer.findings
        if rule == name
    ]
    return some(matches)


@check("files.keys", "no layer holds a private key", kinds=KINDS)
def test_keys(layers: list[Layer], merged: Tree) -> None:
    text = leaked(layers, merged, "files.keys")
    assert not text, text


@check("files.credentials", "no layer holds a file of credentials, or an address with a password", kinds=KINDS)
def test_credentials(layers: list[Layer], merged: Tree) -> None:
    text = leaked(layers, merged, "files.credentials")
    assert not text, text


@check("files.tokens", "no file of any layer holds a token of a well-known service", kinds=KINDS)
def test_tokens(layers: list[Layer], merged: Tree) -> None:
    text = leaked(layers, merged, "files.tokens")
    assert not text, text


@check("files.git", "no layer holds a repository: its history says more than its files", kinds=KINDS)
def test_git(layers: list[Layer], merged: Tree) -> None:
    text = leaked(layers, merged, "files.git")
    assert not text, text


@check("files.apt-lists", "no layer holds apt's package lists, which are large and soon out of date", kinds=KINDS)
def test_apt_lists(layers: list[Layer], merged: Tree) -> None:
    text = leaked(layers, merged, "files.apt-lists")
    assert not text, text


@check("files.caches", "no layer holds a cache: of apt, pip, uv, or bytecode that nobody meant to keep", kinds=KINDS)
def test_caches(layers: list[Layer], merged: Tree) -> None:
    text = leaked(layers, merged, "files.caches")
    assert not text, text


@check("files.waste", f"later layers replace or delete less than {WASTE_LIMIT >> 20} MiB of earlier ones", kinds=KINDS)
def test_waste(merged: Tree, figures: dict[str, Any]) -> None:
    hidden = merged.hidden
    largest = sorted(hidden, key=lambda path: -hidden[path])
    figures["bytes"] = sum(hidden.values())
    text = some([f"{path} ({human(hidden[path])})" for path in largest])
    assert sum(hidden.values()) < WASTE_LIMIT, f"{human(sum(hidden.values()))} of dead weight: {text}"
