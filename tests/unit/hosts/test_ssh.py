"""How a host is reached: by ssh as it is set up, the inventory's variables first; what is sent is no argument."""

import json
import shlex

import pytest

from torchbake.errors import HostError
from torchbake.hosts.inventory import InventoryHost
from torchbake.hosts.ssh import SshRequest, ssh_host


def test_an_alias_of_the_ssh_configuration_is_all_that_is_needed() -> None:
    words = ssh_host(InventoryHost(name="foo_bar", variables={}), environ={}).words
    assert words[0] == "ssh"
    assert words[-3:-1] == ("--", "foo_bar")
    assert words[words.index("-l") + 1] == "pytorch"
    assert "BatchMode=yes" in words
    assert not {"-p", "-i"} & {*words}
    assert words[-1].startswith("exec /home/pytorch/pytorch/sandbox/bin/python -c 'import sys;")


def test_the_variables_of_the_inventory_come_first() -> None:
    variables = {
        "ansible_host": "10.0.0.1", "ansible_port": 2222, "ansible_user": "root", "pytorch_user": "ml",
        "ansible_ssh_private_key_file": "/k", "ansible_ssh_common_args": "-o 'ProxyJump=a b'",
    }  # fmt: skip
    host = ssh_host(InventoryHost(name="a", variables=variables), environ={"ANSIBLE_SSH_ARGS": "-F cfg"})
    assert (host.address, host.port, host.user, host.key) == ("10.0.0.1", "2222", "ml", "/k")
    assert host.options == ("-F", "cfg", "-o", "ProxyJump=a b")
    assert ssh_host(InventoryHost(name="a", variables=variables), user="me", environ={}).user == "me"


def test_any_user_finds_the_sandbox_in_any_home() -> None:
    ours = InventoryHost(name="a", variables={"pytorch_user": "ml"})
    assert ssh_host(ours, user="root", environ={}).python == "/home/ml/pytorch/sandbox/bin/python"
    elsewhere = InventoryHost(name="a", variables={"pytorch_home": "/srv/torch/"})
    assert ssh_host(elsewhere, environ={}).python == "/srv/torch/pytorch/sandbox/bin/python"


def test_another_user_runs_the_sandbox_with_its_owners_rights() -> None:
    ours = InventoryHost(name="a", variables={"pytorch_user": "ml"})
    python = "/home/ml/pytorch/sandbox/bin/python"
    alone, by_root, by_admin = (
        shlex.split(ssh_host(ours, user=user, environ={}).words[-1]) for user in ("", "root", "me")
    )
    assert alone[:2] == ["exec", python]
    assert by_root[:4] == ["exec", "runuser", "--shell=/bin/sh", "ml"]
    assert shlex.split(by_root[4].removeprefix("--command=")) == alone
    assert by_admin == ["exec", "sudo", "--non-interactive", "--set-home", "--user", "ml", "--", *alone[1:]]


def test_a_name_is_never_taken_for_an_option() -> None:
    words = ssh_host(InventoryHost(name="-oProxyCommand=x", variables={}), environ={}).words
    assert words.index("--") == words.index("-oProxyCommand=x") - 1


def test_another_connection_is_refused() -> None:
    with pytest.raises(HostError, match="a: its connection is local"):
        ssh_host(InventoryHost(name="a", variables={"ansible_connection": "local"}))


def test_a_request_is_a_program_a_line_of_json_and_an_archive() -> None:
    sent_bytes = SshRequest(command=("run", "x"), env={"HF_TOKEN": "s"}, archive=b"tar\n", grace=3).encode
    size, rest = sent_bytes.split(b"\n", 1)
    program, rest = rest[: int(size)], rest[int(size) :]
    header, archive = rest.split(b"\n", 1)
    compile(program, "remote", "exec")
    assert json.loads(header) == {"command": ["run", "x"], "env": {"HF_TOKEN": "s"}, "grace": 3, "size": 4}
    assert archive == b"tar\n"
