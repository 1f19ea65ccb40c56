"""An index of two platforms on a real registry: two machines publish, the engine pulls by platform, tags go back."""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import ROOT, torchbake
from tests.e2e.containers import output_of
from tests.e2e.registries import Running, registry
from tests.small import Small
from tests.unit.conftest import init_image
from torchbake.checks.verdict import Outcome
from torchbake.engine.emulation import runs
from torchbake.matrix.platforms import platform_tag, shared_id
from torchbake.matrix.spec import AMD64, ARM64, InitSpec
from torchbake.oci.manifest import CONFIG, INDEX, MANIFEST, Manifest, sha256
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.release.candidate import Candidate, IndexPublication
from torchbake.release.platforms import PlatformPart, PlatformSet
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import RecordedVerdict, read_record
from torchbake.render.dockerfile import promised_labels
from torchbake.validate.promise import promise_of
from torchbake.validate.pull import NoInspection
from torchbake.validate.run import MatrixSubject, TagFindings

pytestmark = pytest.mark.release

TOOLS = ROOT / ".torchbake/tools"
SPECS = tuple(replace(init_image(), platform=platform) for platform in (AMD64, ARM64))
TAGS = ("1.0.0", "1.0", "1", "latest")
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class Pullable(Small):
    """Images of one file each that an engine can pull."""

    def image(self, spec: InitSpec, inputs: str) -> tuple[Manifest, Mapping[str, str]]:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as file:
            text = f"{spec.platform} from {inputs}".encode()
            member = tarfile.TarInfo("program")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text))
        layer = gzip.compress(archive.getvalue(), mtime=0)
        labels = promised_labels(spec, None) | {"org.torchbake.inputs": f"{spec.platform} {inputs}"}
        config = {
            "os": "linux",
            "architecture": spec.platform.partition("/")[2],
            "config": {"Labels": labels, "Cmd": ["/program"]},
            "rootfs": {"type": "layers", "diff_ids": [sha256(archive.getvalue())]},
        }
        blobs = {sha256(data): data for data in (json.dumps(config).encode(), layer)}
        described = [
            {"mediaType": kind, "digest": digest, "size": len(data)}
            for kind, (digest, data) in zip((CONFIG, LAYER), blobs.items(), strict=True)
        ]
        content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
        manifest = Manifest(data=json.dumps(content).encode(), media_type=MANIFEST)
        self.images[manifest.digest] = manifest, blobs, labels
        return manifest, labels


@dataclass
class Fleet:
    """Two machines and their repository. ``today`` are the inputs of today's files."""

    host: str
    path: str
    small: Pullable = field(default_factory=Pullable)
    today: dict[str, str] = field(default_factory=lambda: dict.fromkeys((AMD64, ARM64), "a"))

    @property
    def registry(self) -> Registry:
        return Registry(RegistryTransport(self.host), Repository(host=self.host, path=self.path))

    @property
    def ref(self) -> str:
        return f"{self.host}/{self.path}"

    def publish(self, spec: InitSpec) -> IndexPublication:
        """Release one platform from its machine, which then tries to write the index."""
        manifest, labels = self.small.image(spec, self.today[spec.platform])
        verdict = RecordedVerdict(suite="s", started="now", outcome=Outcome.PASSED, counts={"passed": 1})
        candidate = Candidate(
            id=spec.id, digest=manifest.digest, labels=labels, tags=(), own=platform_tag(spec), verdict=verdict
        )
        publisher = Publisher(self.registry)
        publisher.publish(candidate, self.small.supply, lambda _: None, lambda *_: None)
        return publisher.publish_index(self.both, lambda _: None)

    def why_old(self, platform: str, labels: Mapping[str, str]) -> str:
        is_same = labels["org.torchbake.inputs"] == f"{platform} {self.today[platform]}"
        return "" if is_same else "its inputs changed"

    @property
    def both(self) -> PlatformSet:
        parts = [
            PlatformPart(
                platform=spec.platform,
                id=spec.id,
                name=platform_tag(spec),
                why_old=partial(self.why_old, spec.platform),
            )
            for spec in SPECS
        ]
        return PlatformSet(id="volume-permissions", repository=self.path, tags=TAGS, parts=tuple(parts))

    def digests(self) -> set[str | None]:
        return {self.registry.digest(tag) for tag in TAGS}

    def validate(self) -> list[TagFindings]:
        findings = []
        for spec in SPECS:
            promise = promise_of(spec, TAGS, None)
            subject = MatrixSubject(
                promise=replace(promise, tags=(), own=platform_tag(spec)),
                index=replace(promise, index=shared_id(spec)),
                registry=self.registry,
                known_ids=frozenset(each.id for each in SPECS),
            )
            findings += subject.validate(NoInspection(reason="nothing is pulled"), lambda _: None)
        return findings


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def fleet(running: Running, request: pytest.FixtureRequest) -> Fleet:
    return Fleet(running.host, "t/" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12])


