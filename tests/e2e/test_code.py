"""Code as a layer, by the command: real registries, some of which refuse what others take, and the real engine."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, ref_of, torchbake
from tests.e2e.containers import output_of
from tests.e2e.quirks import quirky
from tests.e2e.registries import Running, program, registry
from tests.e2e.test_publish import Killed, in_child
from tests.e2e.test_signature import SECRET, make_keys
from tests.unit.code.folders import FILES, image, layer_of, write
from torchbake.code.push import push_code
from torchbake.core.parallel import side_by_side
from torchbake.engine.client import connect
from torchbake.engine.export import source_of
from torchbake.errors import RegistryError, UsageError
from torchbake.matrix.project import load_project
from torchbake.oci.manifest import Manifest, sha256
from torchbake.oci.reference import Reference, Repository, parse_reference
from torchbake.oci.tag_names import parse_code
from torchbake.registry.artifact import send
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.store.layout import Layout

pytestmark = pytest.mark.code

TOOLS = ROOT / ".torchbake/tools"
PAGE = (ROOT / "docs/how-to/code.md").read_text()
TODAY = datetime.now(UTC).date()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A registry by its host, with an image of a few bytes, and a folder of code."""

    host: str
    folder: Path
    path: str = "team/pytorch"

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def image(self) -> str:
        return f"{self.host}/{self.path}:cpu"

    def registry(self, path: str = "", transport: RegistryTransport | None = None) -> Registry:
        where = Repository(host=self.host, path=path or self.path)
        return Registry(transport or RegistryTransport(self.host), where)

    def fill(self, count: int = 3) -> "Place":
        """Send the image, of so many layers, and write the code."""
        put_image(self.registry(), count)
        write(self.code)
        return self

    def push(self, *words: str) -> dict[str, Any]:
        process = self.run("push", self.image, str(self.code), *words)
        assert process.returncode == 0, process.stderr
        pushed: dict[str, Any] = json.loads(process.stdout)
        return pushed

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return torchbake("code", *words, "--format", "json")

    def refused(self, *words: str, code: int = RegistryError.exit_code) -> str:
        """Run a push that is refused; return the message. No tag was written."""
        before = self.registry().tags()
        process = self.run("push", self.image, str(self.code), *words)
        assert process.returncode == code, process.stderr
        assert "Traceback" not in process.stderr
        assert self.registry().tags() == before
        return process.stderr

    def work(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder


def put_image(there: Registry, count: int) -> Manifest:
    manifest, config = image(count)
    data = [str(number).encode() for number in range(count)]
    side_by_side(partial(send, there), data, most=8)
    layers = [{**layer.descriptor, "size": len(each)} for layer, each in zip(manifest.layers, data, strict=True)]
    content = {**manifest.content, "layers": layers}
    send(there, config)
    manifest = Manifest(data=json.dumps(content).encode(), media_type=manifest.media_type)
    there.put(manifest, "cpu")
    return manifest


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def place(running: Running, tmp_path: Path) -> Place:
    return Place(host=running.host, folder=tmp_path, path=f"t/{sha256(str(tmp_path).encode())[7:19]}").fill()


def test_the_image_with_code_is_served(place: Place) -> None:
    first, again = place.push(), place.push()
    reference = parse_reference(first["reference"])
    assert parse_code(reference.tag)
    assert (first["sent_bytes"] > 0, again["sent_bytes"], again["reference"]) == (True, 0, first["reference"])
    there = place.registry()
    manifest, base = there.manifest(reference.digest), there.manifest("cpu")
    assert manifest
    assert base
    assert manifest.layers[:-1] == base.layers
    assert all(there.has(blob) for blob in manifest.blobs)
    (place.code / "train.py").write_text("print('edited')")
    assert place.push()["reference"] != first["reference"]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.long)], ids=["before", "after"])
def test_the_next_push_finishes_one_killed_at_any_request(place: Place, *, after: bool) -> None:
    at = 0
    while True:
        (place.code / "train.py").write_text(f"print({at}, {after})")
        before = place.registry().tags()
        killed = partial(_push, place, place.registry(transport=Killed(place.host, at, after=after)))
        code = in_child(killed)
        if code == 0:
            break
        assert code == 9
        left = set(place.registry().tags()) - set(before)
        reference = parse_reference(place.push()["reference"])
        assert left <= {reference.tag}, "a tag holds the whole image, or is not there"
        manifest = place.registry().manifest(reference.tag)
        assert manifest
        assert all(place.registry().has(blob) for blob in manifest.blobs)
        at += 1
    assert at >= 8  # the image, its config, two blobs in two or three requests each, and the tag


def _push(place: Place, there: Registry, days: int = 0, work: str = "work") -> Reference:
    folder = place.work(work)
    return push_code(
        there, parse_reference(place.image), lambda compression: layer_of(place.code, folder, compression), at="/job",
        work=folder, today=TODAY - timedelta(days=days),
    ).reference  # fmt: skip


