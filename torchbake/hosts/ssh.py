"""Commands on hosts by this machine's OpenSSH, whose configuration has aliases, keys, the agent and jump hosts.

The variables of an inventory win over that configuration, as in Ansible.
Source: docs.ansible.com, ansible.builtin.ssh connection; ssh(1).
"""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchbake.errors import HostError
from torchbake.hosts.inventory import InventoryHost

USER = "pytorch"
_PYTHON = "pytorch/sandbox/bin/python"  # below pytorch_home
_REMOTE = Path(__file__).with_name("remote.py")
# Reads a program of a given length and runs it. So the login shell, of any kind, has to read only one short line.
_START = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
# Nobody can answer a question of ssh here. A dead connection is detected within a minute.
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15")
CONNECTION_FAILED = 255  # ssh's own exit code
NO_PYTHON = (126, 127)  # exit codes of a shell that cannot run Python


@dataclass(frozen=True, kw_only=True)
class SshHost:
    """Connection settings of one host. ``python`` is an absolute path in the sandbox of the user ``owner``.

    If another ``user`` logs in, Python still runs with the owner's rights only, because the owner can change it.
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
        """The ssh command."""
        return (
            *(self.program, "-T"),
            *(word for option in _OPTIONS for word in ("-o", option)),
            *(("-p", self.port) if self.port else ()),
            *(("-i", self.key) if self.key else ()),
            *("-l", self.user),
            *self.options,
            *("--", self.address, f"exec {shlex.join(self._started)}"),
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
class SshRequest:
    """A command for a host, in the folder of an unpacked archive; without a command the host reports its facts.

    After the end of the connection the command gets ``grace`` seconds to end.
    """

    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    archive: bytes = b""
    grace: float = 10

    @property
    def encode(self) -> bytes:
        """The bytes for the host's stdin, which stays open until the command must end."""
        program = _REMOTE.read_bytes()
        fields = {"command": self.command, "env": dict(self.env), "grace": self.grace, "size": len(self.archive)}
        header = json.dumps(fields).encode()
        return b"%d\n%b%b\n%b" % (len(program), program, header, self.archive)


def ssh_host(host: InventoryHost, *, user: str = "", environ: Mapping[str, str] = os.environ) -> SshHost:
    """Return the connection settings of a host in an inventory. The user of PyTorch logs in, or ``user``.

    The sandbox is always in ``pytorch_home``. ``ANSIBLE_SSH_ARGS`` of the environment counts as for Ansible. Raises
    HostError for another connection than ssh.
    """
    kind = host.text("ansible_connection")
    if kind not in ("", "ssh", "smart", "ansible.builtin.ssh"):
        raise HostError(
            f"{host.name}: its connection is {kind}, but smoke tests use ssh.", hint="Remove ansible_connection."
        )
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