def pulled(engine: docker.DockerClient, fleet: Fleet, tag: str, platform: str) -> dict[str, Any]:
    """Pull a tag for a platform, and return the engine's description of the image, which is removed again."""
    engine.api.pull(fleet.ref, tag=tag, platform=platform)
    attrs: dict[str, Any] = engine.images.get(f"{fleet.ref}:{tag}").attrs
    engine.images.remove(f"{fleet.ref}:{tag}", force=True)
    return attrs


def test_two_machines_release_one_tag_for_two_platforms(fleet: Fleet, engine: docker.DockerClient) -> None:
    waiting = fleet.publish(SPECS[1])
    assert waiting.lacking == {AMD64: "volume-permissions is not released yet"}
    assert fleet.digests() == {None}
    one_release = fleet.publish(SPECS[0])
    assert one_release.decision
    assert fleet.digests() == {one_release.decision.digest} == {fleet.registry.digest("1.0.0-r0")}
    index = fleet.registry.manifest("latest")
    assert index
    assert index.media_type == INDEX
    assert [where for _, where in index.images] == [AMD64, ARM64]
    for spec in SPECS:
        manifest, labels = fleet.small.image(spec, "a")
        attrs = pulled(engine, fleet, "latest", spec.platform)
        assert f"{attrs['Os']}/{attrs['Architecture']}" == spec.platform
        assert attrs["Config"]["Labels"] == dict(labels)
        assert fleet.registry.digest(f"{platform_tag(spec)}-r0") == manifest.digest
    failed = [(one.ref, check) for one in fleet.validate() for check in one.checks if check.outcome is Outcome.FAILED]
    assert failed == []


def test_a_new_image_of_one_platform_and_back(fleet: Fleet, engine: docker.DockerClient) -> None:
    for spec in SPECS:
        fleet.publish(spec)
    first = fleet.registry.digest("latest")
    fleet.today[ARM64] = "b"
    assert fleet.publish(SPECS[0]).lacking == {ARM64: "1.0.0-arm64-r0 is not of today's files: its inputs changed"}
    assert fleet.digests() == {first}
    second = fleet.publish(SPECS[1]).decision
    assert second
    assert (str(second.tag), fleet.digests()) == ("1.0.0-r1", {second.digest})
    record = read_record(fleet.registry, "1.0.0-r1")
    assert record
    assert {platform: one.tag for platform, one in record.platforms.items()} == {
        AMD64: "1.0.0-amd64-r0", ARM64: "1.0.0-arm64-r1",
    }  # fmt: skip
    shift(fleet.registry, TAGS, to=None, back=True)
    assert fleet.digests() == {first}
    assert pulled(engine, fleet, "1", ARM64)["Config"]["Labels"]["org.torchbake.inputs"] == f"{ARM64} a"
    waiting = fleet.publish(SPECS[1]).decision
    assert waiting
    assert waiting.action == "held"
    shift(fleet.registry, TAGS, to=None, back=False)
    assert fleet.digests() == {second.digest}
    failed = [(one.ref, check) for one in fleet.validate() for check in one.checks if check.outcome is Outcome.FAILED]
    assert failed == []


