"""Reports: the files of a verdict (JSON, JUnit XML, Markdown), and the summary of a run."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.checks.junit import junit
from torchbake.checks.markdown import markdown, not_run, plain, table
from torchbake.checks.statement import read_statement, statement_text
from torchbake.checks.verdict import CheckResult, Outcome, Verdict, counts
from torchbake.core.digest import short_digest
from torchbake.core.files import write_text
from torchbake.core.problem import Problem
from torchbake.ui.command import Command

_MOST_REASONS = 3  # of the checks of an image, in one line


@dataclass(frozen=True, kw_only=True)
class ImageResult:
    """The result of a run for one image: its verdict, or the problem because of which it has none.

    ``name`` is the image's id, or the reference that the user gave. If ``reused``, the verdict is from an earlier run.
    The ``report`` is the page of the verdict. A ``warning`` is independent of the outcome. Without a row the
    ``platform`` is "".
    """

    __test__ = False  # the name is not pytest's to collect

    name: str
    ref: str
    verdict: Verdict | None = None
    problem: Problem | None = None
    reused: bool = False
    report: Path | None = None
    warning: str = ""
    platform: str = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the verdict; an image that could not be tested has failed."""
        return self.verdict.outcome if self.verdict else Outcome.FAILED

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        return self.verdict.checks if self.verdict else ()

    @property
    def figures(self) -> tuple[str, ...]:
        """The cells of a table: the number of checks with each outcome, and the time."""
        if not self.verdict:
            return "", "", "", "", ""
        counted = counts(self.checks)
        return (*(str(counted[outcome]) for outcome in Outcome), f"{self.verdict.seconds:.1f} s")

    @property
    def reason(self) -> str:
        """The reason why it did not pass: its problem, or its failed checks; else why its checks were not run."""
        if self.problem:
            return self.problem.sentence
        failed = [check for check in self.checks if check.outcome is Outcome.FAILED]
        return "; ".join(f"{check.id}: {check.summary}" for check in (failed or self.checks)[:_MOST_REASONS])

    @property
    def remark(self) -> str:
        """Notes on the result: a problem, a reused verdict, a warning."""
        reused = f"unchanged since {self.verdict.minute}" if self.reused and self.verdict else ""
        problem = self.problem.sentence if self.problem else ""
        return "; ".join(part for part in (problem, reused, self.warning) if part)


def absent(name: str, ref: str, row: str) -> ImageResult:
    """Return the result of an image that the engine does not have; ``row`` is the row in the matrix, if any."""
    remedy = f"Build it: {Command('build', row)}" if row else f"Fetch it: docker pull {ref}"
    return ImageResult(name=name, ref=ref, problem=Problem(reason="not in the engine", remedy=remedy))


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The folder of reports: ``<name>/<digest>.json``, ``.xml`` and ``.md``, each replaced atomically."""

    folder: Path

    def find(self, name: str, digest: str) -> Verdict | None:
        """Return the complete verdict of an image, or None if there is none that can be read."""
        try:
            return read_statement(self.path(name, digest).read_bytes())
        except (OSError, ValueError):  # no verdict, or one of another version of the toolkit: the checks run again
            return None

    def keep(self, name: str, verdict: Verdict, labels: Mapping[str, str], *, partial: bool) -> Path:
        """Write all three files and return the page. Partial verdicts have other names, which `find` ignores."""
        path = self.path(name, verdict.digest, partial=partial)
        write_text(path.with_suffix(".md"), markdown(verdict, labels, partial=partial))
        write_text(path.with_suffix(".xml"), junit(name, verdict))
        write_text(path, statement_text(verdict))  # last, so that its presence implies the others
        return path.with_suffix(".md")

    def summarise(self, results: Sequence[ImageResult], *, partial: bool = False) -> Path:
        """Write the summary of a run, and return its page. That of partial verdicts has another name."""
        path = self.folder / f"summary{'.partial' * partial}.md"
        write_text(path, summary(results, self.folder))
        write_text(path.with_suffix(".json"), json.dumps(as_json(results), indent=2, ensure_ascii=False) + "\n")
        return path

    def path(self, name: str, digest: str, *, partial: bool = False) -> Path:
        return self.folder / file_name(name) / f"{short_digest(digest)}{'.partial' * partial}.json"


def file_name(name: str) -> str:
    """Return a file name for an id or an image reference."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "_"


def as_json(results: Sequence[ImageResult]) -> dict[str, Any]:
    """Return the results of a run for programs."""

    def entry(image: ImageResult) -> dict[str, Any]:
        return {
            "name": image.name,
            "ref": image.ref,
            "platform": image.platform or None,
            "outcome": image.outcome,
            "digest": image.verdict.digest if image.verdict else None,
            "problem": image.problem.reason if image.problem else "",
            "remedy": image.problem.remedy if image.problem else "",
            "warning": image.warning,
            "reused": image.reused,
            "seconds": image.verdict.seconds if image.verdict else 0.0,
            "counts": {str(outcome): number for outcome, number in counts(image.checks).items()},
            "report": str(image.report) if image.report else None,
            "checks": [check.model_dump(mode="json") for check in image.checks],
        }

    return {"images": [entry(image) for image in results]}


def summary(results: Sequence[ImageResult], folder: Path) -> str:
    """Return the page of a run: a row for each image, failed and waived checks, reasons why checks did not run."""

    def link(image: ImageResult) -> str:
        name = plain(image.name)
        return f"[{name}]({image.report.relative_to(folder).as_posix()})" if image.report else name

    passed = sum(image.outcome is Outcome.PASSED for image in results)
    sections = [f"# {passed} of {len(results)} images passed"]
    rows = [(link(image), image.outcome, *image.figures, plain(image.remark)) for image in results]
    sections.append(table(("image", "outcome", "passed", "failed", "not run", "waived", "time", "remark"), rows))
    checks = [(image.name, check) for image in results for check in image.checks]
    for heading, outcome in (("Failed", Outcome.FAILED), ("Waived", Outcome.WAIVED)):
        matches = [map(plain, (name, check.id, check.summary)) for name, check in checks if check.outcome is outcome]
        if matches:
            sections += [f"## {heading}", table(("image", "check", "reason"), matches)]
    sections += not_run(check for _, check in checks)
    return "\n\n".join(sections) + "\n"
