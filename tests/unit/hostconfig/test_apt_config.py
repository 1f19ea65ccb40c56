"""The host's apt settings, read as apt reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from torchbake.errors import HostConfigError
from torchbake.hostconfig.apt_config import AptConfig, read_apt_config


class Host:
    """A host with its files below a folder; a path is relative to it. ``dump`` is the output of its apt-config."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dump = ""

    def write(self, path: str, text: str) -> "Host":
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)
        return self

    def apt(self, **environ: str) -> AptConfig:
        return read_apt_config(environ, self.root / "etc/apt", lambda _: self.dump)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_host_without_settings_has_apts_defaults(host: Host) -> None:
    assert host.apt() == AptConfig()


ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/x.gpg] http://mirror.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main
deb-src http://sources.example/debian bookworm main
"""
DEB822 = """\
Types: deb
URIs: http://mirror.example/debian/
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.example/debian-security/
Suites: bookworm-security
Components: main
"""


@pytest.mark.parametrize(
    ("path", "text", "end"),
    [
        ("sources.list", ONE_LINE, ""),
        ("sources.list.d/mine.list", ONE_LINE, ""),
        ("sources.list.d/debian.sources", DEB822, "/"),
    ],
)
def test_debian_mirrors_are_read_from_either_form_of_sources(path: str, text: str, end: str, host: Host) -> None:
    apt = host.write(f"etc/apt/{path}", text).apt()
    assert apt.mirror == f"http://mirror.example/debian{end}"
    assert apt.security_mirror == f"http://mirror.example/debian-security{end}"


def test_backups_of_sources_say_nothing(host: Host) -> None:
    assert host.write("etc/apt/sources.list.d/debian.sources.bak", DEB822).apt() == AptConfig()


def test_other_archives_are_no_debian_mirror(host: Host) -> None:
    assert host.write("etc/apt/sources.list", "deb https://download.example/linux bookworm stable\n").apt().mirror == ""


@pytest.mark.parametrize(
    ("mirror", "security"),
    [
        ("http://mirror.example/debian", "http://mirror.example/debian-security"),
        ("http://debian.example/debian/", "http://debian.example/debian-security"),
        ("http://mirror.example/proxy/apt", "http://mirror.example/proxy/apt"),
    ],
)
def test_a_named_mirror_wins_and_sets_the_security_archive(mirror: str, security: str, host: Host) -> None:
    host.write("etc/apt/sources.list", "deb http://other.example/debian bookworm main\n")
    apt = host.apt(TORCHBAKE_APT_MIRROR=mirror)
    assert (apt.mirror, apt.security_mirror) == (mirror, security)


UBUNTU = "Types: deb\nURIs: http://mirror.example/ubuntu/\nSuites: noble noble-updates\nComponents: main\n"


@pytest.mark.parametrize(
    ("text", "environ", "mirrors"),
    [
        (UBUNTU, {}, ("", "http://mirror.example/ubuntu/")),
        (DEB822, {}, ("http://mirror.example/debian/", "")),
        (UBUNTU, {"TORCHBAKE_APT_MIRROR": "http://a/debian"}, ("http://a/debian", "http://mirror.example/ubuntu/")),
        (DEB822, {"TORCHBAKE_APT_MIRROR_UBUNTU": "http://a/u"}, ("http://mirror.example/debian/", "http://a/u")),
    ],
    ids=["Ubuntu's", "Debian's", "Debian's is named", "Ubuntu's is named"],
)
def test_each_distribution_has_its_own_mirror(
    text: str, environ: dict[str, str], mirrors: tuple[str, str], host: Host
) -> None:
    apt = host.write("etc/apt/sources.list.d/system.sources", text).apt(**environ)
    assert (apt.mirror, apt.ubuntu_mirror) == mirrors


HTTP, HTTPS = "Acquire::http::Proxy", "Acquire::https::Proxy"
PROXY = f'{HTTP} "http://proxy:3142";\n'
# The output of `apt-config dump` for this configuration:
#     Acquire { http { Proxy "http://p:1"; Proxy::deb.example "DIRECT"; proxy { "own.example" "http://o:2"; }; }; };
#     Acquire::HTTPS::proxy "DIRECT"; Acquire::http::Proxy:: "anonymous";
#     Acquire::http::Proxy::gone.example "http://g:1"; #clear Acquire::http::Proxy::gone.example;
#     acquire::http::proxy "http://login:p%40ss@later:1";
DUMP = """\
APT "";
APT::Architecture "amd64";
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://login:p%40ss@later:1";
Acquire::http::Proxy::deb.example "DIRECT";
Acquire::http::Proxy::own.example "http://o:2";
Acquire::http::Proxy:: "anonymous";
Acquire::http::Proxy::gone.example "";
Acquire::http::Proxy-Auto-Detect "/usr/bin/somebody";
Acquire::HTTPS "";
Acquire::HTTPS::proxy "DIRECT";
Acquire::ftp::Proxy "http://ftp:1";
"""


def test_apts_own_word_counts(host: Host) -> None:
    """apt's dump covers nested blocks, included files and single hosts, and leaves out settings that were cleared."""
    host.dump = DUMP
    assert host.write("etc/apt/apt.conf", PROXY).apt().proxies == (
        (HTTP, "http://login:p%40ss@later:1"),
        (f"{HTTP}::deb.example", "DIRECT"),
        (f"{HTTP}::own.example", "http://o:2"),
        ("Acquire::HTTPS::proxy", "DIRECT"),
    )


