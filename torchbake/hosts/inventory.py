"""Parse the output of ansible-inventory: the hosts in order with their variables, or the error of the inventory."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchbake.errors import HostError
from torchbake.ui.command import Command

# Ansible tries each format and reports each refusal. The file's suffix tells which format its author meant.
_REFUSAL = re.compile(
    r"Failed to parse inventory with '(?:[\w.]+\.)?(\w+)' plugin: (?:Failed to parse inventory: )?(.+)"
)
_FORMATS = {".yml": "yaml", ".yaml": "yaml", ".json": "yaml", "": "ini", ".ini": "ini", ".cfg": "ini"}
_MESSAGE = re.compile(r"^\[?(ERROR|WARNING)\]?[!:]+ *(.+)", flags=re.MULTILINE)
_OF_THE_FILE = "Completely failed to parse inventory"
_OF_EXTRA_VARS = "failed at splitting arguments"  # the error of each format for an invalid -e


@dataclass(frozen=True, kw_only=True)
class InventoryHost:
    """A host of an inventory with its own variables and its groups'; templates are not filled in."""

    name: str
    variables: Mapping[str, Any]

    def text(self, *names: str) -> str:
        """Return the first of these variables that is set, as text; "" if none is set.

        Raises HostError for a template or a value of a vault, which only Ansible can read.
        """
        value = next((self.variables[name] for name in names if self.variables.get(name) not in (None, "")), "")
        if "{{" in str(value) or isinstance(value, Mapping):
            kind = f"a template: {value}" if isinstance(value, str) else "not a plain value."
            raise HostError(
                f"The variable {names[0]} of {self.name} is {kind}",
                hint="Write the value itself there, or in ~/.ssh/config.",
            )
        return str(value)


def read_inventory(text: str) -> tuple[InventoryHost, ...]:
    """Parse the output of `ansible-inventory --list` and return its hosts in order, each once. Raises HostError."""
    try:
        groups = json.loads(text)
        variables = groups["_meta"]["hostvars"]
        names = dict.fromkeys(_hosts_of("all", groups))
    except (ValueError, LookupError, TypeError, AttributeError):
        message = "The output of ansible-inventory is not an inventory."
        raise HostError(message, hint="Run: ansible-inventory -i FILE --list") from None
    return tuple(InventoryHost(name=name, variables=variables.get(name, {})) for name in names)


def _hosts_of(group: str, groups: Mapping[str, Any]) -> Iterator[str]:
    entry = groups.get(group, {})
    yield from entry.get("hosts", ())
    for child in entry.get("children", ()):
        yield from _hosts_of(child, groups)


def inventory_problem(source: str, stderr: str) -> HostError:
    """Return the reason why Ansible could not list the hosts, as one sentence of Ansible's messages."""
    messages = _MESSAGE.findall(stderr)
    refusals = dict(_REFUSAL.findall(stderr))
    others = [words for kind, words in messages if kind == "ERROR" and not words.startswith(_OF_THE_FILE)]
    others += [words for words in refusals.values() if words.startswith(_OF_EXTRA_VARS)]
    if others:  # -e, a vault, a file of variables
        return HostError(f"Ansible cannot list the hosts of {source}: {_plain(others[-1])}", hint=_HINT)
    suffix = re.search(r"\.\w+$", source)
    suggestion = refusals.get(_FORMATS.get(suffix[0] if suffix else "", ""))
    reason = suggestion or ["Ansible gave no reason", *refusals.values(), *(words for _, words in messages)][-1]
    return HostError(
        f"{source} is not an inventory: {_plain(reason)}", hint=f"See the example: {Command('help', 'hosts')}. {_HINT}"
    )


_HINT = "`ansible-inventory -i FILE --list`, with the same -e and --vault-password-file, shows more."


def _plain(reason: str) -> str:
    """Remove the names of Ansible's classes."""
    reason = re.sub(r"\"?<class '[^']*?(\w+)'>\"?( instead)?", r"something else", reason)
    return f"{reason.strip().removesuffix('.')}."


def no_hosts(source: str, limit: str) -> HostError:
    """Return the error for an inventory without hosts, or a limit without a match."""
    if limit:
        return HostError(f"No host of {source} matches --limit {limit}.", hint="Name a host or a group of it.")
    return HostError(f"{source} has no hosts.", hint=f"See the example: {Command('help', 'hosts')}.")
