"""The variables that tools inherit: nothing in a shell changes a lock, a build, a check or a signature."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from torchbake.checks.pytest_run import CheckOptions, Suite
from torchbake.core.paths import TOOLKIT
from torchbake.core.tool_variables import ToolName, inherited_variables, note_of_ignored
from torchbake.ui import tool_environment

TOOLS: tuple[ToolName, ...] = get_args(ToolName)
# For all but Ansible, whose inventories read variables of the user.
EVERYWHERE = {"LD_PRELOAD": "/x.so", "TAR_OPTIONS": "--numeric-owner", "SOURCE_DATE_EPOCH": "7", "MADE_UP": "x"}
CHANGES: dict[ToolName, tuple[str, ...]] = {
    "uv": ("UV_RESOLUTION", "UV_CONSTRAINT", "UV_EXCLUDE", "UV_TORCH_BACKEND", "UV_MADE_UP"),
    "pip": ("PIP_CONSTRAINT", "PIP_NO_DEPS", "PIP_PRE", "PIP_TARGET", "VIRTUALENV_SYSTEM_SITE_PACKAGES"),
    "git": ("GIT_DIR", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES", "GIT_TRACE", "LD_PRELOAD"),
    "docker": (
        *("DOCKER_DEFAULT_PLATFORM", "BUILDX_GIT_LABELS", "BUILDX_NO_DEFAULT_LOAD", "BUILDX_BAKE_FILE"),
        *("BUILDKIT_SYNTAX", "EXPERIMENTAL_BUILDKIT_SOURCE_POLICY"),
    ),
    "buildah": ("BUILDAH_FORMAT", "BUILDAH_LAYERS", "CONTAINER_HOST", "CONTAINERS_MADE_UP", "GODEBUG"),
    "cosign": ("COSIGN_REPOSITORY", "COSIGN_EXPERIMENTAL", "SIGSTORE_REKOR_PUBLIC_KEY", "GODEBUG"),
    "ansible": ("ANSIBLE_SKIP_TAGS", "ANSIBLE_LIBRARY", "ANSIBLE_ROLES_PATH", "LD_PRELOAD"),
    "mmdebstrap": ("APT_CONFIG", "TAR_OPTIONS", "PERL5OPT", "DEB_BUILD_OPTIONS"),
    "apt": ("DPKG_FORCE", "LD_PRELOAD"),
    "pytest": ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONOPTIMIZE", "PYTHONWARNINGS"),
    "python": ("PYTHONOPTIMIZE", "PYTHONWARNINGS"),
}
HOST = ("PATH", "HOME", "TMPDIR", "LC_ALL", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "XDG_RUNTIME_DIR")
ENGINE = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "BUILDX_BUILDER")
NEEDS: dict[ToolName, tuple[str, ...]] = {
    "uv": ("UV_CACHE_DIR", "UV_INDEX_MIRROR_PASSWORD", "UV_FIND_LINKS"),
    "pip": ("PIP_INDEX_URL", "PIP_CERT", "PIP_CONFIG_FILE", "PIP_CACHE_DIR", "AWS_PROFILE"),
    "git": (
        *("GIT_CONFIG_COUNT", "GIT_CONFIG_VALUE_0", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK"),
        *("GIT_LFS_SKIP_SMUDGE", "GIT_ASKPASS", "GIT_USERNAME", "GIT_PASSWORD", "GIT_TOKEN", "TOKEN_OF_A_HELPER"),
        "SUDO_UID",  # whose checkout git then reads as root
    ),
    "docker": (*ENGINE, "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "KUBECONFIG", "ACTIONS_RUNTIME_TOKEN"),
    "buildah": (
        "BUILDAH_ISOLATION",
        "CONTAINERS_STORAGE_CONF",
        "STORAGE_DRIVER",
        "REGISTRY_AUTH_FILE",
        "SSH_AUTH_SOCK",
    ),
    "cosign": (
        *("COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "TUF_ROOT", "VAULT_TOKEN"),
        *("AZURE_TENANT_ID", "GOOGLE_APPLICATION_CREDENTIALS", "COSIGN_PKCS11_PIN", "DOCKER_CONFIG"),
    ),
    "ansible": ("ANSIBLE_CONFIG", "ANSIBLE_SSH_ARGS", "ANSIBLE_VAULT_PASSWORD_FILE", "OWN_INVENTORY_TOKEN"),
    "mmdebstrap": (),
    "apt": ("APT_CONFIG",),
    "pytest": (*ENGINE, "PYTHONPATH", "TORCHBAKE_LAYERS"),
    "python": ("PYTHONPATH",),
}


def test_a_tool_inherits_the_names_of_its_list() -> None:
    for tool in TOOLS:
        needs, changes = (
            {*HOST, *NEEDS[tool]},
            {*CHANGES[tool], *(EVERYWHERE if tool not in ("ansible", "git") else ())},
        )
        environ = dict.fromkeys((*needs, *changes), "x")
        assert {*inherited_variables(tool, environ)} == needs, tool


def test_ignored_variables_are_named_if_they_change_answers() -> None:
    for tool in TOOLS:
        note = note_of_ignored(dict.fromkeys((*HOST, *NEEDS[tool], *CHANGES[tool], "MADE_UP"), "x"), tool)
        assert note.rpartition(": ")[2].split(", ") == sorted(CHANGES[tool]), tool
        assert note_of_ignored({CHANGES[tool][0]: "", "PATH": "/bin"}, tool) == "", tool


def test_the_line_about_ignored_variables_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COSIGN_REPOSITORY", "elsewhere")
    tool_environment._note.cache_clear()
    assert "COSIGN_REPOSITORY" not in tool_environment.environment_of("cosign")
    tool_environment.environment_of("cosign")
    assert capsys.readouterr().err.count("COSIGN_REPOSITORY") == 1


@pytest.mark.usefixtures("own_processes")
def test_no_variable_turns_the_assertions_of_checks_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    suite = Suite(tmp_path, CheckOptions(), cwd=TOOLKIT)
    program = "import os, sys\nassert not 'the assertion'\nprint(os.environ)"
    with (tmp_path / "log").open("wb") as log:
        process = suite._start(["python3", "-c", program], log.fileno())
        assert process.wait() == 1
    assert "AssertionError" in (tmp_path / "log").read_text()


# Starts that are the user's own: launchers, ssh, the Python that is tested; hosts that are set up; torchbake itself.
OTHERS = (
    *("jobs/", "setup/", "proof/", "commands/setup.py", "commands/smoke.py", "environment.py"),
    *("hosts/over_ssh.py", "hosts/remote.py"),
)


def test_every_tool_that_is_started_gets_such_an_environment() -> None:
    package = TOOLKIT / "torchbake"
    texts = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}
    plain = {place for name, text in texts.items() if "subprocess" in text for place in plain_starts(name, text)}
    assert {place for place in plain if not place.startswith(OTHERS)} == set()
    assert [name for name in OTHERS if not any(place.startswith(name) for place in plain)] == []


def plain_starts(name: str, text: str) -> Iterator[str]:
    """The places of a module at which a program starts with all variables of this process."""
    if re.search(r"\*\*os\.environ|dict\(os\.environ", text):
        yield name
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"subprocess.run", "subprocess.Popen"}:
            arguments = [ast.unparse(word.value) for word in node.keywords if word.arg == "env"]
            if not arguments or "os.environ" in arguments[0]:
                yield f"{name}:{node.lineno}"
