"""Commands on hosts by the machine's own OpenSSH, as data: aliases, keys, agent and jump hosts are its configuration's.

The variables of an inventory come before that, as they do for Ansible.
Source: docs.ansible.com, ansible.builtin.ssh connection; ssh(1).
"""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchbake.errors import HostError
from torchbake.hosts.inventory import InventoryHost

USER = "pytorch"
_PYTHON = "pytorch/sandbox/bin/python"  # below pytorch_home
_REMOTE = Path(__file__).with_name("remote.py")
# Reads a program of so many bytes and runs it: whatever the login shell is, one short line is all that it reads.
_START = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
# Nobody can answer a question here; a connection that is dead is seen within a minute.
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15")
CONNECTION_FAILED = 255  # ssh's own exit code
NO_PYTHON = (126, 127)  # those of a shell that cannot run it


@dataclass(frozen=True, kw_only=True)
class SshHost:
    """Connection settings of one host. ``python`` is an absolute path, in the sandbox of the user ``owner``.

    If another ``user`` logs in, that Python still runs with the owner's rights alone, because the owner can change it.
    """

    name: str
    address: str
    user: str = USER
    owner: str = USER
    port: str = ""
    key: str = ""
    options: tuple[str, ...] = ()
    program: str = "ssh"
    python: str = f"/home/{USER}/{_PYTHON}"

    @property
    def words(self) -> tuple[str, ...]:
        """What is started here."""
        return (
            self.program,
            "-T",
            *(word for option in _OPTIONS for word in ("-o", option)),
            *(("-p", self.port) if self.port else ()),
            *(("-i", self.key) if self.key else ()),
            *("-l", self.user),
            *self.options,
            "--",
            self.address,
            f"exec {shlex.join(self._started)}",
        )

    @property
    def _started(self) -> tuple[str, ...]:
        command = (self.python, "-c", _START)
        if self.user == self.owner:
            return command
        if self.user == "root":  # where there may be no sudo
            return ("runuser", "--shell=/bin/sh", self.owner, f"--command=exec {shlex.join(command)}")
        return ("sudo", "--non-interactive", "--set-home", "--user", self.owner, "--", *command)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a host is to do: run a command in the folder of an archive; None: say what is there. ``grace``: seconds."""

    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    archive: bytes = b""
    grace: float = 10

    @property
    def sent(self) -> bytes:
        """All that goes to the host's stdin, which is then held open until the command is to end."""
        program = _REMOTE.read_bytes()
        asked: dict[str, Any] = {"command": self.command, "env": dict(self.env), "grace": self.grace}
        header = json.dumps({**asked, "size": len(self.archive)}).encode()
        return b"%d\n%b%b\n%b" % (len(program), program, header, self.archive)


def ssh_host(host: InventoryHost, *, user: str = "", environ: Mapping[str, str] = os.environ) -> SshHost:
    """A host of an inventory; it is the user of PyTorch who logs in, or ``user``.

    The sandbox is that of ``pytorch_home``, whoever logs in; ``ANSIBLE_SSH_ARGS`` of the environment counts as for
    Ansible. Raises HostError for another connection than ssh.
    """
    kind = host.text("ansible_connection")
    if kind not in ("", "ssh", "smart", "ansible.builtin.ssh"):
        raise HostError(f"{host.name}: its connection is {kind}, but smoke tests use ssh.", hint="Leave it out.")
    owner = host.text("pytorch_user") or USER
    settings = host.text("ansible_ssh_args") or environ.get("ANSIBLE_SSH_ARGS", "")
    options = (settings, *map(host.text, ("ansible_ssh_common_args", "ansible_ssh_extra_args")))
    return SshHost(
        name=host.name,
        address=host.text("ansible_host", "ansible_ssh_host") or host.name,
        user=user or owner,
        owner=owner,
        port=host.text("ansible_port", "ansible_ssh_port"),
        key=host.text("ansible_ssh_private_key_file", "ansible_private_key_file"),
        options=tuple(word for text in options for word in shlex.split(text)),
        program=host.text("ansible_ssh_executable") or "ssh",
        python=f"{(host.text('pytorch_home') or f'/home/{owner}').rstrip('/')}/{_PYTHON}",
    )
