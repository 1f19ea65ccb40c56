"""Texts of registries and other tools: any JSON, header or address gives a value or a typed error of torchbake."""

import base64
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.validate.test_judge import Fake
from torchbake.core.json_text import DEEPEST, NotJsonError, read_json, read_object
from torchbake.errors import HostConfigError, RegistryError, TorchbakeError
from torchbake.oci.labels import ID, LABEL, labels_in, steps_in
from torchbake.oci.manifest import INDEX, MANIFEST, Blob, Manifest, sha256, type_of
from torchbake.oci.reference import Repository
from torchbake.registry.artifact import subject_of, text_of
from torchbake.registry.auth_challenge import parse_challenge, read_token
from torchbake.registry.client import Registry
from torchbake.registry.credentials import Login, find_login
from torchbake.registry.http import HttpResponse
from torchbake.registry.listing import next_page, tags_in
from torchbake.registry.origin import Origin, led_to, may_log_in, origin_of, path_of
from torchbake.registry.transport import RegistryTransport
from torchbake.release.decide import rank_of
from torchbake.release.record import parse_record
from torchbake.store.layout import Layout
from torchbake.validate.fetch import Survey

DIGEST = f"sha256:{'a' * 64}"
KEYS = st.sampled_from([
    "config", "layers", "manifests", "mediaType", "digest", "size", "platform", "os", "subject", "tags", "token",
    "access_token", "Labels", "history", "created_by", "components", "rootfs", "annotations", "errors",
])  # fmt: skip
ODD = st.sampled_from(["", DIGEST, "sha256:../../x", "\ud800", "\x1b[2J", MANIFEST, INDEX, "linux", "amd64", "9" * 400])
LEAVES = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | ODD | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip
TEXTS = VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)
HERE = Repository(host="h", path="a/b")
DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000


def sound(work: Callable[[], object], *expected: type[Exception]) -> None:
    """Check that work succeeds, or raises an expected error whose message is one line of valid text."""
    message = ""
    try:
        work()
    except expected as error:
        message = str(error)
    assert "\n" not in message
    assert message.encode() is not None


def answer(data: bytes, **headers: str) -> HttpResponse:
    return HttpResponse(url="https://h/v2/a/b/tags/list?n=1", status=200, reason="", headers=headers, data=data)


@given(TEXTS)
@example(DEEP)
@example(b"[" * 10**6)
@example(b"9" * 5000)
@example(b"\xff")
@example(b'{"a": NaN}')
@example(b'"\\ud800"')
def test_json_is_a_value_that_can_be_written_again_or_an_error(data: bytes) -> None:
    sound(lambda: json.dumps(read_json(data), ensure_ascii=False).encode(), NotJsonError)
    sound(lambda: read_object(data), NotJsonError)


@pytest.mark.parametrize(
    "text", [b"NaN", b"-Infinity", b'"\\ud800"', b'{"\\udc00": 1}', b"\xef\xbb\xbf{}", b'{}"', DEEP]
)
def test_what_python_would_take_for_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotJsonError):
        read_json(text)


