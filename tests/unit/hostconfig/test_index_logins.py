"""Logins of the indexes that projects name: where they are found, which builds get them, and what a refusal says."""

import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.unit.conftest import image
from torchbake.errors import HostConfigError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import secret_texts
from torchbake.hostconfig.index_logins import check_logins, with_found_login
from torchbake.hostconfig.pip_config import PYPI, PipConfig
from torchbake.hostconfig.project_index import ProjectIndex
from torchbake.matrix.spec import ProjectSpec

URL = "https://pypi.acme.example/simple"
ACME = ProjectIndex(name="acme-2", url=URL)
LOGIN = replace(ACME, url="https://me:secret@pypi.acme.example/simple")
PROJECT = ProjectSpec(folder="trainer", lock="uv.lock")
SPEC = image("2.13.0", "cpu", project=PROJECT)
VARIABLES = {"UV_INDEX_ACME_2_USERNAME": "me", "UV_INDEX_ACME_2_PASSWORD": "secret"}


@pytest.fixture(autouse=True)
def _no_netrc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", os.devnull)


def login_of(index: ProjectIndex, pip: PipConfig | None = None, /, **environ: str) -> str:
    return urlsplit(with_found_login(index, pip or PipConfig(), environ).url).netloc.rpartition("@")[0]


def test_the_variables_of_uv_hold_a_login() -> None:
    assert ACME.variables == tuple(VARIABLES)
    assert ProjectIndex(name="", url=URL).variables == ()
    assert with_found_login(ACME, PipConfig(), VARIABLES) == LOGIN
    assert login_of(ACME) == ""
    assert login_of(ACME, UV_INDEX_ACME_2_USERNAME="token") == "token"
    assert login_of(ACME, UV_INDEX_ACME_2_USERNAME="a@b", UV_INDEX_ACME_2_PASSWORD="p/w:@") == "a%40b:p%2Fw%3A%40"
    assert login_of(ProjectIndex(name="other", url=URL), **VARIABLES) == ""
    assert login_of(LOGIN, UV_INDEX_ACME_2_USERNAME="new", UV_INDEX_ACME_2_PASSWORD="er") == "new:er"


def test_the_settings_of_pip_hold_a_login() -> None:
    pip = PipConfig(index_url="https://you:there@pypi.acme.example/other")
    assert login_of(ACME, pip) == "you:there"
    assert login_of(ACME, pip, **VARIABLES) == "me:secret"
    assert login_of(replace(ACME, url="https://pypi.other.example/simple"), pip) == ""
    assert login_of(replace(ACME, url="http://pypi.acme.example/simple"), pip) == "", (
        "a password is never sent in clear"
    )
    assert login_of(LOGIN) == "me:secret"


def test_netrc_holds_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine pypi.acme.example login net password rc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert login_of(ACME) == "net:rc"
    assert login_of(ACME, **VARIABLES) == "me:secret"
    assert login_of(ACME, UV_INDEX_ACME_2_USERNAME="other") == "other", "the password of another user"


def test_a_keyring_has_the_password_if_uv_or_pip_may_use_it(tmp_path: Path, own_processes: None) -> None:
    program = tmp_path / "keyring"
    program.write_text('#!/bin/sh\n[ "$1 $2 $3" = "get pypi.acme.example me" ] && echo ring\n')
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "UV_INDEX_ACME_2_USERNAME": "me"}
    assert login_of(ACME, **environ) == "me"
    for name in ("UV_KEYRING_PROVIDER", "PIP_KEYRING_PROVIDER"):
        assert login_of(ACME, **environ, **{name: "subprocess"}) == "me:ring", name


@pytest.fixture
def keyring(tmp_path: Path, own_processes: None) -> tuple[Path, dict[str, str]]:
    """The place of a program `keyring`, and variables by which uv asks it for a password."""
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "UV_INDEX_ACME_2_USERNAME": "me",
        "UV_KEYRING_PROVIDER": "subprocess",
    }
    return tmp_path / "keyring", environ


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


TRACEBACK = "echo 'Traceback (most recent call last):' >&2; echo 'NoKeyringError: No recommended backend' >&2; exit 1\n"


def test_a_keyring_without_a_password_is_no_failed_one(keyring: tuple[Path, dict[str, str]]) -> None:
    program, environ = keyring
    for warning in ("", "echo 'WARNING: no credentials of gcloud' >&2\n"):
        write_program(program, f"#!/bin/sh\n{warning}exit 1\n")
        assert login_of(ACME, **environ) == "me"


