"""An image that is tested in one clone of a project is published from another, with real signatures."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import registries, test_signature
from tests.e2e.conftest import INIT, ROOT, Completed, images_of, small_project, torchbake
from tests.e2e.test_signature import SECRET, Keys
from torchbake.checks.statement import read_statement, statement_text
from torchbake.checks.verdict import Outcome, Verdict
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import repository_of
from torchbake.matrix.project import load_project
from torchbake.registry.cosign import Cosign, CosignSigner
from torchbake.release.record import Record, read_record

pytestmark = pytest.mark.release

cosign, ours, theirs = test_signature.cosign, test_signature.ours, test_signature.theirs  # fixtures
known_secrets = test_signature.known_secrets
ROWS = """\
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init: {volume-permissions: {version: 1.0.0, base: debian12}}
"""
NO_LOG = "--no-transparency-log"
REPOSITORY = "torchbake-test/verdicts/pytorch"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Two clones of a project: images are tested in one, and published from the other. Both use one engine."""

    tester: Path
    publisher: Path
    whole: Path
    registry: str
    signer: CosignSigner
    public: str
    built: str

    @property
    def verdicts(self) -> Path:
        """The folder that travels."""
        return self.publisher.parent.parent / "verdicts"

    @property
    def file(self) -> Path:
        return self.verdicts / f"{INIT}.json"

    def test(self, *words: str) -> None:
        """Test the image with these options, or take the verdict of all checks."""
        if words:
            write_verdict(self.tester, self.verdicts, self.signer.key, *words)
        else:
            shutil.copytree(self.whole, self.verdicts, dirs_exist_ok=True)

    def change(self, **changes: Any) -> Verdict:
        """Write another verdict in the file's place, signed."""
        changed = read_statement(self.file.read_bytes()).model_copy(update=changes)
        self.file.write_text(statement_text(changed))
        self.signer.sign_file(self.file)
        return changed

    def publish(self, *words: str, key: str = "") -> tuple[int, str]:
        """Publish with the verdicts; the exit code and the problem of the image."""
        trust = () if "--verdicts" in words else ("--verdicts", str(self.verdicts), "--verdict-key", key or self.public)
        where = ("--registry", f"{self.registry}/team", "--format", "json")
        process = torchbake("publish", INIT, "--matrix", str(self.publisher), *where, *trust, NO_LOG, *words)
        return process.returncode, str(
            json.loads(process.stdout)["images"][0]["problem"]
        ) if process.stdout else process.stderr


def write_verdict(matrix: Path, folder: Path, key: str, *words: str) -> None:
    """Test the image, write the verdict into a folder, and forget it in the clone that tested."""
    process = torchbake(
        "test", INIT, "--matrix", str(matrix), "--key", key, NO_LOG, "--write-verdict", str(folder), *words
    )
    assert process.returncode == 0, process.stdout + process.stderr
    shutil.rmtree(matrix.parent / "reports")


@pytest.fixture(scope="module")
def tested(
    tmp_path_factory: pytest.TempPathFactory, bases: Path, ours: Keys, cosign: Path
) -> tuple[Path, dict[str, Any]]:
    """The folder with the verdict of all checks of the image, and the result of its build."""
    folder = tmp_path_factory.mktemp("tested")
    matrix = small_project(folder, bases, ROWS, repository=REPOSITORY)
    process = torchbake("build", INIT, "--matrix", str(matrix), "--format", "json")
    assert process.returncode == 0, process.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", SECRET)
        patch.setenv("PATH", f"{cosign.parent}:{os.environ['PATH']}")
        write_verdict(matrix, folder / "verdicts", ours.private)
    return folder / "verdicts", images_of(process)[INIT]


@pytest.fixture
def site(
    project: Callable[..., Path], tmp_path: Path, ours: Keys, cosign: Path, tested: tuple[Path, dict[str, Any]]
) -> Iterator[Site]:
    tester = project(ROWS, repository=REPOSITORY)
    publisher = tmp_path / "clone" / tester.name
    with registries.registry(ROOT / ".torchbake/tools", tmp_path / "registry") as running:
        publisher.parent.mkdir()
        shutil.copy(tester, publisher)
        yield Site(
            tester=tester,
            publisher=publisher,
            whole=tested[0],
            registry=running.host,
            signer=CosignSigner(cosign=Cosign(program=str(cosign), log=False), key=ours.private),
            public=ours.public,
            built=str(tested[1]["digest"]),
        )


def test_published_from_another_clone(site: Site) -> None:
    site.test()
    verdict = read_statement(site.file.read_bytes())
    assert (verdict.id, verdict.digest, verdict.outcome) == (INIT, site.built, Outcome.PASSED)
    assert verdict.config.startswith("sha256:")
    assert verdict.config != verdict.digest
    process = torchbake("publish", INIT, "--matrix", str(site.publisher), "--registry", f"{site.registry}/team")
    assert (process.returncode, "has not been tested since it was built" in process.stdout) == (16, True)
    assert site.publish() == (0, "")
    record = record_of(site)
    assert record.verdict
    assert (record.digest, record.verdict.outcome) == (site.built, Outcome.PASSED)
    assert record.verdict.counts["passed"] == len(verdict.of(Outcome.PASSED))