def test_ordinary_json_is_read_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "é😀\x00"], "b": {"c": {}}}
    assert read_json(json.dumps(value).encode()) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(("depth", "good"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_how_deep_json_may_be(depth: int, good: bool) -> None:
    sound(lambda: read_json(b"[" * depth + b"]" * depth), *(() if good else (NotJsonError,)))
    if not good:
        with pytest.raises(NotJsonError, match="too deeply"):
            read_json(b"[" * depth + b"]" * depth)


@given(TEXTS, st.sampled_from([MANIFEST, INDEX, "", "x/y; z"]))
@example(DEEP, MANIFEST)
@example(json.dumps({"layers": 5, "config": {"digest": DIGEST, "size": True}}).encode(), MANIFEST)
@example(json.dumps({"manifests": {"a": 1}}).encode(), INDEX)
def test_a_manifest_of_any_bytes_is_a_value_or_an_error(data: bytes, kind: str) -> None:
    manifest = Manifest(data=data, media_type=type_of({"Content-Type": kind}, data))
    assert isinstance(manifest.media_type, str)
    for what in ("content", "config", "layers", "blobs", "images", "is_index"):
        sound(lambda what=what: getattr(manifest, what), RegistryError)  # type: ignore[misc]
    sound(lambda: subject_of(manifest), RegistryError)


@pytest.mark.parametrize(
    "descriptor",
    [
        {"digest": DIGEST, "size": -1},
        {"digest": DIGEST, "size": True},
        {"digest": DIGEST, "size": 1.5},
        {"digest": DIGEST, "size": "5"},
        {"digest": DIGEST, "size": 2**63},
        {"digest": "sha256:../../../etc/passwd", "size": 1},
        {"digest": f"sha256:{'A' * 64}", "size": 1},
        {"digest": f"{DIGEST}a", "size": 1},
        {"digest": DIGEST, "size": 1, "mediaType": 5},
        {"size": 1},
        DIGEST,
        None,
    ],
    ids=str,
)
def test_what_is_no_descriptor_is_refused(descriptor: object) -> None:
    manifest = Manifest(data=json.dumps({"config": descriptor, "layers": [descriptor]}).encode(), media_type=MANIFEST)
    with pytest.raises(RegistryError, match="not a descriptor"):
        _ = manifest.config
    with pytest.raises(RegistryError, match="not a descriptor"):
        _ = manifest.layers


@given(TEXTS, st.text(max_size=40))
@example(b'{"tags": ["a", "a/../b"]}', "")
@example(b'{"tags": ["a"]}', '<//evil.example/x>; rel="next"')
@example(b'{"tags": ["a"]}', '<http://[>; rel="next"')
def test_a_list_of_tags_is_one_or_an_error(data: bytes, link: str) -> None:
    sound(lambda: tags_in(answer(data), HERE), RegistryError)

    def goes_on() -> None:
        path = next_page(answer(data, Link=link), HERE)
        assert not path or (path.startswith("/") and not path.startswith("//"))

    sound(goes_on, RegistryError)


@given(TEXTS)
@example(DEEP)
def test_a_token_is_one_that_a_header_can_hold_or_an_error(data: bytes) -> None:
    def read() -> None:
        actual = read_token(data)
        assert 0 < actual.life < 2**31
        token = actual.text
        assert token.isascii()
        assert token.isprintable()
        assert " " not in token

    sound(read, ValueError)


@given(st.text(max_size=60) | st.builds("Bearer realm={},{}".format, st.text(max_size=9), st.text(max_size=9)))
def test_a_challenge_of_any_text_is_one_or_none(header: str) -> None:
    actual = parse_challenge(header)
    assert actual is None or actual.way in ("basic", "bearer")


@pytest.mark.parametrize(
    "header",
    [
        'Bearer realm="https://a/t",service="s,t",scope="x"',
        'bearer scope=x, service="s,t" , realm="https://a/t"',
        'Basic realm="x", Bearer realm="https://a/t",service="s,t",scope="x"',
        'Bearer realm="https://a/t",service="s,t",scope="x", Basic realm="x"',
    ],
)
def test_a_token_comes_before_a_password(header: str) -> None:
    actual = parse_challenge(header)
    assert actual
    assert (actual.way, actual.realm, actual.service, actual.scope) == ("bearer", "https://a/t", "s,t", "x")


def test_a_password_is_asked_for() -> None:
    actual = parse_challenge('Basic realm="bearer of news"')
    assert actual
    assert actual.way == "basic"
    assert parse_challenge("Negotiate") is None
    assert parse_challenge("") is None


@pytest.mark.parametrize("text", [b"[]", b'{"manifests": 5}', b'{"manifests": [5]}', b"[" * 10**5, b"5", b"\xff"])
def test_an_index_that_is_none_lists_nothing(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(text)
    assert Layout(folder=tmp_path)._listed_digests() == set()


@given(TEXTS)
@example(b'{"history": 5}')
@example(b'{"history": [5, {"created_by": 5}, {"empty_layer": true}]}')
def test_steps_of_any_configuration_are_text(data: bytes) -> None:
    def read() -> None:
        assert all(isinstance(step, str) for step in steps_in(read_object(data)))

    sound(read, NotJsonError)


@pytest.mark.parametrize("version", ["1" * 5000, "", "x", "1.2.3\n4"])
def test_labels_of_no_version_have_no_rank(version: str) -> None:
    assert rank_of({ID: "x", f"{LABEL}.torch": version}) is None


@given(TEXTS)
@example(b'{"config": {"Labels": {"a": {"b": [1]}}}}')
def test_labels_of_any_configuration_are_text(data: bytes) -> None:
    def read() -> None:
        assert all(isinstance(text, str) for pair in labels_in(read_object(data)).items() for text in pair)

    sound(read, NotJsonError)


@given(TEXTS)
@example(b"[" * 10**5)
@example(b'{"size": ' + b"9" * 5000 + b"}")
def test_a_record_of_any_bytes_is_one_or_an_error_of_a_line(data: bytes) -> None:
    sound(lambda: parse_record(data, "h/a/b:tag.release"), RegistryError)


def test_a_record_that_is_none_is_named_with_its_first_fault() -> None:
    with pytest.raises(RegistryError, match=r"h/a/b:t.release is not a release record: 'id: Field required'"):
        parse_record(b'{"size": -1}', "h/a/b:t.release")


@given(TEXTS, TEXTS)
@example(json.dumps({"manifests": [{"digest": DIGEST, "size": 1, "platform": "x"}], "mediaType": INDEX}).encode(), b"")
@example(json.dumps({"manifests": 5, "mediaType": INDEX}).encode(), b"")
@example(b'{"layers": []}', b"")
def test_a_survey_of_anything_is_facts(data: bytes, config: bytes) -> None:
    registry = Fake()
    manifest = Manifest(data=data, media_type=type_of({}, data))
    content: dict[str, Any] = {"config": {"digest": sha256(config), "size": len(config)}, "layers": []}
    image = Manifest(data=json.dumps(content).encode(), media_type=MANIFEST)
    registry.blobs[sha256(config)] = config
    for tag, actual in {"a": manifest, "b": image, "a-r0": image, "a-r0.release": manifest}.items():
        registry.manifests[tag] = registry.manifests[actual.digest] = actual
    shelf = Survey(registry).shelf(("a", "b"))
    for served in (*shelf.tags.values(), *(one.tag_answer for one in shelf.revisions)):
        assert served.image or served.manifest_problem or served.answer_problem
    sound(lambda: text_of(registry, image, "b"), RegistryError)


def test_a_file_that_is_far_too_large_is_not_read() -> None:
    huge = Blob(digest=DIGEST, size=2**40)
    registry = Registry(RegistryTransport("h"), HERE)  # asks nobody: the descriptor says enough
    for work in (lambda: registry.read(huge), lambda: registry.config(_image_of(huge))):
        with pytest.raises(RegistryError, match=f"{2**40} bytes"):
            work()


def _image_of(config: Blob) -> Manifest:
    described = {"digest": config.digest, "size": config.size}
    return Manifest(data=json.dumps({"config": described}).encode(), media_type=MANIFEST)


# Where a secret may go

HOSTS = st.sampled_from(["a.example", "b.example", "[::1]", "127.0.0.1", "A.example"])
PORTS = st.sampled_from(["", ":80", ":443", ":5000"])
ADDRESSES = st.builds("{}://{}{}/x".format, st.sampled_from(["http", "https"]), HOSTS, PORTS)


@given(st.text(max_size=40) | ADDRESSES)
@example("https://a@b/")
@example("https://a\\@b/")
@example("https://a:99999/")
@example("https://a:0/")
@example("https://a/\tb")
@example("HTTPS://a/")
@example("https://a b/")
@example("https://é/")
def test_an_address_is_read_as_python_reads_it_or_not_at_all(url: str) -> None:
    def read() -> None:
        origin, parts = origin_of(url), urlsplit(url)
        assert parts.hostname == origin.host.strip("[]")
        assert (parts.scheme, parts.username, parts.password) == (origin.scheme, None, None)
        assert origin.port == (parts.port or {"http": 80, "https": 443}[parts.scheme])

    sound(read, ValueError)


@given(ADDRESSES, ADDRESSES | st.text(max_size=20))
def test_nothing_leads_from_https_to_http(url: str, location: str) -> None:
    def read() -> None:
        target = led_to(url, location)
        assert origin_of(url).scheme == "http" or origin_of(target).scheme == "https"

    sound(read, ValueError)
    sound(lambda: path_of(url, location), ValueError)


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin_of("https://A.example/x") == origin_of("https://a.example:443")
    others = ["http://a.example/x", "https://a.example:444/", "https://a.example./", "https://b.example/"]
    assert origin_of("https://a.example/") not in map(origin_of, others)


@pytest.mark.parametrize(
    ("registry", "realm", "may"),
    [
        ("https://r.example/", "https://auth.example/token", True),
        ("https://r.example/", "http://r.example/token", False),
        ("https://r.example/", "http://auth.example/token", False),
        ("http://r.example/", "http://r.example:5001/token", True),
        ("http://r.example/", "http://auth.example/token", False),
        ("http://r.example/", "https://auth.example/token", True),
    ],
)
def test_where_a_login_may_be_sent_for_a_token(registry: str, realm: str, may: bool) -> None:
    assert may_log_in(origin_of(registry), origin_of(realm)) is may


def test_an_origin_is_shown_as_hosts_are_written() -> None:
    assert str(Origin(scheme="https", host="a", port=443)) == "a"
    assert str(Origin(scheme="https", host="a", port=80)) == "a:80"


ENV = {"TORCHBAKE_REGISTRY_USERNAME": "u", "TORCHBAKE_REGISTRY_PASSWORD": "p"}


def test_the_environments_login_is_for_one_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    names = ENV | {"TORCHBAKE_REGISTRY_HOST": "Ghcr.io"}
    assert find_login("ghcr.io", names) == Login(username="u", password="p")
    assert find_login("evil.example", names) is None
    assert find_login("ghcr.io:5000", names) is None
    assert find_login("ghcr.io", {"XDG_RUNTIME_DIR": str(tmp_path)}) is None


def logins(host: str, username: str) -> str:
    secret = base64.b64encode(f"{username}:p".encode()).decode()
    return json.dumps({"auths": {host: {"auth": secret}}})


def test_podmans_logins_are_read_after_dockers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("docker", "runtime", "home")}
    monkeypatch.setenv("DOCKER_CONFIG", str(folders["docker"]))
    env = {"XDG_RUNTIME_DIR": str(folders["runtime"]), "HOME": str(folders["home"])}
    files = {
        "named": tmp_path / "named.json",
        "home": folders["home"] / ".config/containers/auth.json",
        "runtime": folders["runtime"] / "containers/auth.json",
        "docker": folders["docker"] / "config.json",
    }
    for host in ("quay.io", "docker.io"):
        for name, file in files.items():  # each comes before those before it
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(logins(host, f"by-{name}"))
            expected = None if name == "named" else Login(username=f"by-{name}", password="p")
            assert find_login(host, env) == expected
            assert find_login("other.example", env) is None
        names = env | {"REGISTRY_AUTH_FILE": str(files["named"])}
        assert find_login(host, names) == Login(username="by-docker", password="p")
        files["docker"].write_text("{}")
        assert find_login(host, names) == Login(username="by-named", password="p")
        for file in files.values():
            file.unlink()


def test_a_folder_that_cannot_be_entered_has_no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    home = tmp_path / ".config/containers/auth.json"
    home.parent.mkdir(parents=True)
    home.write_text(logins("quay.io", "u"))
    too_long = tmp_path / ("x" * 300)  # an error for root too, as a folder of another user is for others
    env = {"XDG_RUNTIME_DIR": str(too_long), "HOME": str(tmp_path)}
    assert find_login("quay.io", env) == Login(username="u", password="p")


@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_a_credential_helper_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "config.json"
    file.write_text(json.dumps({key: "nowhere" if key == "credsStore" else {"ghcr.io": "nowhere"}}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HostConfigError) as caught:
            find_login("ghcr.io", {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert "docker-credential-nowhere" in caught.value.message
    assert "\n" not in caught.value.message
    assert "docker login ghcr.io" in (caught.value.hint or "")
    if key == "credHelpers":  # another registry is asked without it
        assert find_login("quay.io", {"XDG_RUNTIME_DIR": str(tmp_path)}) is None
    podman = tmp_path / "containers/auth.json"
    podman.parent.mkdir()
    podman.write_text(logins("ghcr.io", "u"))
    assert find_login("ghcr.io", {"XDG_RUNTIME_DIR": str(tmp_path)}) == Login(username="u", password="p")


@pytest.mark.parametrize("host", [None, "", "https://ghcr.io", "ghcr.io/acme"])
def test_a_login_for_no_registry_is_an_error(host: str | None) -> None:
    env = ENV if host is None else ENV | {"TORCHBAKE_REGISTRY_HOST": host}
    with pytest.raises(HostConfigError, match="TORCHBAKE_REGISTRY_HOST is") as caught:
        find_login("ghcr.io", env)
    assert caught.value.hint
    assert "TORCHBAKE_REGISTRY_HOST=ghcr.io" in caught.value.hint


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
    st.sampled_from(["auths", "ghcr.io", "auth", "identitytoken", "username", "credHelpers", "credsStore"]), inner,
    max_size=4,
), max_leaves=10))  # fmt: skip
@example({"auths": []})
@example({"auths": {"ghcr.io": {"auth": 5}}})
@example({"auths": {"ghcr.io": {"auth": "eA=="}}})
@example([])
@example("x")
def test_any_docker_configuration_gives_a_login_none_or_an_error(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("docker.utils.config.find_config_file", lambda _: __file__)
        patch.setattr("json.load", lambda _: value)
        patch.setattr("docker.credentials.Store", _no_store)
        sound(lambda: find_login("ghcr.io", {"REGISTRY_AUTH_FILE": "/nowhere"}), TorchbakeError)


def _no_store(*_: object, **__: object) -> object:
    raise OSError("no such helper")
