"""Verdicts of other machines: which files count for an image, and why others are refused."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.builds import BASE, INIT, preparation_of, small_project, spec_of
from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from torchbake.build.plan import ref_of
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.reports import Reports
from torchbake.checks.statement import statement_text
from torchbake.checks.suite_digest import promise_digest, suite_digest
from torchbake.checks.verdict import CheckResult
from torchbake.commands._candidates import candidate_of
from torchbake.commands._verdicts import SignedVerdicts, read_verdicts
from torchbake.core.files import write_text
from torchbake.core.problem import Problem
from torchbake.engine.image import EngineImage
from torchbake.errors import CheckError
from torchbake.matrix.project import Project
from torchbake.oci.labels import INPUTS
from torchbake.registry.cosign import CosignSigner
from torchbake.release.candidate import Candidate
from torchbake.release.transport import ReadyImage

DIGEST, OTHER, CONFIG = (f"sha256:{digit * 64}" for digit in "123")


class Trust:
    """Trust each file that has a signature."""

    def __init__(self) -> None:
        self.verified: list[bytes] = []

    def file_problem(self, path: Path) -> Problem | None:
        self.verified.append(path.read_bytes())
        return None if path.with_name(f"{path.name}.bundle").exists() else Problem(reason="not signed")


@dataclass
class Site:
    """A project whose image is in the engine and up to date, and a folder of verdicts."""

    project: Project
    folder: Path
    configs: list[str] = field(default_factory=list)

    def write(self, *checks: CheckResult, name: str = "gpu/a.json", signed: bool = True, **changes: Any) -> Path:
        path = self.folder / name
        write_text(path, statement_text(self.verdict(*checks, **changes)))
        if signed:
            path.with_name(f"{path.name}.bundle").touch()
        return path

    def verdict(self, *checks: CheckResult, **changes: Any) -> Any:
        spec = spec_of(self.project, INIT)
        how = changes.get("how", ())
        lines = {
            "id": INIT, "digest": DIGEST, "config": CONFIG, "promise": promise_digest(self.project, spec),
            "suite": suite_digest(self.project, spec, how),
        }  # fmt: skip
        return verdict(*checks).model_copy(update=lines | changes)

    def keep(self, *checks: CheckResult, **changes: Any) -> None:
        """Keep a verdict of this machine."""
        reports = Reports(folder=self.project.root / "reports")
        reports.keep(INIT, self.verdict(*checks, **changes), {}, partial=False)

    def candidate(self, *, verdicts: bool = True) -> Candidate:
        spec = spec_of(self.project, INIT)
        labels = {INPUTS: preparation_of(self.project).job(spec, BASE).inputs}
        images = {
            ref_of(spec, self.project.tags[INIT]): EngineImage(digest=DIGEST, tags=(), labels=labels, size_bytes=1)
        }

        def config(digest: str) -> str:
            self.configs.append(digest)
            return CONFIG

        others = SignedVerdicts(folder=self.folder, trust=cast("CosignSigner", Trust()), config=config)
        preparation = ImagePreparation.to_ask(self.project, print)
        choice = others if verdicts else None
        return candidate_of(
            preparation, spec, images, {}, prepare=lambda image: ReadyImage(digest=image), others=choice
        )


@pytest.fixture
def lacking() -> list[str]:
    """The checks that a verdict must have. Without this fixture another process would list them."""
    return ["files.setuid"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: list[str]) -> Site:
    def missing(verdict: Any, spec: Any) -> tuple[str, ...]:
        return tuple({*lacking} - {one.id for one in verdict.checks})

    monkeypatch.setattr("torchbake.commands._candidates.missing_checks", missing)
    project = small_project(tmp_path / "project")
    write_text(project.state / f"bases/{BASE.name}.json", json.dumps(BASE.__dict__))
    (tmp_path / "verdicts").mkdir()
    return Site(project, tmp_path / "verdicts")


def test_what_was_read_is_verified(site: Site) -> None:
    """A file of a shared folder can be another one by the time that it is verified."""
    path = site.write(check())
    trust = Trust()
    verdicts = SignedVerdicts(folder=site.folder, trust=cast("CosignSigner", trust), config=lambda digest: CONFIG)
    (file,) = verdicts._files
    path.write_text("another")
    assert verdicts._problem(file) is None
    assert trust.verified == [file.data]
    assert file.data != path.read_bytes()


def test_a_signed_verdict_of_another_machine_is_enough(site: Site) -> None:
    with pytest.raises(CheckError, match=f"has not been tested since it was built, and {site.folder} has no verdict"):
        site.candidate()
    site.write(check())
    assert site.candidate().digest == DIGEST
    assert site.configs == []  # it is the same manifest: nobody need read the image
    with pytest.raises(CheckError, match=r"has not been tested since it was built\."):
        site.candidate(verdicts=False)


def test_the_config_decides_if_the_image_is_packed_otherwise(site: Site) -> None:
    site.write(check(), digest=OTHER)
    assert site.candidate().digest == DIGEST
    assert site.configs == [DIGEST]
    site.write(check(), digest=CONFIG, config=CONFIG)  # of an engine that knows no manifests
    assert site.candidate().digest == DIGEST


REFUSED: dict[str, tuple[Callable[[Site], Path], str]] = {
    "unsigned": (lambda site: site.write(check(), signed=False), "is refused: not signed"),
    "another image": (lambda site: site.write(check(), digest=OTHER, config=OTHER), "is of another image"),
    "old suite": (lambda site: site.write(check(), suite="sha256:old"), "tested by other checks than today's"),
    "old promise": (lambda site: site.write(check(), promise="sha256:old"), "promises something else"),
}


def test_a_file_that_does_not_count_is_refused_by_name(site: Site) -> None:
    site.keep(check())  # which would be enough without it
    for name, (write, reason) in REFUSED.items():
        path = write(site)
        with pytest.raises(CheckError, match=reason) as refused:
            site.candidate()
        assert (str(path) in refused.value.message, bool(refused.value.hint)) == (True, True), name
        path.with_name(f"{path.name}.bundle").unlink(missing_ok=True)
        path.unlink()
        assert site.candidate().digest == DIGEST, name


def test_a_damaged_file_is_refused_whatever_image_it_is_of(site: Site) -> None:
    path = site.write(check(), id="another-row")
    assert [file.path for file in read_verdicts(site.folder)] == [path]
    text = path.read_text()
    for damage in (text[:-10], text.replace("files.setuid", "files.other", 1), "{}", "\x00"):
        path.write_text(damage)
        with pytest.raises(CheckError, match="is not a verdict") as refused:
            site.candidate()
        assert str(path) in refused.value.message


def test_verdicts_are_merged_and_a_failure_wins(site: Site, lacking: list[str]) -> None:
    lacking.append("smoke.nccl")
    part = site.write(check("smoke.nccl"), how=("gpu=cdi", "only=smoke.*"))
    with pytest.raises(CheckError, match=rf"lacks 1 of today's checks: files\.setuid \(in {part}\)"):
        site.candidate()
    site.keep(check(), check("smoke.nccl", NOT_RUN, "no GPU"))
    candidate = site.candidate()
    assert candidate.verdict
    assert (candidate.verdict.counts["passed"], candidate.verdict.not_run) == (2, {})
    bad = site.write(check(), check("smoke.nccl", FAILED, "wrong sum"), name="other/b.json")
    with pytest.raises(CheckError, match=rf"did not pass: smoke\.nccl \(in {part}, {bad}\)"):
        site.candidate()


def test_an_old_verdict_of_this_machine_is_not_merged(site: Site) -> None:
    site.keep(check(outcome=FAILED), suite="sha256:old")
    with pytest.raises(CheckError, match="tested by other checks"):
        site.candidate()
    site.write(check())
    assert site.candidate().digest == DIGEST


def test_verdicts_of_other_rows_and_derived_images_say_nothing(site: Site) -> None:
    site.keep(check())
    site.write(check(outcome=FAILED), name="a.json", signed=False, id="another-row")
    site.write(check(outcome=FAILED), name="b.json", signed=False, digest=OTHER, how=("derived",))
    assert site.candidate().digest == DIGEST
