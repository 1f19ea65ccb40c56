"""An inventory as Ansible reads it: its hosts in order with their variables, or what is wrong with it. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchbake.errors import HostError

# Ansible asks every format in turn and reports each refusal; which of them the author meant, the ending says.
_REFUSAL = re.compile(
    r"Failed to parse inventory with '(?:[\w.]+\.)?(\w+)' plugin: (?:Failed to parse inventory: )?(.+)"
)
_MEANT = {".yml": "yaml", ".yaml": "yaml", ".json": "yaml", "": "ini", ".ini": "ini", ".cfg": "ini"}
_SAID = re.compile(r"^\[?(ERROR|WARNING)\]?[!:]+ *(.+)", flags=re.MULTILINE)
_OF_THE_FILE = "Completely failed to parse inventory"
_OF_EXTRA_VARS = "failed at splitting arguments"  # what each format says of an -e that cannot be read


@dataclass(frozen=True, kw_only=True)
class InventoryHost:
    """A host by its name there, with the variables of its groups and its own; templates are not filled in."""

    name: str
    variables: Mapping[str, Any]

    def text(self, *names: str) -> str:
        """The first of these variables that is set, as text; "" where none is.

        Raises HostError for a template or a vault's value: only Ansible itself can fill it in.
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
    """The hosts in what `ansible-inventory --list` says, in its order, each once. Raises HostError."""
    try:
        said = json.loads(text)
        variables = said["_meta"]["hostvars"]
        names = dict.fromkeys(_hosts_of("all", said))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise HostError(
            "The output of ansible-inventory is not an inventory.", hint="Run it yourself: --list"
        ) from None
    return tuple(InventoryHost(name=name, variables=variables.get(name, {})) for name in names)


def _hosts_of(group: str, said: Mapping[str, Any]) -> Iterator[str]:
    entry = said.get(group, {})
    yield from entry.get("hosts", ())
    for child in entry.get("children", ()):
        yield from _hosts_of(child, said)


def inventory_problem(source: str, stderr: str) -> HostError:
    """Why Ansible could not list the hosts, in one sentence of what it said: the inventory, or what came with it."""
    said = _SAID.findall(stderr)
    refusals = dict(_REFUSAL.findall(stderr))
    others = [words for kind, words in said if kind == "ERROR" and not words.startswith(_OF_THE_FILE)]
    others += [words for words in refusals.values() if words.startswith(_OF_EXTRA_VARS)]
    if others:  # -e, a vault, a file of variables
        return HostError(f"Ansible cannot list the hosts of {source}: {_plain(others[-1])}", hint=_HINT)
    suffix = re.search(r"\.\w+$", source)
    meant = refusals.get(_MEANT.get(suffix[0] if suffix else "", ""))
    reason = meant or next(
        iter(reversed([*refusals.values(), *(words for _, words in said)])), "Ansible gave no reason"
    )
    return HostError(f"{source} is not an inventory: {_plain(reason)}", hint=f"docs/hosts.md has an example. {_HINT}")


_HINT = "`ansible-inventory -i FILE --list`, with the same -e and --vault-password-file, says more."


def _plain(reason: str) -> str:
    """Without the names of Ansible's own classes."""
    reason = re.sub(r"\"?<class '[^']*?(\w+)'>\"?( instead)?", r"something else", reason)
    return f"{reason.strip().removesuffix('.')}."


def no_hosts(source: str, limit: str) -> HostError:
    """An inventory without hosts, or a limit that none of them fulfils."""
    if limit:
        return HostError(f"No host of {source} matches --limit {limit}.", hint="Name a host or a group of it.")
    return HostError(f"{source} has no hosts.", hint="docs/hosts.md has an example.")
