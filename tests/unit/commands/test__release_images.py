"""Releases without an engine: the images of the store, which equal the images of an engine."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.unit.builds import BASE, INIT, preparation_of, small_project, spec_of
from tests.unit.checks.test_verdict import check, verdict
from tests.unit.engines import Daemon
from tests.unit.layouts import archive, damage, file, put
from tests.unit.registries import MemoryRegistry, Store
from torchbake import cli
from torchbake.build.plan import ref_of
from torchbake.checks.reports import Reports
from torchbake.checks.suite_digest import promise_digest, suite_digest
from torchbake.commands import _release_images, publish
from torchbake.core.files import write_text
from torchbake.errors import EngineError
from torchbake.matrix.project import Project
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.manifest import Manifest
from torchbake.release.record import read_record
from torchbake.store.layout import Layout


@dataclass
class Site:
    """A project with a store, an engine that may answer, and a registry."""

    project: Project
    capsys: pytest.CaptureFixture[str]
    daemon: Daemon | None = None
    registry: Store = field(default_factory=Store)

    @property
    def layout(self) -> Layout:
        return Layout(folder=self.project.layout)

    @property
    def inputs(self) -> str:
        return preparation_of(self.project).job(spec_of(self.project, INIT), BASE).inputs

    def store(self, content: bytes = b"x", inputs: str = "") -> Manifest:
        """Put an image into the store."""
        labels = {ID: INIT, INPUTS: inputs or self.inputs}
        folder = self.project.root / "export"
        layer = archive(file("usr/bin/volume-permissions", content))
        digest = put(Layout(folder=folder), layer, config={"config": {"Labels": labels}})
        self.layout.take(folder, digest)
        return self.layout.get(digest)

    def test(self, digest: str) -> None:
        """Keep a verdict of this machine on an image."""
        spec = spec_of(self.project, INIT)
        facts = {"digest": digest, "promise": promise_digest(self.project, spec), "how": (), "id": INIT}
        facts["suite"] = suite_digest(self.project, spec, ())
        reports = Reports(folder=self.project.root / "reports")
        reports.keep(INIT, verdict(check()).model_copy(update=facts), {}, partial=False)

    def publish(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """The exit code, what became of the image, and stderr."""
        self.capsys.readouterr()
        matrix = ("--matrix", str(self.project.document.path))
        code = cli.main(["publish", INIT, "--registry", "example.com/team", "--format", "json", *matrix, *words])
        out, err = self.capsys.readouterr()
        return code, json.loads(out)["images"][0] if out else {}, err


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Site:
    site = Site(small_project(tmp_path / "project"), capsys)
    write_text(site.project.state / f"bases/{BASE.name}.json", json.dumps(BASE.__dict__))

    def connect() -> Any:
        if site.daemon is None:
            raise EngineError("No container engine answers.")
        return site.daemon.engine

    monkeypatch.setattr(_release_images, "connect", connect)
    monkeypatch.setattr(publish, "registry_of", lambda *_, **__: MemoryRegistry(site.registry))
    monkeypatch.setattr("torchbake.commands._candidates.missing_checks", lambda verdict, spec: ())
    return site


def test_the_release_is_the_same_as_with_an_engine(site: Site) -> None:
    image = site.store()
    site.test(image.digest)
    site.daemon = Daemon()
    ref = ref_of(spec_of(site.project, INIT), site.project.tags[INIT])
    site.daemon.hold(image.digest, ref, labels={ID: INIT, INPUTS: site.inputs})
    assert site.publish()[0] == 0
    first, site.registry, site.daemon = site.registry, Store(), None
    code, _, output = site.publish()
    assert (code, "--no-engine" in output) == (EngineError.exit_code, True)
    assert not site.registry.tags
    code, ends, _ = site.publish("--no-engine")
    assert (code, ends["digest"], ends["same_image"]) == (0, image.digest, True)
    assert ends["platform"] == "linux/amd64"
    tags = {tag: digest for tag, digest in first.tags.items() if not tag.endswith(".release")}
    assert tags == {tag: site.registry.tags[tag] for tag in tags} != {}
    assert first.tags.keys() == site.registry.tags.keys()
    records = [read_record(MemoryRegistry(one), f"{site.project.tags[INIT][0]}-r0") for one in (first, site.registry)]
    assert all(records)
    one, other = (record.model_dump(exclude={"started", "released"}) for record in records if record)
    assert one == other


@pytest.mark.parametrize("compression", ["gzip", "both"])
def test_other_compressions_are_made_of_the_store(site: Site, compression: str) -> None:
    image = site.store()
    site.test(image.digest)
    code, ends, _ = site.publish("--no-engine", "--compression", compression)
    assert (code, ends["tested"] != image.digest) == (0, True), ends
    assert site.layout.get(image.digest)


def test_a_classic_engines_verdict_names_the_config(site: Site) -> None:
    image = site.store()
    site.test(image.config.digest)
    code, ends, _ = site.publish("--no-engine")
    assert (code, ends.get("digest")) == (0, image.digest), ends


def test_of_several_images_the_one_of_todays_inputs_is_released(site: Site) -> None:
    old = [site.store(bytes([number]), inputs=f"sha256:{number}") for number in range(4)]
    image = site.store()
    old += [site.store(bytes([number]), inputs=f"sha256:{number}") for number in range(4, 8)]
    for each in (*old, image):
        site.test(each.digest)
    code, ends, _ = site.publish("--no-engine")
    assert (code, ends.get("digest")) == (0, image.digest), ends


def test_an_image_that_cannot_be_released(site: Site) -> None:
    def refused(reason: str) -> None:
        code, ends, err = site.publish("--no-engine")
        assert (code, reason in ends["problem"]) == (16, True), ends
        assert err.count(reason) == 2, "the error has the reason too, and not the table alone"
        assert "--no-engine" in ends["problem"] or "--write-verdict" in ends["problem"]
        assert not site.registry.tags

    refused("is not in the store")
    image = site.store()
    refused("has not been tested")
    damage(site.layout.path(image.layers[0].digest))
    site.test(image.digest)
    refused("is not in the store")
    shutil.rmtree(site.layout.folder)
    site.test(site.store(inputs="sha256:old").digest)
    refused("is out of date")


def test_a_build_removes_no_image_meanwhile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    image = site.store()
    site.test(image.digest)

    def message(*_: str) -> None:
        Layout(folder=site.project.layout).tidy(())

    monkeypatch.setattr(publish, "registry_of", lambda *_, **__: MemoryRegistry(site.registry, message=message))
    code, ends, _ = site.publish("--no-engine")
    assert (code, ends.get("digest")) == (0, image.digest), ends
    site.layout.tidy(())
    assert site.layout.find(image.digest) is None


def test_a_benchmark_needs_an_engine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> NoReturn:
        raise AssertionError("no engine shall be asked")

    monkeypatch.setattr(_release_images, "connect", never)
    code, _, output = site.publish("--no-engine", "--benchmark", "plan.yaml")
    assert (code, "--benchmark" in output) == (2, True), output
