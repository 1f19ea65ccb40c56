"""Find Ansible, list inventories, and run playbooks to their end."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from torchbake.core.child import run as run_child
from torchbake.core.plain_text import last_line
from torchbake.errors import HostError, InstallError
from torchbake.hosts.inventory import InventoryHost, inventory_problem, no_hosts, read_inventory
from torchbake.hosts.play import PlayRequest, command_of, inventory_environment, inventory_words, write_play
from torchbake.hosts.results import HostResult, read_results
from torchbake.ui.command import Command
from torchbake.ui.tool_environment import environment_of

OLDEST = Version("2.19")  # The first version for Python 3.13 and Debian 13; its messages are parsed here.
_INTERRUPTED = (99, 129, 130, 143)  # Ansible's own code for Ctrl-C, and those of a process that a signal ended
_STDERR = 2
_INSIST = 10.0  # seconds until Ansible is interrupted again; it ends its workers in one or two


@dataclass(frozen=True, kw_only=True)
class Ansible:
    """The form of its commands: modules of this Python if it has the package, else programs by name."""

    module: bool

    def program(self, name: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "ansible", name) if self.module else (f"ansible-{name}",)

    def inventory(
        self, source: str, limit: str = "", extra: Sequence[str] = (), words: Sequence[str] = ()
    ) -> tuple[InventoryHost, ...]:
        """List the hosts of an inventory in order, with the variables of a play with these ``extra`` and ``words``.

        Raises HostError if the file does not exist, cannot be read, or has no host.
        """
        if "," not in source and not Path(source).exists():
            raise HostError(
                f"{source}: there is no such inventory.", hint=f"See the example: {Command('help', 'hosts')}."
            )
        process = subprocess.run(
            [*self.program("inventory"), *inventory_words(source, limit, extra, words)],
            env=inventory_environment(environment_of("ansible")), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if process.returncode:
            raise inventory_problem(source, process.stderr)
        hosts = read_inventory(process.stdout)
        if not hosts:
            raise no_hosts(source, limit)
        return hosts

    def play(self, request: PlayRequest, variables: Mapping[str, Any], hosts: Sequence[str]) -> tuple[HostResult, ...]:
        """Run a playbook and return a result for each host. Ansible's output goes to stderr.

        Ctrl-C reaches Ansible, which ends its workers; then KeyboardInterrupt is raised. Raises HostError if Ansible
        ends before it has reached any host.
        """
        with write_play(request, variables) as play:
            words = [*self.program("playbook"), *play.words(request)]
            env = play.environment(environment_of("ansible"))
            code = run_child(words, folder=Path.cwd(), env=env, stdout=_STDERR, insist=_INSIST)
            if code in _INTERRUPTED:
                raise KeyboardInterrupt
            results = read_results(play.results.read_text() if play.results.exists() else "", hosts)
        if code and not any(result.reached for result in results):
            raise HostError(
                f"ansible-playbook ended with {code}, before any host's turn.", hint="See its messages above."
            )
        # After success, a host without a result is not in the play.
        return tuple(result for result in results if code or result.reached)

    def command_line(self, request: PlayRequest) -> str:
        """Return the command of a playbook as a user would type it."""
        return command_of(self.program("playbook"), request)


def find_ansible() -> Ansible:
    """Find Ansible. Raises InstallError if it is missing, too old, or does not run."""
    try:
        version, module = importlib.metadata.version("ansible-core"), True
    except importlib.metadata.PackageNotFoundError:
        version, module = _version_in_path(), False
    if Version(version) < OLDEST:
        raise InstallError(f"ansible-core {version} is too old: {OLDEST} or newer is needed.", hint=_HINT)
    return Ansible(module=module)


_HINT = (
    f"Run: pip install 'torchbake[host]'. For a checkout, in nox's environment: pip install 'ansible-core>={OLDEST}'."
)


def _version_in_path() -> str:
    program = shutil.which("ansible-playbook")
    if program is None:
        raise InstallError("The command host needs Ansible, and ansible-core is not installed.", hint=_HINT)
    env = environment_of("ansible")
    try:
        process = subprocess.run([program, "--version"], env=env, capture_output=True, text=True, check=False)
    except OSError as error:  # the Python of a script is gone
        raise InstallError(f"{program} does not start: {error.strerror}.", hint=_HINT) from None
    match = re.search(r"\[core (\d[\d.]*)", process.stdout) or re.match(r"ansible-playbook (\d[\d.]*)", process.stdout)
    if process.returncode or not match:
        reason = last_line(process.stderr or process.stdout)
        raise InstallError(f"{program} --version names no version of ansible-core: {reason}", hint=_HINT)
    return match[1]
