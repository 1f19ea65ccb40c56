"""A become plugin of Ansible: root works as another user by `runuser`, where neither sudo nor setfacl is installed."""

import shlex
from typing import Any

from ansible.plugins.become import BecomeBase

DOCUMENTATION = """
name: runuser
short_description: Become another user where root logs in
description:
  - Runs commands with the rights of another user by C(runuser) of util-linux, which every Debian and Ubuntu has.
  - It works for root alone, asks for no password, and needs no login shell. Pipelining works with it.
author: The torchbake authors
version_added: 0.1.0
options:
  become_user:
    description: The user.
    type: str
    keyword:
      - name: become_user
    vars:
      - name: ansible_become_user
"""


class BecomeModule(BecomeBase):
    name = "torchbake.pytorch.runuser"

    def build_become_command(self, cmd: str, shell: Any) -> str:
        """Return the command as the user runs it; ``shell`` is Ansible's own object for the host's shell."""
        super().build_become_command(cmd, shell)
        if not cmd:
            return cmd
        user, command = self.get_option("become_user"), self._build_success_command(cmd, shell)
        return f"runuser --shell=/bin/sh {shlex.quote(user)} --command={shlex.quote(command)}"
