"""The image works with every user: each check looks at containers with other users and restrictions."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import docker

from tests.images.checks import check
from tests.images.facts import FS_GROUP, WAYS
from tests.images.subject import Subject
from tests.images.tell import some
from torchbake.engine.runner import ContainerEnd


def read_output(ways: Mapping[str, ContainerEnd], way: str) -> dict[str, Any]:
    """Parse the output of the command in one way to run the image. Fails if the command did not run."""
    end = ways[way]
    assert end.code == 0, f"it does not start {describe(way)}: exit {end.code}, {end.last_words}"
    facts: dict[str, Any] = json.loads(end.stdout)
    return facts


def describe(way: str) -> str:
    names = {
        "default": "as its own user",
        "arbitrary": "as an arbitrary uid of group 0",
        "fsgroup": "as uid 1002 with an fsGroup",
        "read-only": "on a read-only root",
        "hardened": "without capabilities and new privileges",
    }
    return names[way]


def unwritable(facts: dict[str, Any]) -> str:
    return some([result["reason"] for result in facts["folders"].values() if not result["ok"]])


def everywhere(ways: Mapping[str, ContainerEnd], judge: Callable[[dict[str, Any]], str]) -> list[str]:
    """List the problems of each way in which the image starts; another check covers the others."""
    wrong = []
    for way in WAYS:
        if ways[way].code == 0 and (reason := judge(read_output(ways, way))):
            wrong.append(f"{describe(way)}: {reason}")
    return wrong


@check("users.default", "it runs as the row's uid with group 0, and may write where the contract says")
def test_default(ways: dict[str, ContainerEnd], subject: Subject) -> None:
    facts = read_output(ways, "default")
    assert (facts["uid"], facts["gid"]) == (subject.user.uid, 0), f"it runs as {facts['uid']}:{facts['gid']}"
    assert not unwritable(facts), unwritable(facts)


@check("users.account", "its user has the row's name and home in /etc/passwd, so that programs know who runs")
def test_account(tree: dict[str, Any], subject: Subject) -> None:
    user = subject.user
    names = [line.split(":") for line in tree["accounts"]["passwd"] if line.split(":")[2:3] == [str(user.uid)]]
    assert len(names) == 1, f"{len(names)} accounts have the uid {user.uid}"
    name, _, _, gid, _, home, _ = names[0]
    assert (name, gid, home) == (user.name, "0", user.home), f"uid {user.uid} is {name}, group {gid}, at home in {home}"


@check("users.arbitrary", "any uid of group 0 takes its place, as on OpenShift, with no passwd entry")
def test_arbitrary(ways: dict[str, ContainerEnd]) -> None:
    facts = read_output(ways, "arbitrary")
    assert (facts["uid"], facts["gid"]) == (54321, 0), f"it runs as {facts['uid']}:{facts['gid']}"
    assert not unwritable(facts), unwritable(facts)


@check("users.fsgroup", "uid 1002 shares a volume by its fsGroup: what it writes there, the group reads")
def test_fsgroup(ways: dict[str, ContainerEnd]) -> None:
    facts = read_output(ways, "fsgroup")
    assert facts["uid"] == 1002, f"it runs as {facts['uid']}"
    assert FS_GROUP in facts["groups"], f"group {FS_GROUP} was lost: {facts['groups']}"
    assert not unwritable(facts), unwritable(facts)
    text = facts["folders"]["/data"]
    assert text["gid"] == FS_GROUP, f"its files are of group {text['gid']}"
    assert text["mode"] & 0o040, f"the group cannot read its files: mode {text['mode']:04o}"


@check("users.read-only", "it runs on a read-only root with /tmp alone writable")
def test_read_only(ways: dict[str, ContainerEnd]) -> None:
    facts = read_output(ways, "read-only")
    assert facts["read_only"], "the root is not read-only: the engine did not do what it was asked"
    assert not unwritable(facts), unwritable(facts)


@check("users.hardened", "it runs without any capability and new privileges, under the engine's seccomp filter")
def test_hardened(ways: dict[str, ContainerEnd], client: docker.DockerClient) -> None:
    facts = read_output(ways, "hardened")
    assert int(facts["capabilities"], 16) == 0, f"it has capabilities: {facts['capabilities']}"
    assert facts["no_new_privileges"] == "1", "no_new_privs is off"
    if any("seccomp" in option for option in client.info().get("SecurityOptions") or ()):
        assert facts["seccomp"] == "2", f"no seccomp filter: Seccomp is {facts['seccomp']}"
    assert not unwritable(facts), unwritable(facts)


@check("users.home", "HOME is a folder that the user can write, whoever and wherever")
def test_home(ways: dict[str, ContainerEnd]) -> None:
    wrong = everywhere(ways, lambda facts: facts["home"].get("reason", ""))
    assert not wrong, some(wrong)


@check("users.caches", "XDG_CACHE_HOME and TRITON_CACHE_DIR can be written, whoever and wherever")
def test_caches(ways: dict[str, ContainerEnd]) -> None:
    wrong = everywhere(ways, lambda facts: some([one["reason"] for one in facts["caches"].values() if not one["ok"]]))
    assert not wrong, some(wrong)


@check("users.name", "getpass.getuser() answers without a passwd entry; much of Python depends on it")
def test_name(ways: dict[str, ContainerEnd]) -> None:
    wrong = everywhere(ways, lambda facts: facts["name"].get("reason", ""))
    assert not wrong, some(wrong)


@check("users.inductor", "torch finds a writable cache for what it compiles, whoever and wherever")
def test_inductor(ways: dict[str, ContainerEnd]) -> None:
    wrong = everywhere(ways, lambda facts: facts["inductor"].get("reason", ""))
    assert not wrong, some(wrong)


@check("users.exec", "Python, bash and login shells find what the entrypoint gives, also by `docker exec`")
def test_exec(environments: dict[str, dict[str, dict[str, str]]]) -> None:
    wrong = [
        f"{way} {who} has not the entrypoint's {some(names)}"
        for who, matches in environments.items()
        for way in matches
        if (names := [name for name, value in matches["entrypoint"].items() if matches[way].get(name) != value])
    ]
    assert not wrong, some(wrong)