def test_an_apt_that_knows_of_no_proxy_is_trusted(host: Host) -> None:
    host.dump = 'APT "";\n'
    assert host.write("etc/apt/apt.conf", PROXY).apt() == AptConfig()


def test_apt_is_asked_in_the_environment_that_is_read(tmp_path: Path) -> None:
    queries: list[Mapping[str, str]] = []

    def dump(environ: Mapping[str, str]) -> str:
        queries.append(environ)
        return PROXY

    assert read_apt_config({"APT_CONFIG": "/own"}, tmp_path, dump).proxies == ((HTTP, "http://proxy:3142"),)
    assert queries == [{"APT_CONFIG": "/own"}]


@pytest.mark.parametrize(
    ("path", "text", "proxies"),
    [
        ("apt.conf", PROXY, [(HTTP, "http://proxy:3142")]),
        (
            "apt.conf.d/01proxy",
            f'{PROXY}acquire::HTTPS::proxy "http://other:1";\n',
            [(HTTP, "http://proxy:3142"), ("acquire::HTTPS::proxy", "http://other:1")],
        ),
        ("apt.conf.d/01proxy.conf", f'{PROXY}{HTTP.lower()} "http://last:1";\n', [(HTTP.lower(), "http://last:1")]),
        ("apt.conf.d/01proxy", f'{PROXY}{HTTP} "";\n', []),
        ("apt.conf.d/01proxy", f'{HTTP} "DIRECT";\n', [(HTTP, "DIRECT")]),
        ("apt.conf.d/01proxy", f'{HTTPS}::deb.example "http://own:1" ;\n', [(f"{HTTPS}::deb.example", "http://own:1")]),
        ("apt.conf.d/01proxy", f"// {PROXY}# {PROXY}", []),
        ("apt.conf.d/01proxy.dpkg-old", PROXY, []),
    ],
    ids=[
        "one file", "both schemes, any case", "the last wins", "taken back", "direct", "one host", "comments",
        "a backup",
    ],
)  # fmt: skip
def test_without_apts_answer_the_settings_of_its_files_count(
    path: str, text: str, proxies: list[tuple[str, str]], host: Host
) -> None:
    assert list(host.write(f"etc/apt/{path}", text).apt().proxies) == proxies


@pytest.mark.usefixtures("own_processes")
def test_an_apt_that_cannot_read_its_settings_has_its_own_words(tmp_path: Path) -> None:
    program = tmp_path / "apt-config"
    program.write_text("#!/bin/sh\necho 'E: Syntax error /etc/apt/apt.conf.d/01proxy:1: Extra junk' >&2\nexit 100\n")
    program.chmod(0o755)
    with pytest.raises(HostConfigError, match=r"Syntax error /etc/apt/apt\.conf") as caught:
        read_apt_config({"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path)
    assert "TORCHBAKE_APT_PROXY" in str(caught.value.hint)
    assert read_apt_config({"PATH": str(tmp_path / "empty")}, tmp_path) == AptConfig()


def test_a_proxy_that_is_named_wins_and_apt_is_not_asked(tmp_path: Path) -> None:
    def dump(_: Mapping[str, str]) -> NoReturn:
        raise AssertionError("asked")

    apt = read_apt_config({"TORCHBAKE_APT_PROXY": "http://mine:1"}, tmp_path, dump)
    assert apt.proxies == ((HTTP, "http://mine:1"), (HTTPS, "http://mine:1"))
