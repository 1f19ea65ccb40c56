"""The secrets of a build: enough of the host's settings to reach its mirrors, and no address it cannot reach."""

import configparser
import itertools
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import image, init_image
from torchbake.core.paths import TOOLKIT
from torchbake.hostconfig.apt_archives import UBUNTU_KEYS
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import CA, secret_files, secret_texts
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.spec import BaseSpec

INDEX, EXTRA, PAGE = "https://index.example/simple", "https://extra.example/simple", "https://page.example/torch.html"
LOCAL = ("/srv/wheels", "file:///srv/my%20wheels", "file:/srv/index", "wheels")
NOTHING = AptConfig()


def texts(pip: PipConfig | None = None, apt: AptConfig = NOTHING) -> dict[str, str]:
    return secret_texts(pip or PipConfig(), apt, image())


def pip_conf(pip: PipConfig) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read_string(texts(pip).get("pip-conf", "[global]"))
    return dict(parser["global"])


def uv_toml(pip: PipConfig) -> dict[str, object]:
    return tomllib.loads(texts(pip).get("uv-toml", ""))


def test_a_host_without_settings_hands_nothing_over() -> None:
    assert texts() == {}


def test_pip_and_uv_are_told_the_same_indexes() -> None:
    config = PipConfig(
        index_url=INDEX, extra_index_urls=(EXTRA,), find_links=(PAGE,), trusted_hosts=("index.example",), cert="/ca.pem"
    )
    assert pip_conf(config) == {
        "index-url": INDEX,
        "extra-index-url": EXTRA,
        "find-links": PAGE,
        "trusted-host": "index.example",
        "cert": CA,
    }
    assert uv_toml(config) == {
        "index-url": INDEX,
        "extra-index-url": [EXTRA],
        "find-links": [PAGE],
        "allow-insecure-host": ["index.example"],
        "index-strategy": "unsafe-best-match",
    }


@pytest.mark.parametrize(
    ("config", "index", "extra", "no_index"),
    [
        (PipConfig(), None, None, None),
        (PipConfig(extra_index_urls=(EXTRA,)), None, EXTRA, None),
        (PipConfig(index_url=LOCAL[2]), None, None, "true"),
        (PipConfig(index_url=LOCAL[2], extra_index_urls=(LOCAL[1],)), None, None, "true"),
        (PipConfig(index_url=LOCAL[2], extra_index_urls=(LOCAL[1], INDEX, EXTRA)), INDEX, EXTRA, None),
        (PipConfig(index_url=INDEX, no_index=True), INDEX, None, "true"),
    ],
    ids=["none", "one more", "a folder", "two folders", "a folder, then two indexes", "no index wanted"],
)
def test_a_build_skips_the_public_index_if_the_host_does(
    config: PipConfig, index: str | None, extra: str | None, no_index: str | None
) -> None:
    lines = pip_conf(config)
    assert (lines.get("index-url"), lines.get("extra-index-url"), lines.get("no-index")) == (index, extra, no_index)
    toml = uv_toml(config)
    assert (toml.get("index-url"), toml.get("extra-index-url")) == (index, [extra] if extra else None)
    assert toml.get("no-index", False) == bool(no_index)


places = st.sampled_from([*LOCAL, INDEX, EXTRA])
configs = st.builds(
    PipConfig,
    index_url=st.one_of(st.just(""), places),
    extra_index_urls=st.lists(places, max_size=3).map(tuple),
    find_links=st.lists(st.sampled_from([*LOCAL, PAGE]), max_size=3).map(tuple),
    trusted_hosts=st.lists(st.just("index.example"), max_size=1).map(tuple),
    cert=st.sampled_from(["", "/etc/ssl/own.pem"]),
    no_index=st.booleans(),
)


@given(configs, st.sampled_from(["", "file:/srv/debian", "http://mirror.example/debian"]))
def test_nothing_local_is_in_a_secrets_text(config: PipConfig, mirror: str) -> None:
    text = "\n".join(texts(config, AptConfig(mirror=mirror, security_mirror=mirror)).values())
    assert "file:" not in text
    assert "/srv" not in text
    assert "own.pem" not in text
    assert not re.search(r"= *\"?wheels\b", text)


@given(configs)
def test_the_texts_are_what_pip_and_uv_parse(config: PipConfig) -> None:
    assert set(pip_conf(config)) <= {"index-url", "extra-index-url", "find-links", "trusted-host", "cert", "no-index"}
    lists = [value for value in uv_toml(config).values() if isinstance(value, list)]
    assert all(isinstance(item, str) for item in itertools.chain.from_iterable(lists))


def test_quotes_in_a_password_survive() -> None:
    url = 'https://user:p"\\@index.example/simple'
    assert uv_toml(PipConfig(index_url=url))["index-url"] == url
    assert pip_conf(PipConfig(index_url=url))["index-url"] == url


