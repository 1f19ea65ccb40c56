"""The folder of a playbook's run with its files, and Ansible's commands.

Ansible finds a collection and a callback in the playbook's folder, so its configuration stays the user's.
Source: docs.ansible.com, "Using collections in a playbook" and "Adding modules and plugins locally".
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from torchbake.core.paths import OWN_TOOLBOX, PACKAGE, TOOLKIT
from torchbake.hosts.archive import archive_of
from torchbake.hosts.callback_plugins import FILE

COLLECTION = "torchbake.pytorch"
_UNREADABLE_IS_AN_ERROR = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"}


@dataclass(frozen=True, kw_only=True)
class PlayRequest:
    """A request to run a playbook of the collection.

    The arguments ``words`` are passed to ansible-playbook unchanged. The values of ``-e`` are ``extra``: they win over
    the inventory, and the inventory wins over the variables of `write_play`.
    """

    playbook: str
    inventory: str
    limit: str = ""
    check: bool = False
    extra: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Play:
    """The folder of one run, readable only by this user."""

    folder: Path

    @property
    def playbook(self) -> Path:
        return self.folder / "site.yml"

    @property
    def variables(self) -> Path:
        """An inventory with variables of all hosts, but no hosts. Variables of a later inventory win."""
        return self.folder / "variables.json"

    @property
    def entrypoints(self) -> Path:
        """The archive of `run` and `smoke` for the hosts."""
        return self.folder / "entrypoints.tar"

    @property
    def results(self) -> Path:
        return self.folder / "results.jsonl"

    def words(self, request: PlayRequest) -> tuple[str, ...]:
        """Return the arguments of ansible-playbook."""
        return (
            *("--inventory", str(self.variables), "--inventory", request.inventory),
            *(("--limit", request.limit) if request.limit else ()),
            *(("--check", "--diff") if request.check else ()),
            *_extra_words(request.extra),
            *request.words,
            str(self.playbook),
        )

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {**environ, **_UNREADABLE_IS_AN_ERROR, FILE: str(self.results)}


@contextmanager
def write_play(request: PlayRequest, variables: Mapping[str, Any]) -> Iterator[Play]:
    """Make the folder of a run, and remove it afterwards."""
    with TemporaryDirectory(prefix="torchbake-host-") as name:
        play = Play(folder=Path(name))
        collection = play.folder / "collections/ansible_collections" / COLLECTION.replace(".", "/")
        collection.parent.mkdir(parents=True)
        collection.symlink_to(TOOLKIT / "ansible")
        (play.folder / "callback_plugins").symlink_to(PACKAGE / "hosts/callback_plugins")
        play.playbook.write_text(f"- import_playbook: {COLLECTION}.{request.playbook}\n")
        play.entrypoints.write_bytes(archive_of(OWN_TOOLBOX))
        play.variables.touch(mode=0o600)
        values = {**variables, "pytorch_entrypoints": str(play.entrypoints)}
        play.variables.write_text(json.dumps({"all": {"vars": values}}))
        yield play


def inventory_words(
    inventory: str, limit: str = "", extra: Sequence[str] = (), words: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the arguments of ansible-inventory that list the hosts, with the variables that their play has."""
    limited = ("--limit", limit) if limit else ()
    return ("--inventory", inventory, "--list", *limited, *_extra_words(extra), *words)


def _extra_words(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in ("--extra-vars", value))


def inventory_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, **_UNREADABLE_IS_AN_ERROR}


def command_of(program: Sequence[str], request: PlayRequest) -> str:
    """Return the command of a playbook as a user would type it. Its folder exists only during a run."""
    return shlex.join([*program, *Play(folder=Path(gettempdir(), "torchbake-host-…")).words(request)])
