"""An inventory is read in its own order, and a mistake in it is told in one sentence."""

import json

import pytest

from torchbake.errors import HostError
from torchbake.hosts.inventory import InventoryHost, inventory_problem, no_hosts, read_inventory

LISTED = {
    "_meta": {"hostvars": {"foo_bar": {"ansible_port": 2222}}},
    "all": {"children": ["ungrouped", "gpus", "again"]},
    "ungrouped": {"hosts": ["alone"]},
    "gpus": {"hosts": ["foo_bar", "b"]},
    "again": {"children": ["gpus"]},
}
# As ansible-core 2.19 says it of a file without an ending, and of one that ends in .yml.
OUTPUT = """\
[WARNING]: Failed to parse inventory with 'yaml' plugin: YAML parsing failed: Did not find expected <document start>.
[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: \
Section [b:children] includes undefined group 'nope'.
[ERROR]: Completely failed to parse inventory source /x/hosts
"""
OF_YAML = """\
[WARNING]: Failed to parse inventory with 'auto' plugin: no root 'plugin' key found
[WARNING]: Failed to parse inventory with 'yaml' plugin: Invalid "hosts" entry for "a" group, requires a dictionary, \
found "<class 'ansible.module_utils._internal._datatag._AnsibleTaggedList'>" instead.
[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: Invalid host pattern 'a:' supplied
"""


def test_hosts_come_once_each_in_the_order_of_the_groups() -> None:
    hosts = read_inventory(json.dumps(LISTED))
    assert [host.name for host in hosts] == ["alone", "foo_bar", "b"]
    assert hosts[1].text("ansible_port") == "2222"
    assert hosts[2].text("ansible_port") == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"_meta": {"hostvars": {}}, "all": 3}'])
def test_what_is_no_inventory_is_told_as_that(text: str) -> None:
    with pytest.raises(HostError, match="is not an inventory"):
        read_inventory(text)


def test_the_reason_is_that_of_the_format_which_the_ending_names() -> None:
    of_ini, of_yaml = inventory_problem("/x/hosts", OUTPUT), inventory_problem("hosts.yml", OF_YAML)
    assert of_ini.message == "/x/hosts is not an inventory: Section [b:children] includes undefined group 'nope'."
    assert of_yaml.message.endswith('Invalid "hosts" entry for "a" group, requires a dictionary, found something else.')
    assert "class" not in of_yaml.message


def test_without_a_known_reason_ansibles_own_last_word_is_told() -> None:
    assert "Completely failed" in inventory_problem("hosts.sh", "[ERROR]: Completely failed to parse\n").message
    assert inventory_problem("hosts", "").message == "hosts is not an inventory: Ansible gave no reason."


def test_what_is_wrong_with_other_things_is_not_the_inventorys() -> None:
    """As ansible-core 2.19 says it of -e "x=it's", where each format refuses, and of a vault."""
    why = "failed at splitting arguments, either an unbalanced jinja2 block or quotes: x=it's"
    output = f"[WARNING]: Failed to parse inventory with 'ini' plugin: {why}\n"
    output += "[ERROR]: Completely failed to parse inventory source /x/inv\n"
    assert inventory_problem("inv", output).message == f"Ansible cannot list the hosts of inv: {why}."
    vault = "Attempting to decrypt but no vault secrets found."
    assert inventory_problem("inv", f"[ERROR]: {vault}\n").message == f"Ansible cannot list the hosts of inv: {vault}"


def test_a_limit_that_no_host_fulfils_is_named() -> None:
    assert no_hosts("inventory", "gpus").message == "No host of inventory matches --limit gpus."
    assert no_hosts("inventory", "").message == "inventory has no hosts."


def test_the_first_of_several_variables_counts_without_templates() -> None:
    host = InventoryHost(name="a", variables={"new": "", "old": 1, "made": "{{ other }}"})
    assert host.text("new", "old") == "1"
    with pytest.raises(HostError, match="made of a is a template: "):
        host.text("made")
    locked = InventoryHost(name="a", variables={"ansible_port": {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256"}})
    with pytest.raises(HostError, match="ansible_port of a is not a plain value"):
        locked.text("ansible_port")