def test_apts_configuration_has_apts_form() -> None:
    proxies = (("Acquire::http::Proxy", "http://proxy:3142"), ("Acquire::https::Proxy::deb.example", "DIRECT"))
    apt = AptConfig(proxies=proxies)
    assert texts(PipConfig(cert="/ca.pem"), apt)["apt-conf"].splitlines() == [
        'Acquire::http::Proxy "http://proxy:3142";',
        'Acquire::https::Proxy::deb.example "DIRECT";',
        f'Acquire::https::CaInfo "{CA}";',
    ]


def test_apts_sources_are_the_hosts_mirrors() -> None:
    apt = AptConfig(mirror="http://mirror.example/debian", security_mirror="http://security.example/debian-security")
    sources = texts(apt=apt)["apt-sources"]
    assert re.findall(r"^(?:URIs|Suites): (.*)$", sources, flags=re.MULTILINE) == [
        "http://mirror.example/debian",
        "bookworm bookworm-updates",
        "http://security.example/debian-security",
        "bookworm-security",
    ]


NOBLE = BaseSpec(name="ubuntu24.04", image="ubuntu:24.04", distribution="ubuntu", suite="noble", python="3.12")


def test_ubuntu_is_never_told_of_debians_mirrors() -> None:
    apt = AptConfig(mirror="http://mirror.example/debian", security_mirror="http://mirror.example/debian-security")
    assert "apt-sources" not in secret_texts(PipConfig(), apt, image(base=NOBLE))
    sources = secret_texts(PipConfig(), replace(apt, ubuntu_mirror="http://mirror.example/ubuntu"), image(base=NOBLE))
    assert sources["apt-sources"].split("\n\n") == [
        "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble noble-updates\nComponents: main universe\n"
        f"Signed-By: {UBUNTU_KEYS}",
        "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble-security\nComponents: main universe\n"
        f"Signed-By: {UBUNTU_KEYS}",
        "",
    ]


def test_a_mirror_in_a_folder_is_none_for_a_build() -> None:
    assert "apt-sources" not in texts(apt=AptConfig(mirror="file:/srv/debian"))


def test_secrets_are_files_only_while_the_build_runs(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificate")
    pip = PipConfig(index_url=INDEX, cert=str(tmp_path / "ca.pem"))
    specs = (image(), init_image())
    with secret_files(pip, NOTHING, specs) as files:
        assert {name: set(found_paths) for name, found_paths in files.items()} == {
            spec.id: {"ca", "pip-conf", "uv-toml", "apt-conf"} for spec in specs
        }
        path = files[init_image().id]["pip-conf"]
        assert [INDEX in path.read_text() for _ in range(2)] == [True, True]
    assert not path.exists()
    assert (tmp_path / "ca.pem").exists()


BUILD = f"""
from tests.unit.conftest import image
from torchbake.build.processes import BuildProcesses
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.hostconfig.pip_config import PipConfig
with secret_files(PipConfig(index_url="{INDEX}"), AptConfig(), [image()]) as files:
    conf = str(files[image().id]["pip-conf"])
    build = BuildProcesses().start(["sh", "-c", 'cat "$1"; exec sleep 60', "sh", conf], {{}})
    print(build.pid)
    print(build.stdout.readline() + build.stdout.readline(), flush=True)
    build.wait()
"""


@pytest.mark.usefixtures("own_processes")
def test_a_killed_build_leaves_no_file_with_a_secret(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", BUILD], cwd=TOOLKIT, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    build, *text = [process.stdout.readline() for _ in range(3)]
    process.kill()
    process.communicate()
    os.killpg(int(build), signal.SIGKILL)
    assert "".join(text) == f"[global]\nindex-url = {INDEX}\n"
    assert list(tmp_path.rglob("*")) == []


def test_a_certificate_that_is_not_there_is_not_handed_over() -> None:
    with secret_files(PipConfig(cert="/no/such.pem"), NOTHING, [image()]) as files:
        assert "ca" not in files[image().id]


def test_the_index_of_an_accelerator_goes_to_its_images_alone() -> None:
    pip = PipConfig(indexes={"TORCHBAKE_INDEX_CPU": (INDEX, EXTRA)})
    cpu, cuda = (image(accelerator=name, indexes=(PAGE,)) for name in ("cpu", "cuda12.8"))
    assert secret_texts(pip, NOTHING, cpu)["indexes"].split() == [INDEX, EXTRA]
    assert secret_texts(pip, NOTHING, cuda) == secret_texts(pip, NOTHING, init_image()) == {}
    assert secret_texts(PipConfig(), NOTHING, cpu) == {}