INIT_ROWS = """
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init:
  volume-permissions: {version: 1.0.0, base: debian12, platforms: [linux/amd64, linux/arm64]}
"""
IDS = ("volume-permissions", "volume-permissions-arm64")


@pytest.mark.long
@pytest.mark.skipif(not runs(ARM64), reason="not run: no qemu: torchbake setup --platform linux/arm64")
def test_the_command_line_releases_what_runs_on_both(
    project: Callable[..., Path], running: Running, engine: docker.DockerClient
) -> None:
    """arm64 is emulated here: the build takes minutes, if no build cache has its compiler."""
    path = project(INIT_ROWS, repository="torchbake-test/platforms/pytorch")
    (path.parent / ".gitignore").write_text(".torchbake\nreports\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=path.parent, check=True)
    where, of = ("--registry", f"{running.host}/both"), ("--matrix", str(path))

    def run(*words: str) -> dict[str, Any]:
        process = torchbake(*words, *of, "--format", "json")
        assert process.returncode == 0, process.stderr[-2000:]
        result: dict[str, Any] = json.loads(process.stdout)
        return result

    run("build", *IDS)
    tested = {image["name"]: image["checks"] for image in run("test", *IDS)["images"]}
    assert all({check["outcome"] for check in checks} == {"passed"} for checks in tested.values())
    assert len(tested[IDS[0]]) == len(tested[IDS[1]])
    _, waiting = run("publish", IDS[1], *where)["images"]
    assert list(waiting["lacking"]) == [AMD64]
    _, index = run("publish", IDS[0], *where)["images"]
    assert (index["action"], index["tag"], index["lacking"]) == ("release", "1.0.0-r0", {})
    repository = f"{running.host}/both/volume-permissions"
    for platform in (AMD64, ARM64):
        engine.api.pull(repository, tag="latest", platform=platform)
        output = output_of(engine, f"{repository}:latest", ["--version"], platform=platform)
        assert output.split() == ["volume-permissions", "1.0.0"]
        engine.images.remove(f"{repository}:latest", force=True)
    verdicts = run("validate", *IDS, *where)["images"]
    assert len(verdicts) == 12
    outcomes = {check["id"]: check["outcome"] for one in verdicts for check in one["checks"]}
    assert {name for name, outcome in outcomes.items() if outcome != "passed"} == {"registry.signature"}
    assert run("list", *IDS, "--due", "--bases", "keep", *where)["images"] == []


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("machine", "wheels", "folder"),
    [("aarch64", "", "X-arm64"), ("aarch64", "/wheels", "X"), ("x86_64", "", "X"), ("aarch64", "none", "Y")],
)
def test_a_host_takes_the_lock_of_its_processor(machine: str, wheels: str, folder: str, tmp_path: Path) -> None:
    """A folder of wheels is for one processor, and not every image has a lock for arm64."""
    (tmp_path / "X-arm64").mkdir()
    (tmp_path / "X-arm64/requirements.lock").touch()
    extra_vars = {
        "ansible_facts": {"architecture": machine}, "pytorch_locks": str(tmp_path), "pytorch_image": folder[0],
        "pytorch_wheelhouse": wheels.removeprefix("none"),
    }  # fmt: skip
    role = ROOT / "ansible/roles/pytorch"
    files = [f"-e@{role}/{name}/main.yml" for name in ("defaults", "vars")]
    words = ["localhost", "-i", "localhost,", "-c", "local", "-m", "debug", "-a", "msg={{ pytorch_lock }}"]
    process = subprocess.run(
        [Path(sys.executable).with_name("ansible"), *words, *files, "-e", json.dumps(extra_vars)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert f'"msg": "{tmp_path}/{folder}/requirements.lock"' in process.stdout