def test_a_keyring_may_know_the_host_alone(keyring: tuple[Path, dict[str, str]]) -> None:
    program, environ = keyring
    write_program(program, f"#!/bin/sh\n[ $2 = {URL} ] || exec echo ring\n{TRACEBACK}")
    assert login_of(ACME, **environ) == "me:ring"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"#!/bin/sh\n{TRACEBACK}", "NoKeyringError: No recommended backend"),
        ("#!/bin/sh\nkill -SEGV $$\n", "it printed nothing"),
        ("#!/nowhere/python3\n", "No such file or directory"),
    ],
)
def test_a_keyring_that_fails_has_its_own_words(text: str, words: str, keyring: tuple[Path, dict[str, str]]) -> None:
    program, environ = keyring
    write_program(program, text)
    with pytest.raises(HostConfigError, match=f"{program} does not answer for me at {ACME.url}: .*{words}") as caught:
        login_of(ACME, **environ)
    assert "unset UV_KEYRING_PROVIDER" in str(caught.value.hint)


def test_a_projects_images_alone_get_its_indexes_and_logins() -> None:
    pip = PipConfig(by_project={"trainer": (LOGIN,)})
    assert pip.for_image(SPEC).extra_index_urls == (LOGIN.url,)
    assert pip.for_image(SPEC).for_image(SPEC) == pip.for_image(SPEC)
    assert LOGIN.url in secret_texts(pip, AptConfig(), SPEC)["uv-toml"]
    assert LOGIN.url in secret_texts(pip, AptConfig(), SPEC)["pip-conf"]
    others = (image("2.13.0", "cpu"), replace(SPEC, project=ProjectSpec(folder="serving", lock="uv.lock")))
    for spec in others:
        assert pip.for_image(spec) == pip
        assert secret_texts(pip, AptConfig(), spec) == {}
    for host in (replace(pip, no_index=True), replace(pip, index_url=f"{URL}/"), replace(pip, extra_index_urls=(URL,))):
        assert host.for_image(SPEC) == host
    assert (
        replace(pip, by_project={"trainer": (ProjectIndex(name="", url=PYPI),)}).for_image(SPEC).extra_index_urls == ()
    )


def test_an_index_of_the_row_keeps_its_place_and_gets_its_login() -> None:
    spec = replace(SPEC, indexes=("https://public.example/cpu", f"{URL}/"))
    pip = PipConfig(by_project={"trainer": (LOGIN,)})
    assert pip.for_image(spec).extra_index_urls == ()
    assert secret_texts(pip, AptConfig(), spec) == {"indexes": f"https://public.example/cpu\n{LOGIN.url}\n"}
    assert replace(pip, by_project={"trainer": (ACME,)}).instead(spec) == ()
    assert replace(pip, indexes={"TORCHBAKE_INDEX_CPU": ("https://mirror",)}).instead(spec) == ("https://mirror",)


def test_a_refusal_names_the_variables_and_no_password() -> None:
    hint = PipConfig(by_project={"trainer": (LOGIN,)}).login_hint(f"{LOGIN.url}/tools")
    assert all(name in hint for name in VARIABLES)
    assert "secret" not in hint
    assert "pypi.acme.example" in PipConfig().login_hint(LOGIN.url)
    assert "me:secret" not in PipConfig().login_hint(LOGIN.url)


def test_links_on_an_indexes_host_have_its_login() -> None:
    pip = PipConfig(by_project={"trainer": (LOGIN,)}).for_image(SPEC)
    assert pip.with_login("https://pypi.acme.example/files/a.whl") == "https://me:secret@pypi.acme.example/files/a.whl"
    for other in ("https://files.example/a.whl", "http://pypi.acme.example/a.whl"):
        assert pip.with_login(other) == other


def test_no_index_is_asked_for_its_login_with_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(pip: PipConfig) -> None:
        raise AssertionError("the host must not ask")

    monkeypatch.setattr("torchbake.hostconfig.index_logins.index_session", session)
    check_logins((LOGIN,), "tools", PipConfig(no_index=True))
    with pytest.raises(AssertionError):
        check_logins((LOGIN,), "tools", PipConfig())


def test_a_refusal_in_the_output_of_uv_names_the_variables() -> None:
    pip = PipConfig(by_project={"trainer": (ACME,)})
    output = (
        f"error: No solution\n\nhint: An index URL ({URL}) could not be queried due to a lack of valid authentication "
        "credentials (401 Unauthorized)"
    )
    assert pip.refusal_hint(output) == pip.login_hint(URL)
    assert pip.refusal_hint("error: No solution") == ""
