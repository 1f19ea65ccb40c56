"""Reports: the files that keep a verdict (JSON, JUnit XML, Markdown), and the summary of a run."""

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


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What a run says of one image: its verdict, or the problem that kept it from having one.

    ``name`` is its id, or its reference where that is how it was asked for. ``reused``: the verdict was there
    already. ``report``: its page. ``warning``: true, whatever the outcome.
    """

    __test__ = False  # the name is not pytest's to collect

    name: str
    ref: str
    verdict: Verdict | None = None
    problem: Problem | None = None
    reused: bool = False
    report: Path | None = None
    warning: str = ""

    @property
    def outcome(self) -> Outcome:
        """An image that could not be tested failed: silence is not a pass."""
        return self.verdict.outcome if self.verdict else Outcome.FAILED

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        return self.verdict.checks if self.verdict else ()

    @property
    def figures(self) -> tuple[str, ...]:
        """A cell of a table for each outcome, and one for the time."""
        if not self.verdict:
            return "", "", "", "", ""
        counted = counts(self.checks)
        return (*(str(counted[outcome]) for outcome in Outcome), f"{self.verdict.seconds:.1f} s")

    @property
    def remark(self) -> str:
        """What there is to say beside the figures."""
        reused = f"unchanged since {self.verdict.minute}" if self.reused and self.verdict else ""
        problem = self.problem.sentence if self.problem else ""
        return "; ".join(part for part in (problem, reused, self.warning) if part)


def absent(name: str, ref: str, row: str) -> Tested:
    """An image that the engine does not have; ``row`` is the row of the matrix by which it can be built, if any."""
    remedy = f"Build it: nox -s build -- {row}" if row else f"Fetch it: docker pull {ref}"
    return Tested(name=name, ref=ref, problem=Problem(reason="not in the engine", remedy=remedy))


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The folder of reports: ``<name>/<digest>.json``, ``.xml`` and ``.md``, each written beside, then renamed."""

    folder: Path

    def find(self, name: str, digest: str) -> Verdict | None:
        """The whole verdict of an image, if there is one that can be read."""
        try:
            return read_statement(self.path(name, digest).read_bytes())
        except (OSError, ValueError):  # none, or of another version of the toolkit: the checks run again
            return None

    def keep(self, name: str, verdict: Verdict, labels: Mapping[str, str], *, partial: bool) -> Path:
        """Write all three; returns the page. A partial verdict has files of its own, which are never found again."""
        path = self.path(name, verdict.digest, partial=partial)
        write_text(path.with_suffix(".md"), markdown(verdict, labels, partial=partial))
        write_text(path.with_suffix(".xml"), junit(name, verdict))
        write_text(path, statement_text(verdict))  # last: where it is, the others are
        return path.with_suffix(".md")

    def summarise(self, tested: Sequence[Tested]) -> Path:
        """Write what the latest run found, of all its images; returns the page."""
        path = self.folder / "summary.md"
        write_text(path, summary(tested, self.folder))
        write_text(path.with_suffix(".json"), json.dumps(as_json(tested), indent=2, ensure_ascii=False) + "\n")
        return path

    def path(self, name: str, digest: str, *, partial: bool = False) -> Path:
        return self.folder / file_name(name) / f"{short_digest(digest)}{'.partial' * partial}.json"


def file_name(name: str) -> str:
    """An id or an image reference as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "_"


def as_json(tested: Sequence[Tested]) -> dict[str, Any]:
    """A run for programs."""
    return {"images": [_entry(image) for image in tested]}


def _entry(image: Tested) -> dict[str, Any]:
    return {
        "name": image.name,
        "ref": image.ref,
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


def summary(tested: Sequence[Tested], folder: Path) -> str:
    """A run to read: a row an image, then what failed, then why checks did not run."""
    passed = sum(image.outcome is Outcome.PASSED for image in tested)
    sections = [f"# {passed} of {len(tested)} images passed"]
    rows = [(_link(image, folder), image.outcome, *image.figures, plain(image.remark)) for image in tested]
    sections.append(table(("image", "outcome", "passed", "failed", "not run", "waived", "time", "remark"), rows))
    failed = [map(plain, (image.name, check.id, check.summary)) for image in tested for check in _failures(image)]
    if failed:
        sections += ["## Failed", table(("image", "check", "reason"), failed)]
    waived = [map(plain, (image.name, check.id, check.summary)) for image in tested for check in _waived(image)]
    if waived:
        sections += ["## Waived", table(("image", "check", "reason"), waived)]
    sections += not_run(check for image in tested for check in image.checks)
    return "\n\n".join(sections) + "\n"


def _failures(image: Tested) -> tuple[CheckResult, ...]:
    return image.verdict.of(Outcome.FAILED) if image.verdict else ()


def _waived(image: Tested) -> tuple[CheckResult, ...]:
    return image.verdict.of(Outcome.WAIVED) if image.verdict else ()


def _link(image: Tested, folder: Path) -> str:
    if not image.report:
        return plain(image.name)
    return f"[{plain(image.name)}]({image.report.relative_to(folder).as_posix()})"