def record_of(site: Site) -> Record:
    """The record of the release."""
    project = load_project(site.publisher)
    spec = next(spec for spec in project.expansion.specs if spec.id == INIT)
    repository = repository_of(f"{site.registry}/team", spec)
    record = read_record(registry_of(repository, plain_http=False), f"{project.tags[INIT][0]}-r0")
    assert record
    return record


def test_refused_files(site: Site, theirs: Keys) -> None:
    site.test()
    good, bundle = site.file.read_text(), site.file.with_name(f"{site.file.name}.bundle")
    signature = bundle.read_text()

    def refused(reason: str, **options: str) -> None:
        code, problem = site.publish(**options)
        assert (code, reason in problem, str(site.file) in problem) == (16, True, True), problem
        site.file.write_text(good)
        bundle.write_text(signature)

    refused("signature does not verify", key=theirs.public)
    bundle.unlink()
    refused("not signed")
    bundle.write_text("{}")
    refused("signature does not verify")
    site.file.write_text(good.replace('"seconds"', '"second"', 1))
    refused("is not a verdict")
    site.file.write_text(statement_text(read_statement(good.encode()).model_copy(update={"seconds": 0.5})))
    refused("signature does not verify")
    site.change(digest=f"sha256:{'0' * 64}", config=f"sha256:{'1' * 64}")
    refused("is of another image")
    site.change(suite=f"sha256:{'0' * 64}")
    refused("tested by other checks than today's")
    assert site.publish() == (0, "")


def test_a_part_or_a_failure(site: Site) -> None:
    site.test("--only", "files.*")
    code, problem = site.publish()
    assert (code, "of today's checks" in problem, str(site.file) in problem) == (16, True, True), problem
    site.test()
    checks = read_statement(site.file.read_bytes()).checks
    failed = checks[0].model_copy(update={"outcome": Outcome.FAILED, "reason": "as the test says"})
    site.change(checks=(failed, *checks[1:]))
    code, problem = site.publish()
    assert (code, f"did not pass: {failed.id} (in {site.file})." in problem) == (16, True), problem
    site.change(checks=checks)
    assert site.publish("--dry-run") == (0, "")


def test_options_that_verify_nothing(site: Site) -> None:
    site.test()
    code, output = site.publish("--verdicts", str(site.verdicts))
    assert (code, "--verdict-key cosign.pub" in output) == (2, True), output
    code, output = site.publish("--verdicts", f"{site.verdicts}-none", "--verdict-key", site.public)
    assert (code, "no such folder" in output) == (2, True), output
    # The key that signs the release is a key that the user names.
    assert site.publish("--verdicts", str(site.verdicts), "--key", site.signer.key, "--dry-run") == (0, "")


def report(site: Site, *words: str) -> Completed:
    """A report without an engine."""
    nowhere = {"DOCKER_HOST": f"unix://{site.verdicts}/none.sock"}
    return torchbake(
        "report", INIT, "--matrix", str(site.publisher), "--verdicts", str(site.verdicts), *words, env=nowhere
    )


def test_shards_in_one_report(site: Site) -> None:
    site.test()
    whole = read_statement(site.file.read_bytes())

    def checked() -> dict[str, Any]:
        (image,) = json.loads(report(site, "--format", "json").stdout)["images"]
        return dict(image["checked"])

    counts = checked()["counts"]
    assert (counts["passed"], counts["failed"]) == (len(whole.of(Outcome.PASSED)), 0)
    first = whole.of(Outcome.PASSED)[0]
    for outcome, passed, failed in ((Outcome.NOT_RUN, 0, 0), (Outcome.FAILED, -1, 1)):
        other = first.model_copy(update={"outcome": outcome, "reason": "as the test says"})
        shard = whole.model_copy(update={"checks": tuple(other if one == first else one for one in whole.checks)})
        (site.verdicts / "shard").mkdir(exist_ok=True)
        (site.verdicts / "shard/2.json").write_text(statement_text(shard))
        merged = checked()["counts"]
        assert (merged["passed"] - counts["passed"], merged["failed"]) == (passed, failed), outcome
    assert report(site).returncode == 0
    page = site.publisher.parent / "reports/index.html"
    assert "as the test says" in page.read_text()
    (site.verdicts / "shard/2.json").write_text("{}")
    process = report(site)
    assert (process.returncode, "shard/2.json is not a verdict" in process.stderr) == (13, True)


def test_another_build(site: Site) -> None:
    """The image was built again after its test: the verdict is of the one before.

    It comes last, as it leaves another image in the engine.
    """
    site.test()
    for matrix in (site.tester, site.publisher):
        matrix.write_text(
            matrix.read_text().replace("version: 1.0.0", "version: 1.0.0, labels: {com.acme.team: vision}")
        )
    # Not in the clone of the publisher, which would bootstrap a base of its own.
    process = torchbake("build", INIT, "--matrix", str(site.tester))
    assert process.returncode == 0, process.stderr
    code, problem = site.publish()
    assert (code, f"{site.file} is of another image: {site.built}" in problem) == (16, True), problem
