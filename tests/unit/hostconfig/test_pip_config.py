"""The host's pip settings, read as pip reads them."""

import tomllib
from pathlib import Path

import pytest

from tests.unit.conftest import image
from torchbake.errors import HostConfigError
from torchbake.hostconfig.pip_config import (
    PipConfig,
    is_remote,
    local_folder,
    read_pip_config,
    without_login,
    without_logins,
)
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.uv import uv_environment
from torchbake.matrix.wheel_indexes import read_indexes


@pytest.mark.parametrize(
    "url", ["https://[mirror", "ftp://user:secret@mirror/simple", "/wheels", "https://", "//user:secret@mirror"]
)
def test_an_invalid_index_address_is_an_error_without_password(url: str) -> None:
    with pytest.raises(HostConfigError, match="TORCHBAKE_INDEX_CPU") as caught:
        read_indexes({"TORCHBAKE_INDEX_CPU": url})
    assert "secret" not in caught.value.message


def test_uvs_own_indexes_do_not_take_the_place_of_pips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://other")
    assert "UV_DEFAULT_INDEX" not in uv_environment(PipConfig(index_url="https://mirror"))
    assert uv_environment(PipConfig())["UV_DEFAULT_INDEX"] == "https://other"  # pip says nothing


class Host:
    """A host with its files below a folder; a path is relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> "Host":
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)
        return self

    def pip(self, **environ: str) -> PipConfig:
        return read_pip_config({"HOME": str(self.root / "home"), **environ}, self.root / "etc")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def index(url: str, section: str = "global") -> str:
    return f"[{section}]\nindex-url = {url}\n"


# Weakest first, as pip reads them: each wins over those before it.
PIP_FILES = ("etc/xdg/pip/pip.conf", "etc/pip.conf", "home/.pip/pip.conf", "home/.config/pip/pip.conf", "own.conf")


def test_a_host_without_settings_has_pips_defaults(host: Host) -> None:
    assert host.pip() == PipConfig()


@pytest.mark.parametrize("count", range(1, len(PIP_FILES) + 1))
def test_a_later_file_of_pip_wins(count: int, host: Host) -> None:
    for path in PIP_FILES[:count]:
        host.write(path, index(f"https://{path}"))
    assert host.pip(PIP_CONFIG_FILE=str(host.root / "own.conf")).index_url == f"https://{PIP_FILES[count - 1]}"


def test_the_install_section_of_any_file_beats_every_global_one(host: Host) -> None:
    host.write("etc/pip.conf", index("https://install", "install"))
    host.write("home/.config/pip/pip.conf", index("https://global") + "proxy = http://proxy\n")
    assert (host.pip().index_url, host.pip().proxy) == ("https://install", "http://proxy")


@pytest.mark.parametrize("section", ["download", "list", "freeze"])
def test_sections_of_other_commands_say_nothing(section: str, host: Host) -> None:
    assert host.write("etc/pip.conf", index("https://other", section)).pip() == PipConfig()


def test_the_environment_wins_over_every_file(host: Host) -> None:
    host.write("home/.config/pip/pip.conf", index("https://file"))
    assert host.pip(PIP_INDEX_URL="https://environment").index_url == "https://environment"


def test_pips_other_places(host: Host) -> None:
    host.write("a/pip/pip.conf", index("https://a")).write("b/pip/pip.conf", index("https://b"))
    assert host.pip(XDG_CONFIG_DIRS=f"{host.root}/b:{host.root}/a").index_url == "https://a"
    assert host.pip(XDG_CONFIG_HOME=f"{host.root}/b").index_url == "https://b"


def test_the_null_device_as_pips_file_means_no_files(host: Host) -> None:
    host.write("etc/pip.conf", index("https://file"))
    assert host.pip(PIP_CONFIG_FILE="/dev/null") == PipConfig()


def test_every_setting_of_pip_that_matters_here(host: Host) -> None:
    host.write(
        "etc/pip.conf",
        "[global]\n"
        "index-url = https://index/simple\n"
        "extra_index_url =\n    https://one/simple\n    https://two/simple\n"
        "find-links = /srv/wheels https://page.html\n"
        "trusted-host = index one\n"
        "cert = /etc/ca.pem\n"
        "proxy = http://proxy:3128\n"
        "no-index = yes\n"
        "timeout = 60\n",
    )
    assert host.pip() == PipConfig(
        index_url="https://index/simple",
        extra_index_urls=("https://one/simple", "https://two/simple"),
        find_links=("/srv/wheels", "https://page.html"),
        trusted_hosts=("index", "one"),
        cert="/etc/ca.pem",
        proxy="http://proxy:3128",
        no_index=True,
    )


@pytest.mark.parametrize(
    ("environ", "cert"),
    [
        ({"PIP_CERT": "/pip.pem", "SSL_CERT_FILE": "/ssl.pem"}, "/pip.pem"),
        ({"SSL_CERT_FILE": "/ssl.pem", "REQUESTS_CA_BUNDLE": "/requests.pem"}, "/ssl.pem"),
        ({"REQUESTS_CA_BUNDLE": "/requests.pem"}, "/requests.pem"),
    ],
)
def test_where_the_certificates_are(environ: dict[str, str], cert: str, host: Host) -> None:
    assert host.pip(**environ).cert == cert


@pytest.mark.parametrize("text", ["index-url = x\n", "[global\n", "[global]\nindex-url = %(x\n[global]\n"])
def test_a_file_that_pip_cannot_read_is_an_error_that_names_it(text: str, host: Host) -> None:
    host.write("etc/pip.conf", text)
    with pytest.raises(HostConfigError, match=r"etc/pip\.conf"):
        host.pip()


def test_a_percent_sign_is_no_riddle(host: Host) -> None:
    host.write("etc/pip.conf", index("https://user:p%40ss@index/simple"))
    assert host.pip().index_url == "https://user:p%40ss@index/simple"


def test_what_is_a_folder_of_this_host() -> None:
    for place, folder in (
        ("/srv/wheels", "/srv/wheels"),
        ("wheels", "wheels"),
        ("file:///srv/my%20wheels", "/srv/my wheels"),
        ("file:/srv/wheels", "/srv/wheels"),
        ("file://localhost/srv/wheels", "/srv/wheels"),
        ("https://index/simple", None),
        ("http://index:8080/simple", None),
        ("s3://bucket/simple", None),
    ):
        assert local_folder(place) == (Path(folder) if folder else None), (place, folder)
        assert is_remote(place) == (folder is None), (place, folder)


def test_a_home_folder_may_be_written_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert local_folder("~/wheels") == Path("/home/me/wheels")


def test_local_folders_are_those_that_are_there(host: Host) -> None:
    for name in ("index", "my wheels", "links"):
        (host.root / name).mkdir()
    config = PipConfig(
        index_url=f"file://{host.root}/index",
        extra_index_urls=("https://remote/simple", f"file://{host.root}/my%20wheels"),
        find_links=(f"{host.root}/links", f"{host.root}/gone", "https://page.html"),
    )
    assert [folder.name for folder in config.local_folders] == ["index", "my wheels", "links"]


def test_proxy_variables_are_those_that_are_set() -> None:
    environ = {"HTTP_PROXY": "http://proxy", "no_proxy": "localhost", "https_proxy": "", "PATH": "/bin"}
    assert proxy_variables(environ) == ("HTTP_PROXY", "no_proxy")


def test_an_accelerators_index_is_read_from_the_environment(host: Host) -> None:
    config = host.pip(TORCHBAKE_INDEX_CPU=" https://one/cpu https://two/cpu ", TORCHBAKE_INDEX_CUDA12_8="")
    assert config.indexes == {"TORCHBAKE_INDEX_CPU": ("https://one/cpu", "https://two/cpu")}


@pytest.mark.parametrize("value", ["/srv/wheels", "file:///srv/simple", "download.pytorch.org/whl/cpu"])
def test_an_accelerators_index_has_an_address_a_build_reaches(value: str, host: Host) -> None:
    with pytest.raises(HostConfigError, match="TORCHBAKE_INDEX_CPU") as caught:
        host.pip(TORCHBAKE_INDEX_CPU=value)
    assert "find-links" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("names", "accelerator", "queries"),
    [
        ({"CPU": "https://x"}, "cpu", ("https://x",)),
        ({"CPU": "https://x"}, "cuda12.8", ()),
        ({"CUDA": "https://x", "CUDA12": "https://y", "CUDA12_8": "https://z"}, "cuda12.8", ("https://z",)),
        ({"CUDA": "https://x", "CUDA12": "https://y", "CUDA12_8": "https://z"}, "cuda12.6", ("https://y",)),
        ({"CUDA": "https://x", "CUDA12": "https://y", "CUDA12_8": "https://z"}, "cuda13.0", ("https://x",)),
    ],
)
def test_the_most_exact_name_of_an_accelerator_wins(
    names: dict[str, str], accelerator: str, queries: tuple[str, ...], host: Host
) -> None:
    config = host.pip(**{f"TORCHBAKE_INDEX_{name}": url for name, url in names.items()})
    assert config.instead(image(accelerator=accelerator, indexes=("https://matrix",))) == queries


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://me:p@ss@index.example:8443/simple", "https://index.example:8443/simple"),
        ("https://index.example/simple", "https://index.example/simple"),
    ],
)
def test_an_address_is_shown_without_its_login(url: str, text: str) -> None:
    assert without_login(url) == text
    assert without_logins(f"| {url}: 401, {url}?") == f"| {text}: 401, {text}?"


def test_uv_reads_relative_folders_from_the_root() -> None:
    text = uv_toml(PipConfig(find_links=("wheels", "file:///srv/w", "https://page"), index_url="simple"))
    matches = tomllib.loads(text)
    assert matches["find-links"] == [str(Path.cwd() / "wheels"), "file:///srv/w", "https://page"]
    assert matches["index-url"] == str(Path.cwd() / "simple")
    assert uv_toml(PipConfig()) == ""