def test_a_push_killed_at_random_is_finished(place: Place) -> None:
    source = random.Random(44)
    command = [sys.executable, "-m", "torchbake", "code", "push", place.image, str(place.code)]
    tags = set(place.registry().tags())
    for number in range(4):
        (place.code / "big.bin").write_bytes(source.randbytes(3 * 2**20))
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(source.uniform(0.1, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        tags.add(parse_reference(place.push()["reference"]).tag)
        assert set(place.registry().tags()) == tags, f"kill {number}"


def test_two_edits_at_once_are_two_images(place: Place) -> None:
    places = [Place(host=place.host, folder=place.work(f"{number}"), path=place.path) for number in range(3)]
    references: list[str] = []
    for number, each in enumerate(places):
        write(each.code, {**FILES, "train.py": f"print({number})"})
    work = [lambda each=each: references.append(each.push()["reference"]) for each in places]
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(references)) == 3
    assert {parse_reference(text).tag for text in references} | {"cpu"} == set(place.registry().tags())


def test_another_repository_gets_the_layers_by_mounts(place: Place, running: Running) -> None:
    with quirky(running.host) as proxy:
        there = Place(host=proxy.host, folder=place.folder, path=place.path)
        pushed = there.push("--to", f"{proxy.host}/{place.path}/ann")
        uploads = [path for method, path, _ in proxy.requests if method == "PUT" and "/uploads/" in path]
    assert pushed["reference"].startswith(f"{proxy.host}/{place.path}/ann:code-")
    assert len(uploads) == 2  # the layer of code and the config
    manifest = place.registry(f"{place.path}/ann").manifest(parse_reference(pushed["reference"]).digest)
    assert manifest
    assert all(place.registry(f"{place.path}/ann").has(blob) for blob in manifest.blobs)


def test_a_registry_without_mounts_is_named(place: Place, running: Running) -> None:
    with quirky(running.host, mounts=False) as proxy:
        there = Place(host=proxy.host, folder=place.folder, path=place.path)
        to = ("--to", f"{proxy.host}/{place.path}/bob")
        message = there.refused(*to)
        assert "did not mount 3 of 3 layers" in message
        assert "--copy" in message
        assert place.registry(f"{place.path}/bob").tags() == ()
        assert there.push(*to, "--copy")["reference"].startswith(to[1])


def test_another_registry_gets_a_copy_if_asked(place: Place, tmp_path: Path) -> None:
    with registry(TOOLS, tmp_path / "other") as other:
        to = ("--to", f"{other.host}/ann/code")
        assert "--copy" in place.refused(*to, code=UsageError.exit_code)
        pushed = parse_reference(place.push(*to, "--copy")["reference"])
        there = Registry(RegistryTransport(other.host), pushed.repository)
        manifest = there.manifest(pushed.tag)
        assert manifest
        assert all(there.has(blob) for blob in manifest.blobs)


def test_a_login_that_may_not_push_is_told_so(place: Place, running: Running) -> None:
    with quirky(running.host, push=False) as proxy:
        message = Place(host=proxy.host, folder=place.folder, path=place.path).refused()
    assert f"docker login {proxy.host}" in message
    assert "--to REPOSITORY" in message


def test_a_read_only_registry_is_named(place: Place, running: Running) -> None:
    storage = {"filesystem": {"rootdirectory": str(running.folder)}, "maintenance": {"readonly": {"enabled": True}}}
    with registry(TOOLS, place.folder / "read-only", storage=storage) as other:
        message = Place(host=other.host, folder=place.folder, path=place.path).refused()
    assert "is read-only" in message


def test_an_image_with_120_layers_gets_no_code(running: Running, tmp_path: Path) -> None:
    assert Place(host=running.host, folder=tmp_path, path="many/119").fill(119).push()["sent_bytes"]
    full = Place(host=running.host, folder=tmp_path, path="many/120").fill(120)
    assert "120 layers" in full.refused(code=UsageError.exit_code)


def test_tags_that_are_immutable_are_written_once(place: Place, running: Running) -> None:
    with quirky(running.host, immutable=".") as proxy:
        there = Place(host=proxy.host, folder=place.folder, path=place.path)
        assert there.push()["reference"] == there.push()["reference"]


def test_old_code_is_pruned(place: Place) -> None:
    """The tag of another day needs a push of another day: the room is called, not the command."""
    current, old = place.push()["reference"], _push(place, place.registry(), 9)
    assert old.digest in current, "the same content"
    (place.code / "train.py").write_text("print('old')")
    older = _push(place, place.registry(), 30)
    dry = json.loads(place.run("prune", f"{place.host}/{place.path}", "--dry-run").stdout)["tags"]
    assert [(each["tag"], each["outcome"]) for each in dry] == [(older.tag, "old"), (old.tag, "old")]
    assert len(place.registry().tags()) == 4
    results = json.loads(place.run("prune", f"{place.host}/{place.path}").stdout)["tags"]
    # Debian's registry deletes no tag alone; others do.
    assert [each["outcome"] for each in results] in (["deleted", "kept"], ["deleted", "deleted"])
    tags = place.registry().tags()
    assert older.tag not in tags
    assert {"cpu", parse_reference(current).tag} <= set(tags)
    assert place.registry().manifest(older.digest) is None
    assert place.registry().manifest(old.digest)
    listed = json.loads(place.run("ls", f"{place.host}/{place.path}").stdout)["images"]
    assert {each["tag"] for each in listed} == set(tags) - {"cpu"}


def test_a_registry_that_deletes_nothing_says_how_to_allow_it(place: Place, running: Running) -> None:
    _push(place, place.registry(), 30)
    storage = {"filesystem": {"rootdirectory": str(running.folder)}, "delete": {"enabled": False}}
    before = place.registry().tags()
    with registry(TOOLS, place.folder / "keeps", storage=storage) as other:
        process = place.run("prune", f"{other.host}/{place.path}")
    assert process.returncode == RegistryError.exit_code
    assert "storage.delete.enabled" in process.stderr
    assert place.registry().tags() == before


def test_the_page_is_true_and_releases_pass_code_over(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of docs/how-to/code.md as it stands, but for the registry and the folder."""
    cosign = program(TOOLS, "cosign")
    monkeypatch.setenv("COSIGN_PASSWORD", SECRET)
    monkeypatch.setenv("PATH", f"{cosign.parent}:{os.environ['PATH']}")
    place = Place(host=running.host, folder=tmp_path, path="acme/pytorch").fill()
    commands = re.findall(r"^ +nox -s code -- (.*)$", PAGE, flags=re.MULTILINE)
    assert {words.split()[0] for words in commands} == {"push", "ls", "prune"}
    for words in commands:
        text = (
            words.replace("ghcr.io", running.host).replace(" . ", f" {place.code} ").replace(" src", f" {place.code}")
        )
        text = re.sub(r" \.$", f" {place.code}", text)
        process = torchbake("code", *shlex.split(text))
        assert process.returncode == 0, (words, process.stderr)
    keys = make_keys(cosign, tmp_path / "ours")
    signed = place.push("--key", keys.private, "--no-transparency-log")
    assert signed["signed"]
    for words in ("list cpu --due", "rollback cpu --dry-run"):
        process = torchbake(*words.split(), "--registry", f"{running.host}/acme")
        assert "code-" not in process.stdout + process.stderr, words


@pytest.fixture(scope="module")
def released(running: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The CPU image in the registry, as a build keeps it: its layers are compressed by zstd."""
    ref, project, engine = ref_of(CPU), load_project(ROOT / "matrix.yaml"), connect()
    there = Registry(RegistryTransport(running.host), Repository(host=running.host, path="team/pytorch"))
    folder = tmp_path_factory.mktemp("image")
    source, digest = source_of(engine, Layout(folder=project.layout)), engine.images()[ref].digest
    content = source.take_out(digest, folder, lambda _: True)
    for blob, path in content.blobs.items():
        there.upload(blob, path)
    there.put(content.manifest, "cpu")
    return f"{there.repository}:cpu"


def test_the_engine_pulls_the_code_and_runs_it(engine: docker.DockerClient, released: str, tmp_path: Path) -> None:
    """By the line of docs/how-to/code.md."""
    (line,) = re.findall(r"^ +(docker run .*)$", PAGE, flags=re.MULTILINE)
    place = Place(host=released.partition("/")[0], folder=tmp_path)
    write(place.code, {**FILES, "train.py": "import net.model, torch; print('x', net.model.x, torch.__version__)"})
    shell = line.replace("nox -s code --", f"{sys.executable} -m torchbake code")
    shell = shell.replace("ghcr.io/acme/pytorch:cpu .", f"{released} {shlex.quote(str(place.code))}")
    for edit in ("1", "2"):
        (place.code / "net/model.py").write_text(f"x = 'edit {edit}'")
        process = subprocess.run(shell, shell=True, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        assert process.returncode == 0, process.stderr
        assert f"x edit {edit} " in process.stdout
    reference = place.push()["reference"]
    command = ["stat", "-c", "%a %u:%g %n", "/job", "/job/run.sh", "/job/net/model.py"]
    listing = output_of(engine, reference, command)
    assert listing.splitlines() == ["755 0:0 /job", "755 0:0 /job/run.sh", "644 0:0 /job/net/model.py"]
    for tag in [tag for tag in connect().images() if tag.startswith(place.host)]:
        engine.images.remove(tag, force=True)
