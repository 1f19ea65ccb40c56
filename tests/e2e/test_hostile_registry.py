"""A registry that means harm, over real connections: who gets a login, and what its answers cost and do."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.e2e.hostile import Hostile, OnMessage, Reply, hostile, reply
from tests.e2e.registries import certificate
from torchbake.errors import RegistryError
from torchbake.oci.manifest import MANIFEST, Blob, Manifest, sha256
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.credentials import Login
from torchbake.registry.transport import RegistryTransport
from torchbake.ui import console

pytestmark = pytest.mark.registry

LOGIN = Login(username="tester", password="s3cret")
IDENTITY = Login(username="", token="refresh-token")
PLACE = "/v2/t/x"
OTHERS = "0" * 64
Answering = Callable[[OnMessage], Reply | None]


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("ca"))


@pytest.fixture(autouse=True)
def _trusting(ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its certificate is trusted; a machine's own logins, and ~/.netrc for this address, are there to be leaked."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login netrc-user password netrc-password\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))


@pytest.fixture
def secure(ca: Path) -> Iterator[Hostile]:
    """The registry that was asked for: HTTPS."""
    with hostile(certificate=ca) as server:
        yield server


@pytest.fixture
def other(ca: Path) -> Iterator[Hostile]:
    """Another host, with HTTPS."""
    with hostile(certificate=ca) as server:
        yield server


@pytest.fixture
def clear() -> Iterator[Hostile]:
    """Another host, or somebody on the way to it, in clear."""
    with hostile() as server:
        yield server


def registry_at(server: Hostile, login: Login | None = LOGIN) -> Registry:
    transport = RegistryTransport(server.host, login=login, sleep=lambda _: None)
    return Registry(transport, Repository(host=server.host, path="t/x"))


def once_logged_in(answer: Answering, challenge: str = 'Basic realm="x"') -> Answering:
    """Ask for a login if a request has none, and otherwise answer it."""

    def answering(message: OnMessage) -> Reply | None:
        return answer(message) if message.authorization else reply(401, WWW_Authenticate=challenge)

    return answering


def refused(registry: Registry, work: Callable[[Registry], object] = Registry.tags) -> RegistryError:
    """Return the error of ``work``, which must be one short line that names the registry."""
    with pytest.raises(RegistryError) as caught:
        work(registry)
    assert registry.repository.host in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 700
    return caught.value


# Protection of the login


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["other", "clear"])
def test_a_redirect_takes_no_login_along(
    status: int, where: str, secure: Hostile, other: Hostile, clear: Hostile
) -> None:
    target = {"other": other, "clear": clear}[where]
    target.answer = lambda _: reply(200, b'{"tags": ["one"]}')
    secure.answer = once_logged_in(lambda message: reply(status, Location=f"{target.url}{message.path}"))
    if where == "clear":
        assert "plain http" in refused(registry_at(secure)).message
        assert not clear.messages
    else:
        assert registry_at(secure).tags() == ("one",)
        assert len(other.messages) == 1
    assert not target.secrets
    assert any("Basic" in secret for secret in secure.secrets)


def test_a_redirect_on_the_same_host_keeps_the_login(secure: Hostile) -> None:
    def answer(message: OnMessage) -> Reply:
        return reply(200, b'{"tags": ["one"]}') if "moved" in message.path else reply(307, Location="/moved")

    secure.answer = once_logged_in(answer)
    assert registry_at(secure).tags() == ("one",)


def test_netrc_is_for_others(secure: Hostile, other: Hostile) -> None:
    other.answer = lambda _: reply(200, b'{"tags": []}')
    secure.answer = lambda message: reply(307, Location=f"{other.url}{message.path}")
    assert registry_at(secure, None).tags() == ()
    assert (secure.secrets, other.secrets) == ([], [])


def test_another_host_cannot_ask_for_the_login(secure: Hostile, other: Hostile, clear: Hostile) -> None:
    for challenge in ('Basic realm="x"', f'Bearer realm="{other.url}/token"', f'Bearer realm="{clear.url}/token"'):
        other.answer = lambda _, challenge=challenge: reply(401, WWW_Authenticate=challenge)  # type: ignore[misc]
        secure.answer = lambda message: reply(307, Location=f"{other.url}{message.path}")
        assert "401" in refused(registry_at(secure)).message
    assert (secure.secrets, other.secrets, clear.secrets) == ([], [], [])


@pytest.mark.parametrize("login", [LOGIN, IDENTITY, None], ids=["password", "identity", "nobody"])
@pytest.mark.parametrize("realm", ["{clear}/token", "//{clear_host}/token", "ftp://x/", "", "https://a@{other_host}/"])
def test_no_login_goes_to_a_realm_in_clear(
    login: Login | None, realm: str, secure: Hostile, other: Hostile, clear: Hostile
) -> None:
    place = realm.format(clear=clear.url, clear_host=clear.host, other_host=other.host)
    clear.answer = lambda _: reply(200, b'{"token": "t"}')
    secure.answer = once_logged_in(lambda _: reply(200, b'{"tags": []}'), f'Bearer realm="{place}",service="s"')
    refused(registry_at(secure, login))
    assert not clear.messages
    assert not other.messages


@pytest.mark.parametrize("login", [LOGIN, IDENTITY], ids=["password", "identity"])
def test_a_foreign_realm_gets_the_login_over_https_alone(
    login: Login, secure: Hostile, other: Hostile, clear: Hostile, ca: Path
) -> None:
    secure.answer = once_logged_in(lambda _: reply(200, b'{"tags": ["one"]}'), f'Bearer realm="{other.url}/token"')
    other.answer = lambda _: reply(200, b'{"token": "given"}')
    assert registry_at(secure, login).tags() == ("one",)
    assert {one.authorization for one in secure.messages} == {"", "Bearer given"}
    (secret,) = other.secrets
    assert "refresh-token" in secret if login.token else secret.startswith("Basic ")
    with hostile(lambda _: reply(200, b'{"token": "t"}'), certificate=ca) as third:
        for target in (clear, third):
            other.answer = lambda _, target=target: reply(307, Location=f"{target.url}/token")  # type: ignore[misc]
            refused(registry_at(secure, login))
            assert not target.messages


def test_the_next_page_of_a_list_stays_at_the_registry(secure: Hostile, clear: Hostile) -> None:
    def answer(message: OnMessage) -> Reply:
        if "last=one" in message.path:
            return reply(200, b'{"tags": ["two"]}')
        return reply(200, b'{"tags": ["one"]}', Link=f'<{clear.url}{PLACE}/tags/list?last=one>; rel="next"')

    secure.answer = once_logged_in(answer)
    assert registry_at(secure).tags() == ("one", "two")
    assert not clear.messages


def test_an_upload_elsewhere_takes_no_login_along(
    secure: Hostile, other: Hostile, clear: Hostile, tmp_path: Path
) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"layer")
    blob = Blob(digest=sha256(b"layer"), size=5)
    for target in (other, clear):
        target.answer = lambda _: reply(201)
        secure.answer = once_logged_in(lambda _, at=target.url: reply(202, Location=f"{at}/put?state=a%2Fb&e="))  # type: ignore[misc]
        if target is clear:
            refused(registry_at(secure), lambda registry: registry.upload(blob, path))
        else:
            registry_at(secure).upload(blob, path)
    (put,) = other.messages
    query = parse_qs(put.path.partition("?")[2], keep_blank_values=True)
    assert query == {"state": ["a/b"], "e": [""], "digest": [blob.digest]}
    assert (put.body, put.authorization) == (b"layer", "")
    assert not clear.messages


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_redirected_upload_keeps_its_body(
    status: int, elsewhere: bool, secure: Hostile, other: Hostile, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 10_000
    path = tmp_path / "blob"
    path.write_bytes(data)
    target = other if elsewhere else secure
    received = []

    def take(message: OnMessage) -> Reply:
        received.append((message.body, message.authorization))
        return reply(201)

    def answer(message: OnMessage) -> Reply:
        if message.method == "POST":
            return reply(202, Location="/begun")
        return take(message) if message.path.startswith("/moved") else reply(status, Location=f"{target.url}/moved")

    secure.answer = once_logged_in(answer)
    other.answer = take
    counted: list[int] = []
    registry_at(secure).upload(Blob(digest=sha256(data), size=len(data)), path, counted.append)
    assert [(body == data, bool(login)) for body, login in received] == [(True, not elsewhere)]
    assert sum(counted) == len(data)


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_loses_a_body_is_refused(status: int, clear: Hostile, tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"layer")
    clear.answer = lambda message: reply(202 if message.method == "POST" else status, Location="/moved")
    blob = Blob(digest=sha256(b"layer"), size=5)
    assert str(status) in refused(registry_at(clear, None), lambda registry: registry.upload(blob, path)).message


def test_a_login_of_the_environment_is_for_its_named_host(
    secure: Hostile, other: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"USERNAME": "env", "PASSWORD": "pw", "HOST": secure.host}.items():
        monkeypatch.setenv(f"TORCHBAKE_REGISTRY_{name}", value)
    for server in (secure, other):
        server.answer = once_logged_in(lambda _: reply(200, b'{"tags": []}'))
    assert registry_at(secure, None).tags() == ()
    assert "nobody is logged in" in refused(registry_at(other, None)).message
    assert not other.secrets


def test_a_proxy_of_the_environment_is_used(clear: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", clear.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    clear.answer = lambda message: reply(200, b'{"tags": ["one"]}') if message.path.startswith("http://reg.") else None
    transport = RegistryTransport("reg.example.com", plain=True)
    assert Registry(transport, Repository(host="reg.example.com", path="t/x")).tags() == ("one",)


# Limits of time and memory


def test_a_list_without_end_ends(clear: Hostile) -> None:
    clear.answer = lambda message: reply(200, b'{"tags": ["one"]}', Link=f'<{message.path}>; rel="next"')
    assert "without end" in refused(registry_at(clear, None)).message
    assert len(clear.messages) <= 3


def test_a_list_can_be_interrupted(clear: Hostile) -> None:
    count = 0

    def answer(_: OnMessage) -> Reply:
        return reply(200, b'{"tags": []}', Link=f'<?page={len(clear.messages)}>; rel="next"')

    def stop(_: float) -> None:
        nonlocal count
        count += 1
        if count > 20:
            raise KeyboardInterrupt

    clear.answer = answer
    registry = Registry(RegistryTransport(clear.host, sleep=stop), Repository(host=clear.host, path="t/x"))
    with pytest.raises(KeyboardInterrupt):
        registry.tags()


@cache
def bomb() -> bytes:
    return gzip.compress(b'{"tags": ["' + bytes(200 * 2**20) + b'"]}')


@pytest.mark.parametrize("status", [200, 307, 401, 404, 500])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br, gzip"])
def test_a_compressed_answer_is_not_decompressed(status: int, encoding: str, clear: Hostile) -> None:
    compressed = bomb()  # what it takes to make it is not measured
    clear.answer = lambda _: reply(
        status, compressed, Content_Encoding=encoding, Location="/", WWW_Authenticate="Basic"
    )
    tracemalloc.start()
    try:
        if status == 404:
            assert registry_at(clear).tags() == ()
        else:
            refused(registry_at(clear))
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", ["", None], ids=["said", "unsaid"])
def test_an_answer_that_is_too_long_is_not_read(length: str | None, clear: Hostile, tmp_path: Path) -> None:
    clear.answer = lambda _: reply(200, b" " * 40 * 2**20, length)
    assert "more than 33554432 bytes" in refused(registry_at(clear, None)).message
    blob = Blob(digest=f"sha256:{OTHERS}", size=10)
    assert "more than 10 bytes" in refused(registry_at(clear, None), lambda registry: registry.read(blob)).message
    file = tmp_path / "blob"
    refusal = refused(registry_at(clear, None), lambda registry: registry.download(blob, file))
    assert "more than 10 bytes" in refusal.message
    assert file.stat().st_size < 2**20


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_redirects_without_end_are_refused(method: str, clear: Hostile) -> None:
    clear.answer = lambda message: reply(307, Location=f"{message.path}x")
    work: Callable[[Registry], object] = Registry.tags if method == "GET" else lambda registry: registry.digest("one")
    assert "redirects without end" in refused(registry_at(clear, None), work).message
    assert len(clear.messages) < 20


# Malformed and malicious answers

DEEP = b"[" * 100_000
NONSENSE = [
    b"", b"<html><body>Sign in</body></html>", b"null", b"[]", b"3", b'"text"', b"\xff\xfe{}", DEEP, b'{"tags":' + DEEP,
    b'{"tags": {"a": 1}}', b'{"tags": [1, null]}', b'{"tags": ["../../x"]}', b'{"tags": ["\\ud800"]}', b'{"tags": NaN}',
    b'{"tags": "one"}', b'{"tags": 1e999}', b'{"tags": ' + b"9" * 5000 + b"}", b'{"tags": ["a"]',
    b'{"token": 5, "tags": 5}',
]  # fmt: skip


@pytest.mark.parametrize("body", NONSENSE, ids=lambda body: body[:20])
@pytest.mark.parametrize("status", [200, 503])
def test_nonsense_is_one_error(body: bytes, status: int, clear: Hostile) -> None:
    clear.answer = lambda _: reply(status, body)
    registry = registry_at(clear, None)
    refused(registry)
    refused(registry, lambda one: one.manifest(f"sha256:{OTHERS}"))
    if status == 200:
        manifest = registry.manifest("one")
        assert manifest
        for what in ("config", "layers", "images"):
            refused_or_nothing(lambda: getattr(manifest, what))  # noqa: B023


@pytest.mark.parametrize(
    "errors", ["5", "null", '[5, {"code": {}, "message": []}]', '[{"code": "' + "x" * 9999 + '"}]']
)
def test_odd_words_of_a_refusal_are_one_error(errors: str, clear: Hostile) -> None:
    clear.answer = lambda _: reply(400, f'{{"errors": {errors}}}'.encode())
    assert "400" in refused(registry_at(clear, None)).message


def refused_or_nothing(work: Callable[[], object]) -> None:
    try:
        work()
    except RegistryError:
        return


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Location": ""},
        {"Location": "http://["},
        {"Location": "https://x:99999999/"},
        {"Location": "file:///etc/passwd"},
        {"Location": "http://127.0.0.1\\@x/"},
        {"Location": "http://é/"},
        {"Location": "http://a b/"},
    ],
    ids=str,
)
def test_an_odd_place_is_one_error(headers: dict[str, Any], clear: Hostile, tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"layer")
    blob = Blob(digest=sha256(b"layer"), size=5)
    clear.answer = lambda message: reply(202 if message.method == "POST" else 405, **headers)
    refused(registry_at(clear, None), lambda registry: registry.upload(blob, path))
    clear.answer = lambda _: reply(307, **headers)
    refused(registry_at(clear, None))


@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:99999999/", "é", "", "?\\\\", "//x/y", "file:///x"])
def test_an_odd_place_where_a_list_goes_on_is_one_error_or_none(url: str, clear: Hostile) -> None:
    clear.answer = lambda message: (
        reply(200, b'{"tags": []}', Link=f'<{url}>; rel="next"') if message.path.endswith("n=1000") else None
    )
    refused_or_nothing(registry_at(clear, None).tags)


@pytest.mark.parametrize(
    "headers",
    [
        {"length": "abc"},
        {"length": "-5"},
        {"length": "9" * 5000},
        {"length": None},
        {"Docker_Content_Digest": "../../x"},
        {"Docker_Content_Digest": "sha256:é"},
        {"Retry_After": "²"},
        {"Retry_After": "Wed, 99 Foo 99999 99:99:99 +9999"},
        {"WWW_Authenticate": "x" * 20_000},
    ],
    ids=str,
)
def test_odd_headers_are_one_error_or_nothing(headers: dict[str, Any], clear: Hostile) -> None:
    for status in (200, 401, 503):
        clear.answer = lambda _, status=status: reply(status, **headers)  # type: ignore[misc]
        registry = registry_at(clear, None)
        refused_or_nothing(lambda: registry.digest("one"))  # noqa: B023
        refused_or_nothing(lambda: registry.size_of(f"sha256:{OTHERS}"))  # noqa: B023
        refused_or_nothing(registry.tags)


def test_an_upload_that_is_too_large_for_a_proxy_has_a_remedy(clear: Hostile, tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"layer")
    clear.answer = lambda message: (
        reply(202, Location="/put") if message.method == "POST" else reply(413, b"<html>", Content_Type="text/html")
    )
    blob = Blob(digest=sha256(b"layer"), size=5)
    error = refused(registry_at(clear, None), lambda registry: registry.upload(blob, path))
    assert "413" in error.message
    assert "client_max_body_size" in str(error.hint)
    assert [message.method for message in clear.messages] == ["POST", "PUT"]


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [("7", 7, 7), ("9" * 5000, 60, 60), (40, 30, 40), (9e8, 60, 60), (-99, 0, 0)],
    ids=["seconds", "for ever", "date", "far date", "past date"],
)
def test_a_wait_has_the_time_that_is_asked_for(after: str | float, least: float, most: float, clear: Hostile) -> None:
    text = after if isinstance(after, str) else formatdate(time.time() + after, usegmt=True)
    clear.answer = lambda _: reply(200, b'{"tags": ["one"]}') if clear.messages[1:] else reply(429, Retry_After=text)
    waits: list[float] = []
    transport = RegistryTransport(clear.host, sleep=waits.append)
    assert Registry(transport, Repository(host=clear.host, path="t/x")).tags() == ("one",)
    (wait,) = waits[1:]  # each request asks first whether to go on
    assert least <= wait <= most


@pytest.mark.parametrize("token", ["a\nb", "é", "", "x y", "\u2028"])
def test_an_odd_token_is_one_error(token: str, clear: Hostile) -> None:
    def answer(message: OnMessage) -> Reply:
        if message.path.startswith("/token"):
            return reply(200, json.dumps({"token": token}).encode())
        return reply(401, WWW_Authenticate=f'Bearer realm="{clear.url}/token"')

    clear.answer = answer
    refused(registry_at(clear))


def test_escapes_in_an_answer_are_shown_as_text(clear: Hostile, capsys: pytest.CaptureFixture[str]) -> None:
    words = json.dumps({"errors": [{"code": "\x1b]0;title\x07", "message": "\x1b[2J\x9b2J [/x]"}]}).encode()
    clear.answer = lambda _: reply(403, words)
    console.show_error(refused(registry_at(clear, None)))
    text = capsys.readouterr().err
    assert not set(text) & set("\x1b\x07\x9b")
    assert "\\x1b[2J" in text


def test_what_was_written_and_is_something_else_is_told(clear: Hostile) -> None:
    manifest = Manifest(data=b"{}", media_type=MANIFEST)
    clear.answer = lambda message: (
        reply(201) if message.method == "PUT" else reply(Docker_Content_Digest=f"sha256:{OTHERS}")
    )
    assert OTHERS in refused(registry_at(clear, None), lambda registry: registry.put(manifest, "one")).message
