"""The Ansible collection, as far as files tell: its variables are one list, and it knows what the matrix has."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.unit.conftest import check_golden
from torchbake.core.paths import TOOLKIT
from torchbake.hosts.host_images import default_images
from torchbake.lock.image_lock import lock_text
from torchbake.lock.lockfile import parse_lock
from torchbake.lock.wheel_tags import wheel_platforms
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import AMD64, ImageSpec, pytorch_of

COLLECTION = TOOLKIT / "ansible"
PAGE = COLLECTION / "README.md"
PAGE_OF_HOSTS = TOOLKIT / "docs/how-to/hosts.md"
START = (
    "<!-- from the argument specs; TORCHBAKE_UPDATE_GOLDEN=1 nox -s unit -- tests/unit/test_ansible.py writes it -->\n"
)
LOCKS = sorted((TOOLKIT / "images").glob("*/requirements.lock"))


def read(path: str) -> Any:
    return yaml.safe_load((COLLECTION / path).read_text(encoding="utf-8"))


def options_of(role: str) -> Mapping[str, Mapping[str, Any]]:
    options: Mapping[str, Mapping[str, Any]] = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"][
        "options"
    ]
    return options


@pytest.mark.parametrize("role", ["base", "pytorch"])
def test_the_defaults_of_a_role_are_those_of_its_argument_spec(role: str) -> None:
    assert read(f"roles/{role}/defaults/main.yml") == {name: of["default"] for name, of in options_of(role).items()}


@pytest.mark.parametrize("role", ["base", "pytorch"])
def test_a_variable_that_a_role_uses_is_in_its_argument_spec(role: str) -> None:
    texts = [path.read_text() for path in (COLLECTION / "roles" / role).rglob("*.yml") if "meta" not in path.parts]
    registered = {name for text in texts for name in re.findall(r"(?:register|loop_var): (\w+)", text)}
    used = {name for text in texts for name in re.findall(rf"(?<![\w.]){role}_\w+", text)}
    assert used - registered == options_of(role).keys()


def test_the_page_has_every_variable() -> None:
    check_golden(
        PAGE, PAGE.read_text().partition(START)[0] + START + "".join(_table(role) for role in ("pytorch", "base"))
    )


def _table(role: str) -> str:
    spec = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]
    rows = "".join(_row(name, option) for name, option in spec["options"].items())
    title = re.sub(r"C\(([^)]*)\)", r"`\1`", spec["short_description"])
    return (
        f"\n### `{role}`\n\n{title}.\n\n| variable | type | what it is | default |\n| --- | --- | --- | --- |\n{rows}"
    )


def _row(name: str, option: Mapping[str, Any]) -> str:
    words = option["description"] if isinstance(option["description"], str) else " ".join(option["description"])
    text = re.sub(r"C\(([^)]*)\)", r"`\1`", words).replace("|", "\\|")
    kind = " or ".join(f"`{choice}`" for choice in option.get("choices", ())) or option["type"]
    return f"| `{name}` | {kind} | {text} | {_default(option['default'])} |\n"


def _default(value: Any) -> str:
    if isinstance(value, str) and "__" in value:
        return "from the lock"
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`".replace("|", "\\|") if text else "empty"


def test_the_collection_has_the_version_of_the_toolkit() -> None:
    version = re.findall(r"(?m)^## (\S+)", (TOOLKIT / "CHANGELOG.md").read_text())[0]
    assert read("galaxy.yml")["version"] == version


def test_the_oldest_driver_is_known_for_each_cuda_of_the_matrix() -> None:
    drivers = read("roles/pytorch/vars/main.yml")["__pytorch_oldest_drivers"]
    specs = load_project(TOOLKIT / "matrix.yaml").expansion.specs
    majors = {
        str(spec.accelerator.version[0]) for spec in specs if isinstance(spec, ImageSpec) and spec.accelerator.version
    }
    assert majors
    assert majors <= drivers.keys()
    assert all(re.fullmatch(r"\d{3}\.\d+\.\d+", driver) for driver in drivers.values())


def test_the_role_reads_of_a_lock_what_the_toolkit_reads() -> None:
    """Its patterns are Python's, as Jinja's filters take them."""
    for lock in LOCKS:
        text = lock.read_text()
        locked = read("roles/pytorch/vars/main.yml")["__pytorch_locked"]
        matches = {
            name: re.findall(re.findall(r"regex_findall\('(.*?)'\)", value)[0], text) for name, value in locked.items()
        }
        parsed = parse_lock(text, lock.name)
        cuda = [".".join(parsed.cuda.split(".")[:2])] if parsed.cuda else []
        assert matches == {
            "torch": [parsed.pins["torch"].version],
            "cuda": cuda,
            "python": re.findall(r"python ([\d.]+);", parsed.inputs),
        }, lock


def test_the_role_sees_packages_that_are_no_wheels() -> None:
    (pattern,) = re.findall(r"regex_findall\('(.*?)'\)", read("roles/pytorch/vars/main.yml")["__pytorch_packages"])
    for name, expected in (("project", [". packages/core"]), ("cpu", [])):
        assert re.findall(pattern, (TOOLKIT / f"tests/unit/golden/locks/{name}.lock").read_text()) == expected


def test_the_role_reads_the_indexes_of_the_matrix_in_a_lock() -> None:
    expression = read("roles/pytorch/vars/main.yml")["__pytorch_locked_indexes"]
    (pattern,) = re.findall(r"regex_findall\('(.*?)'\)", expression)
    project = load_project(TOOLKIT / "matrix.yaml")
    matches = {spec.id: re.findall(pattern, lock_text(TOOLKIT, spec)) for spec in pytorch_of(project.expansion.specs)}
    assert any(matches.values())
    for spec in pytorch_of(project.expansion.specs):
        assert matches[spec.id] == ([" ".join(spec.indexes)] if spec.indexes else []), spec.id


def test_the_default_images_of_the_role_are_those_of_the_matrix() -> None:
    derived = default_images(load_project(TOOLKIT / "matrix.yaml"))
    images = read("roles/pytorch/defaults/main.yml")["pytorch_default_images"]
    assert images == {kind: spec.id for kind, spec in derived.items()}


def test_the_page_prints_the_variables_of_the_sample() -> None:
    assert (COLLECTION / "sample/group_vars/all.yml").read_text().removeprefix("---\n") in PAGE_OF_HOSTS.read_text()


def test_the_roles_messages_of_the_page_are_in_the_roles() -> None:
    roles = " ".join(" ".join(path.read_text().split()) for path in (COLLECTION / "roles").rglob("*.yml"))
    rows = PAGE_OF_HOSTS.read_text().partition("## When it fails")[2].splitlines()[4:]
    messages = [text for row in rows for text in re.findall("`([^`]+)`", row.split("|")[1])]
    parts = [part.strip(" ,") for text in messages for part in re.split(r"…|HOST|3\.11|FAILED - RETRYING:", text)]
    missing = [part for part in parts if part and part not in roles]
    others = ["held by process 812 (apt-get)", "Missing sudo password", "Permission denied"]
    assert missing == [*others, "not writable by the current user"]  # of apt, Ansible and the system


def test_the_page_downloads_wheels_for_the_toolkits_platforms() -> None:
    newest = wheel_platforms(AMD64)[0].split("_")[2]
    words = f"manylinux_2_{{{newest}..5}}_x86_64 manylinux2014_x86_64 {wheel_platforms(AMD64)[-1]})"
    assert words in PAGE_OF_HOSTS.read_text()


def test_the_script_of_the_sample_can_be_run() -> None:
    assert os.access(COLLECTION / "sample/deploy_host", os.X_OK)
