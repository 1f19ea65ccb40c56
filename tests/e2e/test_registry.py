"""The registry client with a real registry, with and without login and TLS: reads, uploads and failures."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.registries import NAME, PASSWORD, Running, certificate, registry
from torchbake.errors import RegistryError
from torchbake.oci.manifest import MANIFEST, Blob, Manifest, UnsoundError, sha256
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.credentials import Login
from torchbake.registry.transport import RegistryTransport, StatusError

pytestmark = pytest.mark.registry

TOOLS = ROOT / ".torchbake/tools"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("plain")) as running:
        yield running


@pytest.fixture
def repository(plain: Running, request: pytest.FixtureRequest) -> Registry:
    """A new repository."""
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return Registry(RegistryTransport(plain.host), Repository(host=plain.host, path=f"t/{name}"))


def blob_of(folder: Path, data: bytes) -> tuple[Blob, Path]:
    path = folder / sha256(data).removeprefix("sha256:")
    path.write_bytes(data)
    return Blob(digest=sha256(data), size=len(data)), path


def image_in(repository: Registry, folder: Path, words: bytes = b"a layer") -> Manifest:
    """Send the smallest image there is, but for its manifest."""
    described = []
    for data in (words, b"{}"):
        blob, path = blob_of(folder, data)
        repository.upload(blob, path)
        described.append({"mediaType": "application/octet-stream", "digest": blob.digest, "size": blob.size})
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[1], "layers": described[:1]}
    return Manifest(data=json.dumps(content, indent=3).encode(), media_type=MANIFEST)


def test_what_was_sent_is_there_byte_for_byte(repository: Registry, tmp_path: Path) -> None:
    assert repository.tags() == ()
    assert repository.manifest("one") is None
    manifest = image_in(repository, tmp_path)
    repository.put(manifest, "one")
    assert repository.digest("one") == manifest.digest
    assert repository.manifest("one") == manifest
    assert repository.manifest(manifest.digest) == manifest
    assert all(map(repository.has, manifest.blobs))
    assert repository.read(manifest.config) == b"{}"
    repository.put(manifest, "two")
    assert repository.tags() == ("one", "two")
    assert repository.digest("two") == manifest.digest


def test_bytes_are_counted_as_they_go(repository: Registry, tmp_path: Path) -> None:
    blob, path = blob_of(tmp_path, os.urandom(3 * 2**20 + 17))
    counted: list[int] = []
    assert not repository.has(blob)
    repository.upload(blob, path, counted.append)
    assert repository.has(blob)
    assert sum(counted) == blob.size
    assert len(counted) > 2


def test_a_blob_of_another_repository_is_mounted(repository: Registry, plain: Running, tmp_path: Path) -> None:
    other = Registry(RegistryTransport(plain.host), Repository(host=plain.host, path="t/other"))
    blob, path = blob_of(tmp_path, os.urandom(1000))
    assert not repository.mount(blob, "t/other")
    other.upload(blob, path)
    assert repository.mount(blob, "t/other")
    assert repository.has(blob)


def test_what_does_not_match_its_digest_is_refused(repository: Registry, tmp_path: Path) -> None:
    blob, path = blob_of(tmp_path, b"what it should be")
    path.write_bytes(b"what it should b3")
    with pytest.raises(StatusError) as refused:
        repository.upload(blob, path)
    assert refused.value.codes == ("DIGEST_INVALID",)
    assert not repository.has(blob)


def test_a_large_blob_is_written_to_a_file_unless_it_was_altered(
    repository: Registry, plain: Running, tmp_path: Path
) -> None:
    blob, path = blob_of(tmp_path, os.urandom(3 * 2**20 + 17))
    repository.upload(blob, path)
    pieces = list[None]()
    repository.download(blob, tmp_path / "here", lambda: pieces.append(None))
    assert (tmp_path / "here").read_bytes() == path.read_bytes()
    assert len(pieces) > 2

    name = blob.digest.removeprefix("sha256:")
    there = plain.folder / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"
    there.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(UnsoundError, match=blob.digest):
        repository.download(blob, tmp_path / "here")


def test_a_manifest_without_its_blobs_is_refused(repository: Registry, tmp_path: Path) -> None:
    manifest = image_in(repository, tmp_path)
    content = manifest.content | {"layers": [{"mediaType": "a/b", "digest": "sha256:" + "0" * 64, "size": 3}]}
    with pytest.raises(StatusError) as refused:
        repository.put(Manifest(data=json.dumps(content).encode(), media_type=MANIFEST), "broken")
    assert "MANIFEST_BLOB_UNKNOWN" in refused.value.codes
    assert repository.digest("broken") is None


def test_a_registry_that_is_not_there_is_told_after_some_tries(tmp_path: Path) -> None:
    waits: list[float] = []
    registry_ = Registry(
        RegistryTransport("127.0.0.1:1", sleep=waits.append), Repository(host="127.0.0.1:1", path="a/b")
    )
    with pytest.raises(RegistryError, match="does not answer"):
        registry_.digest("one")
    assert len([wait for wait in waits if wait]) == 5


def test_a_login_is_needed_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))  # where nobody is logged in
    with registry(TOOLS, tmp_path / "registry", login=True) as running:
        where = Repository(host=running.host, path="a/b")
        with pytest.raises(StatusError, match="nobody is logged in"):
            Registry(RegistryTransport(running.host), where).tags()
        wrong = Login(username=NAME, password="wrong")
        with pytest.raises(StatusError, match="refuses: not to tester") as refused:
            Registry(RegistryTransport(running.host, login=wrong), where).tags()
        assert "wrong" not in f"{refused.value} {wrong}"
        good = Registry(RegistryTransport(running.host, login=Login(username=NAME, password=PASSWORD)), where)
        manifest = image_in(good, tmp_path)
        good.put(manifest, "one")
        assert good.tags() == ("one",)
        # As `docker login` leaves it.
        secret = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {running.host: {"auth": secret}}}))
        assert Registry(RegistryTransport(running.host), where).digest("one") == manifest.digest


def test_tls_is_trusted_by_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry(TOOLS, tmp_path / "registry", tls=True) as running:
        where = Repository(host=running.host, path="a/b")
        with pytest.raises(RegistryError, match="has no certificate that is trusted"):
            Registry(RegistryTransport(running.host), where).tags()
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
        trusting = Registry(RegistryTransport(running.host), where)
        trusting.put(image_in(trusting, tmp_path), "one")
        assert trusting.tags() == ("one",)


def test_an_insecure_registry_speaks_tls_or_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Like podman's: the certificate does not count, and HTTP is for a registry without TLS, also on another host."""
    with registry(TOOLS, tmp_path / "tls", tls=True) as running:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(registry_ca(tmp_path / "other")))  # of another authority
        where = Repository(host=running.host, path="a/b")
        insecure = Registry(RegistryTransport(running.host, insecure=True), where)
        insecure.put(image_in(insecure, tmp_path), "one")
        assert insecure.tags() == ("one",)
        with pytest.raises(RegistryError, match="has no certificate that is trusted"):
            Registry(RegistryTransport(running.host), where).tags()
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with registry(TOOLS, tmp_path / "http", address=gateway) as running:
        where = Repository(host=running.host, path="a/b")
        assert Registry(RegistryTransport(running.host, insecure=True), where).tags() == ()
        with pytest.raises(RegistryError):
            Registry(RegistryTransport(running.host, sleep=_impatient), where).tags()
    assert "InsecureRequestWarning" not in capfd.readouterr().err


def _impatient(seconds: float) -> None:
    if seconds:
        raise RegistryError("it does not answer")


def registry_ca(folder: Path) -> Path:
    folder.mkdir()
    return certificate(folder)
