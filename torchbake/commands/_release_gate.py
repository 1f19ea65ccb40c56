"""The gate before a release: each image is judged by known vulnerabilities before anything is written to a registry."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

from torchbake.advisories.feeds import is_address, read_feeds
from torchbake.advisories.finding import Kind
from torchbake.advisories.match import Feeds, findings_of, uncovered
from torchbake.advisories.scan_files import read_reports
from torchbake.advisories.scan_report import ScanReport
from torchbake.build.plan import ref_of
from torchbake.core.paths import path_of
from torchbake.engine.image import EngineImage
from torchbake.errors import AdvisoryError, CheckError, TorchbakeError, sentence_of
from torchbake.gate.judge import GateResult, GateSubject, Judged, judge_gate
from torchbake.gate.load import load_gate
from torchbake.gate.model import GateFile
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.labels import VERSION_LABEL
from torchbake.registry.artifact import Artifact
from torchbake.registry.client import Registry
from torchbake.release.candidate import Candidate
from torchbake.release.history import digests_of, read_release
from torchbake.release.transport import ImageTransport
from torchbake.sbom.image_scan import look_into
from torchbake.sbom.packages import ImagePackages
from torchbake.ui.steps import step

VEX = "vex"
_MOST_NUMBERS = 3  # vulnerabilities in the reason of an image


@dataclass(frozen=True, kw_only=True)
class GatedImage:
    """An image with the decision of a gate, and its packages."""

    name: str
    version: str
    gate: "ReleaseGate"
    result: GateResult
    contents: ImagePackages = field(default_factory=ImagePackages)

    def pass_on(self, candidate: Candidate) -> Candidate:
        """Return the candidate. Raises CheckError if the gate refuses it."""
        self.gate.pass_result(self.result)
        return candidate

    def vex(self, digest: str) -> Artifact:
        """Return the VEX document of the image with this digest; it is empty if nothing is accepted."""
        from torchbake.gate.vex import vex_text  # noqa: PLC0415 - it takes a quarter of a second

        text = vex_text(self.name, self.version, digest, self.contents, self.result.allowed)
        return Artifact(name=VEX, media_type=MEDIA_TYPE, text=text)


@dataclass(frozen=True, kw_only=True)
class ReleaseGate:
    """A gate's file with its inputs, and the day of the decision. Without advisories ``feeds`` is None."""

    path: Path
    file: GateFile
    feeds: Feeds | None
    reports: Sequence[ScanReport]
    today: date

    def judge(self, spec: Spec, image: EngineImage, source: ImageTransport, cache: Path) -> GatedImage:
        """Judge an image of the engine or of the store. An image that cannot be read is refused."""
        version = image.labels.get(VERSION_LABEL, "")
        gated = GatedImage(name=spec.repository, version=version, result=GateResult(id=spec.id), gate=self)
        try:
            digest = source.target_digest(image.digest)
            content, contents = look_into(source.built_images, digest, cache)
        except (TorchbakeError, OSError) as error:
            result = GateResult(id=spec.id, problems=(f"its packages cannot be read: {sentence_of(error)}",))
            return replace(gated, result=result)
        subject = GateSubject(
            id=spec.id,
            digests=frozenset({image.digest, digest, content.manifest.config.digest}),
            kinds=_kinds(contents),
        )
        return replace(gated, result=self._decide(subject, contents), contents=contents)

    def judge_release(self, name: str, registry: Registry, tag: str) -> GateResult:
        """Judge a release that an earlier run made, by its SBOM in the registry. Raises RegistryError.

        A release whose packages are not known is refused.
        """
        release, id_ = read_release(registry, tag), f"{name} ({tag})"
        if release.packages is None:
            return GateResult(id=id_, problems=(f"its packages cannot be read: {release.problem}",))
        digests = digests_of(registry, release.digest)
        subject = GateSubject(id=id_, digests=digests, kinds=_kinds(release.packages))
        return self._decide(subject, release.packages)

    def pass_result(self, result: GateResult, name: str = "it") -> None:
        """Raise CheckError if a decision refuses the image with this name in a sentence."""
        if result.is_open:
            return
        numbers = list(dict.fromkeys(one.finding.id for one in result.refused))
        more = f" and {len(numbers) - _MOST_NUMBERS} more" if len(numbers) > _MOST_NUMBERS else ""
        words = [*result.problems, ", ".join(numbers[:_MOST_NUMBERS]) + more if numbers else ""]
        raise CheckError(
            f"the gate refuses {name}: {'; '.join(filter(None, words))}.",
            hint=f"Build it with the fixes, or allow a vulnerability with a reason in {self.path}."
            if numbers
            else f"Scan this build, or name the missing input in {self.path}.",
        )

    def _decide(self, subject: GateSubject, contents: ImagePackages) -> GateResult:
        return judge_gate(self.file, subject, self._judged(contents), self.reports, self.today)

    def _judged(self, contents: ImagePackages) -> Judged:
        if self.feeds is None:
            return Judged()
        return Judged(findings=findings_of(contents, self.feeds), uncovered=uncovered(contents, self.feeds))


def open_gate(path: Path) -> ReleaseGate:
    """Read a gate's file and its inputs. Raises GateError and AdvisoryError."""
    file, folder = load_gate(path), path.absolute().parent
    with step("reading known vulnerabilities"):
        places = [one if is_address(one) else str(folder / path_of(one)) for one in file.advisories]
        feeds, today = read_feeds(places) if places else None, datetime.now(UTC).date()
        days = () if feeds is None else feeds.days
        reasons = [one.too_old(file.max_age_days, today) for one in days]
        if old := list(filter(None, reasons)):
            hint = f"Fetch them again, name their addresses in {path}, which each run fetches, or raise max_age_days."
            raise AdvisoryError(f"{'; '.join(old)}.", hint=hint)
        reports = read_reports(folder / path_of(one) for one in file.reports)
    return ReleaseGate(path=path, file=file, feeds=feeds, reports=reports, today=today)


def judge_images(
    gate: ReleaseGate, project: Project, specs: Sequence[Spec], images: Mapping[str, EngineImage],
    source: ImageTransport,
) -> dict[str, GatedImage]:  # fmt: skip
    """Judge each image that there is, by the id of its row."""
    gated = {}
    for spec in specs:
        if image := images.get(ref_of(spec, project.tags[spec.id])):
            with step(f"{spec.id}: comparing its packages with known vulnerabilities"):
                gated[spec.id] = gate.judge(spec, image, source, project.cache)
    return gated


def behind(gated: GatedImage | None, find: Callable[[], Candidate]) -> Callable[[], Candidate]:
    """Return a function that finds a candidate, and raises CheckError if the gate refuses it."""
    return (lambda: gated.pass_on(find())) if gated else find


def _kinds(contents: ImagePackages) -> frozenset[Kind]:
    return frozenset(package.kind for package in contents.packages)
