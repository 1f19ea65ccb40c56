"""One address for the SDK and the docker command: the setting that decides, and what docker commands get of it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import requests

from torchbake.core.paths import PACKAGE
from torchbake.engine import address, sdk
from torchbake.engine.address import DEFAULT, Address, Tls, docker_command, engine_address, resolve
from torchbake.errors import EngineError

HOSTS = {"far": "tcp://far:2376", "near": "unix:///run/near.sock"}


def context(folder: Path, name: str, *files: str, skip: bool = False) -> dict[str, Any]:
    """A context as `docker context inspect` shows it (Docker 28.2)."""
    for file in files:
        (folder / "docker").mkdir(parents=True, exist_ok=True)
        (folder / "docker" / file).touch()
    return {
        "Name": name,
        "Metadata": {},
        "Endpoints": {"docker": {"Host": HOSTS[name], "SkipTLSVerify": skip}},
        "TLSMaterial": {"docker": list(files)} if files else {},
        "Storage": {"MetadataPath": str(folder), "TLSPath": str(folder)},
    }


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of docker's settings whose contexts are those of HOSTS; the command is not started."""

    def inspected(environ: dict[str, str]) -> dict[str, Any]:
        name = environ.get("DOCKER_CONTEXT") or json.loads((tmp_path / "config.json").read_text())["currentContext"]
        return context(tmp_path / name, name)

    monkeypatch.setattr(address, "_inspect", inspected)
    return tmp_path


def test_the_setting_that_docker_prefers_decides(docker: Path) -> None:
    (docker / "config.json").write_text('{"currentContext": "near"}')
    settings = {"DOCKER_CONFIG": str(docker)}
    expected = {
        "tcp://one:2375": ("DOCKER_HOST", {"DOCKER_HOST": "tcp://one:2375", "DOCKER_CONTEXT": "far"}),
        "tcp://far:2376": ("DOCKER_CONTEXT", {"DOCKER_CONTEXT": "far", "DOCKER_HOST": ""}),
        "unix:///run/near.sock": ("current context", {"DOCKER_CONTEXT": ""}),
        DEFAULT.host: ("default", {"DOCKER_CONTEXT": "default"}),
    }
    for host, (origin, environ) in expected.items():
        value = resolve({**settings, **environ})
        assert (value.host, value.origin) == (host, origin)


@pytest.mark.parametrize("text", [None, "{}", '{"currentContext": "default"}'])
def test_without_a_context_docker_is_not_asked(text: str | None, tmp_path: Path) -> None:
    if text:
        (tmp_path / "config.json").write_text(text)
    assert resolve({"DOCKER_CONFIG": str(tmp_path)}) == DEFAULT
    (tmp_path / ".docker").mkdir()
    assert resolve({}, home=tmp_path) == DEFAULT


def test_settings_that_are_not_plain_are_left_to_docker(docker: Path) -> None:
    def asks(text: str, **more: str) -> bool:
        (docker / "config.json").write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(address, "_inspect", lambda _: context(docker / "far", "far"))
            return resolve({"DOCKER_CONFIG": str(docker), **more}).context == "far"

    assert not asks("{}")
    assert asks("{}", DOCKER_TLS_VERIFY="1")
    for text in ('{"currentContext": null}', "[]", "{", '{"currentContext": "near"}'):
        assert asks(text), text


def test_docker_commands_get_the_address_whatever_changes(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    assert docker_command("info") == ["docker", "info"]
    monkeypatch.setenv("DOCKER_CONTEXT", "near")
    assert engine_address().host == "tcp://far:2376"  # once per process
    for arguments, pinned in (
        ({"DOCKER_HOST": "tcp://one:2375", "DOCKER_CONTEXT": "far"}, {"DOCKER_HOST": "tcp://one:2375"}),
        ({"DOCKER_HOST": "", "DOCKER_CONTEXT": "far"}, {"DOCKER_CONTEXT": "far"}),
        ({"DOCKER_HOST": "", "DOCKER_CONTEXT": "default"}, {"DOCKER_CONTEXT": "default"}),
    ):
        for name, value in arguments.items():
            monkeypatch.setenv(name, value)
        address.engine_address.cache_clear()
        engine_address()
        assert {name: os.environ[name] for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if name in os.environ} == pinned
        assert resolve(os.environ).host == engine_address().host


def test_the_files_of_a_context_are_the_sdks_too(docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("ca.pem", "cert.pem", "key.pem")
    folder = tmp_path / "tls"
    monkeypatch.setattr(address, "_inspect", lambda environ: context(folder, "far", *files, skip=True))
    value = resolve({"DOCKER_CONTEXT": "far"})
    ca, certificate, key = (folder / "docker" / name for name in files)
    assert value.tls == Tls(ca=ca, certificate=certificate, key=key, verify=False)
    config = sdk._tls(value)
    assert not isinstance(config, bool)
    assert (config.cert, config.ca_cert, config.verify) == ((str(certificate), str(key)), str(ca), False)
    assert sdk._tls(DEFAULT) is False


def test_certificates_of_the_environment_replace_no_engines_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """requests would prefer the bundle, but the docker command does not."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    (tmp_path / "ca.pem").touch()
    tls = sdk._tls(Address(host="tcp://far:2376", origin="DOCKER_HOST", tls=Tls(ca=tmp_path / "ca.pem")))
    assert not isinstance(tls, bool)
    session: Any = requests.Session()
    session.base_url = "tcp://far:2376"
    tls.configure_client(session)
    settings = session.merge_environment_settings("https://far:2376/info", {}, None, None, None)
    assert settings["verify"] == str(tmp_path / "ca.pem")
    assert settings["proxies"]["https"] == "http://proxy:3128"


def test_tls_is_on_where_it_is_for_the_docker_command(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    host = {"DOCKER_HOST": "tcp://far:2376", "DOCKER_CERT_PATH": str(tmp_path)}
    assert resolve(host).tls is None
    assert resolve(host | {"DOCKER_TLS_VERIFY": "1"}).tls == Tls(ca=tmp_path / "ca.pem")
    assert resolve(host | {"DOCKER_TLS": "1"}).tls == Tls(ca=tmp_path / "ca.pem", verify=False)


def test_a_context_without_an_engine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for matches in ({}, {"Name": "x", "Endpoints": {}}, {"Name": "x", "Endpoints": {"docker": None}}):
        monkeypatch.setattr(address, "_inspect", lambda environ, matches=matches: matches)
        with pytest.raises(EngineError, match="no address"):
            resolve({"DOCKER_CONTEXT": "x"})


def test_only_sockets_of_this_machine_are_local() -> None:
    for host, local in (("unix:///a", True), ("npipe:////./pipe/x", True), ("tcp://127.0.0.1:1", False),
                        ("ssh://me@far", False)):  # fmt: skip
        assert Address(host=host, origin="DOCKER_HOST").local is local


def test_every_docker_command_is_given_the_address() -> None:
    """Exceptions are commands in messages, and the two modules that run docker with their own environment."""
    own = {"engine/address.py", "engine/docker_cli.py"}
    rows = {"jobs/targets/docker.py", "jobs/launchers/compose.py", "engine/runner.py"}
    starts = re.compile(r"[\[(]\"docker\", \"(?!urllib3)")
    matches = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if starts.search(path.read_text())}
    assert matches - rows <= own
